//! Output of a script, as people read it: lines without a terminal's escape sequences, and the end of a long line.
//!
//! A script says last why it failed. So a text that must be short keeps the *end* of its last line. As on a terminal, a
//! carriage return ends what stood on the line before (progress bars), and a backspace takes a character back.

/// Longest escape sequence, in bytes, that [`after_cut`] recognises across a cut.
const MAX_SEQUENCE: usize = 256;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;

/// Returns the lines of `text` without escape sequences, backspaces, and white space at either end. Leaves out empty
/// lines. A line ends with a line feed or a carriage return.
pub fn lines(text: &str) -> impl DoubleEndedIterator<Item = String> {
    text.split(['\n', '\r']).map(|line| plain(line).trim().to_owned()).filter(|line| !line.is_empty())
}

/// Returns the last line of `text` that is not empty, as [`lines`] does; `None`: no such line.
pub fn last_line(text: &str) -> Option<String> {
    lines(text).next_back()
}

/// Returns `text`, or if it has more than `most` characters its first `most - 1` characters and an ellipsis.
pub fn beginning(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Returns `text`, or if it has more than `most` characters an ellipsis and its last `most - 1` characters.
pub fn end(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let kept: Vec<char> = text.chars().rev().take(most.saturating_sub(1)).collect();
    std::iter::once('…').chain(kept.into_iter().rev()).collect()
}

/// Returns the first position at or after `cut` in `bytes` that is neither within a character nor within an escape
/// sequence.
pub fn after_cut(bytes: &[u8], cut: usize) -> usize {
    let cut = cut.min(bytes.len());
    let from = cut.saturating_sub(MAX_SEQUENCE);
    let escape = bytes[from..cut].iter().rposition(|byte| *byte == ESC).map(|at| from + at);
    let cut = match escape {
        Some(at) => cut.max(at + sequence(&bytes[at..])),
        None => cut,
    };
    // Continuation bytes of UTF-8.
    cut + bytes[cut..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// Removes escape sequences and backspaces from one line. A sequence without its end is removed as far as it goes.
fn plain(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        match c {
            '\u{1b}' => rest = rest.get(sequence(rest.as_bytes())..).unwrap_or_default(),
            '\u{8}' => {
                shown.pop();
                rest = &rest[1..];
            }
            c => {
                shown.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    shown
}

/// Returns the length in bytes of the escape sequence at the beginning of `bytes` (ECMA-48), at least 1. Ends before a
/// byte that belongs to no sequence.
fn sequence(bytes: &[u8]) -> usize {
    let run = |from: usize, of: std::ops::RangeInclusive<u8>| {
        bytes.get(from..).unwrap_or_default().iter().take_while(|byte| of.contains(byte)).count() + from
    };
    match bytes.get(1) {
        // Control sequence: parameters, intermediate bytes, one final byte. `ESC [ 1 ; 31 m`.
        Some(b'[') => {
            let last = run(run(2, 0x30..=0x3f), 0x20..=0x2f);
            last + usize::from(bytes.get(last).is_some_and(|byte| (0x40..=0x7e).contains(byte)))
        }
        // Operating system command and other strings, up to BEL or `ESC \`: titles, links.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let is_end = |byte: &u8| matches!(*byte, BEL | ESC | b'\n' | b'\r');
            let last = bytes[2..].iter().position(is_end).map_or(bytes.len(), |at| at + 2);
            match bytes[last..] {
                [BEL, ..] => last + 1,
                [ESC, b'\\', ..] => last + 2,
                _ => last,
            }
        }
        // Other escapes: intermediate bytes, one final byte. `ESC ( B`, `ESC 7`.
        Some(_) => {
            let last = run(1, 0x20..=0x2f);
            last + usize::from(bytes.get(last).is_some_and(|byte| (0x30..=0x7e).contains(byte)))
        }
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_what_a_terminal_shows_last() {
        for (text, expect) in [
            ("", None),
            ("\n \r\n", None),
            ("one\ntwo\n\n", Some("two")),
            ("no line break", Some("no line break")),
            ("dos\r\n", Some("dos")),
            ("Scrubbing 98%  \rScrubbing 99%  \rwrite error at block 1234", Some("write error at block 1234")),
            ("Scrubbing 98%  \rScrubbing 99%  \r", Some("Scrubbing 99%")),
            ("busy |\u{8}/\u{8}-", Some("busy -")),
            ("\u{1b}[1;31mERROR \u{1b}[0mGPU 3 is gone\u{1b}[K", Some("ERROR GPU 3 is gone")),
            ("\u{1b}]0;title\u{7}after a title", Some("after a title")),
            ("\u{1b}]8;;http://a/\u{1b}\\link\u{1b}]8;;\u{1b}\\", Some("link")),
            ("\u{1b}(Bplain\u{1b}7", Some("plain")),
            // A sequence without its end: the output, or a line of it, was cut there.
            ("red \u{1b}[1;3", Some("red")),
            ("red \u{1b}", Some("red")),
            ("title \u{1b}]0;an endless title", Some("title")),
            ("\u{1b}[31mé✓\u{1b}é", Some("é✓é")),
            ("\u{1b}]0;é\u{1b}é", Some("é")),
            // What a script says last is what it said last.
            ("no such device\ncleaning up...\n", Some("cleaning up...")),
            ("no such device\n+ rm -f /run/x", Some("+ rm -f /run/x")),
        ] {
            assert_eq!(last_line(text).as_deref(), expect, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_keeps_its_end_or_its_beginning() {
        for (text, most, expect) in
            [("", 3, ""), ("abc", 3, "abc"), ("abcd", 3, "…cd"), ("ääää", 3, "…ää"), ("ab", 1, "…"), ("ab", 0, "…")]
        {
            assert_eq!(end(text, most), expect, "{text:?} {most}");
        }
        for (text, most, expect) in [("", 3, ""), ("abc", 3, "abc"), ("abcd", 3, "ab…"), ("ää", 1, "…")] {
            assert_eq!(beginning(text, most), expect, "{text:?} {most}");
        }
    }

    #[test]
    fn a_cut_is_moved_behind_a_sequence_and_a_character() {
        let text = "x\u{1b}[1;31mäb".as_bytes();
        let expect = [0, 1, 8, 8, 8, 8, 8, 8, 8, 10, 10, 11];
        for (cut, expect) in expect.into_iter().enumerate() {
            assert_eq!(after_cut(text, cut), expect, "{cut}");
        }
        assert_eq!((after_cut(text, 99), after_cut(b"\x1b]0;long", 3)), (11, 8));
    }

    proptest::proptest! {
        /// A cut at any place leaves no part of a sequence.
        #[test]
        fn no_half_sequence_is_left(words in proptest::collection::vec("(\u{1b}\\[[0-9;]{0,4}m)?[A-Zä]", 0..20),
                                    cut in 0_usize..100) {
            let text = words.concat();
            let from = after_cut(text.as_bytes(), cut);
            let seen = last_line(&text[from..]).unwrap_or_default();
            proptest::prop_assert!(last_line(&text).unwrap_or_default().ends_with(&seen));
        }
    }
}
