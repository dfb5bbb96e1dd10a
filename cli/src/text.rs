//! Makes foreign text harmless for a terminal, and formats lengths of time.
//!
//! A user may have written the text that a script prints: control characters of such a text never reach an operator's
//! terminal.

pub(crate) use perilog_core::duration::{age, elapsed};
pub(crate) use perilog_host::terminal::json;

use perilog_host::terminal::is_harmful;

/// Maximum number of characters that [`line()`] keeps of a text that perilog did not write, such as the last line that
/// a script printed. `logs` and `--json` do not cut the text.
const SHOWN: usize = 300;

/// Returns `text` as one line: escapes control characters and those that reorder text, and cuts a long text.
pub(crate) fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(SHOWN));
    for (count, c) in text.trim_end().chars().enumerate() {
        if count == SHOWN {
            shown.push('…');
            break;
        }
        match c {
            '\t' => shown.push(' '),
            c => harmless(c, &mut shown),
        }
    }
    shown
}

/// Returns a line that a script printed, as [`line()`] does, but keeps the end of a long line, where a script normally
/// prints why it failed.
pub(crate) fn of_script(text: &str) -> String {
    line(&perilog_core::output::end(text, SHOWN))
}

/// Returns `text` with its line breaks and tabs; escapes all other control characters as [`line()`] does.
pub(crate) fn block(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            // Line ends of other systems.
            '\r' if chars.peek() == Some(&'\n') => {}
            c => harmless(c, &mut shown),
        }
    }
    shown
}

pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", line(text))
}

fn harmless(c: char, shown: &mut String) {
    if is_harmful(c) {
        shown.extend(c.escape_default());
    } else {
        shown.push(c);
    }
}

/// Formats ranks for people: `rank 4` or `ranks 0-3,7`.
pub(crate) fn ranks(ranks: &perilog_core::IdSet) -> String {
    format!("rank{} {ranks}", if ranks.len() == 1 { "" } else { "s" })
}

/// Formats a range of durations in milliseconds, such as `800ms-1.2s`; a single duration if both look the same.
pub(crate) fn elapsed_between(min: u64, max: u64) -> String {
    let (min, max) = (elapsed(min), elapsed(max));
    if min == max { min } else { format!("{min}-{max}") }
}

/// Formats a number with its noun: `1 node` or `2 nodes`.
pub(crate) fn count(n: u64, of: &str) -> String {
    format!("{n} {of}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_harmless() {
        for (text, expect) in [
            ("mount: no such device\n", "mount: no such device"),
            ("a\tb", "a b"),
            ("\u{1b}[2Jowned\u{7}", "\\u{1b}[2Jowned\\u{7}"),
            ("csi \u{9b}31m", "csi \\u{9b}31m"),
            ("two\nlines", "two\\nlines"),
            ("ex\u{202e}exe.txt", "ex\\u{202e}exe.txt"),
            ("grün ✓", "grün ✓"),
        ] {
            assert_eq!(line(text), expect, "{text:?}");
        }
        assert_eq!(line(&"x".repeat(1000)).chars().count(), SHOWN + 1);
        let long = of_script(&format!("{}the cause", "x".repeat(1000)));
        assert!(long.starts_with("…x") && long.ends_with("xthe cause") && long.chars().count() == SHOWN, "{long}");
        assert_eq!(block("a\r\nb\tc\r\u{1b}\n"), "a\nb\tc\\r\\u{1b}\n");
    }

    #[test]
    fn ranges_and_counts() {
        assert_eq!((elapsed_between(800, 1200), elapsed_between(5, 5)), ("800ms-1.2s".to_owned(), "5ms".to_owned()));
        assert_eq!((count(1, "node"), count(0, "node")), ("1 node".to_owned(), "0 nodes".to_owned()));
    }
}
