//! Formats names as RFC 29 text: neighbouring names that differ in one number share brackets. The text parses as the
//! same names.

use std::fmt::{self, Write};

pub(super) fn write<'a>(names: impl Iterator<Item = &'a str>, out: &mut impl Write) -> fmt::Result {
    let mut names = names.peekable();
    let mut comma = "";
    while let Some(first) = names.next() {
        out.write_str(comma)?;
        comma = ",";
        let slot = names.peek().and_then(|next| Slot::between(first, next));
        let Some((slot, id)) = slot.and_then(|slot| Some((slot, slot.id(first)?))) else {
            out.write_str(first)?;
            continue;
        };
        write!(out, "{}[", slot.prefix)?;
        let mut run = (id, id);
        while let Some(id) = names.peek().and_then(|name| slot.id(name)) {
            names.next();
            if run.1.checked_add(1) == Some(id) {
                run.1 = id;
            } else {
                slot.write_run(run, out)?;
                out.write_str(",")?;
                run = (id, id);
            }
        }
        slot.write_run(run, out)?;
        write!(out, "]{}", slot.suffix)?;
    }
    Ok(())
}

/// A pattern of names that differ in one number: the text before the number, the text after it, and the number's width.
#[derive(Clone, Copy)]
struct Slot<'a> {
    prefix: &'a str,
    suffix: &'a str,
    /// The number of digits to which ids are padded; 0: no padding.
    width: usize,
}

impl<'a> Slot<'a> {
    /// Returns the pattern that writes both names exactly, if the names differ in one number. Equal names count as
    /// differing in their last number.
    fn between(first: &'a str, next: &str) -> Option<Self> {
        let (start, end) = if first == next {
            let end = first.bytes().rposition(|b| b.is_ascii_digit())? + 1;
            (number_start(first, end), end)
        } else {
            let same = first.bytes().zip(next.bytes()).take_while(|(a, b)| a == b).count();
            let start = number_start(first, same);
            let behind =
                first[start..].bytes().rev().zip(next[start..].bytes().rev()).take_while(|(a, b)| a == b).count();
            let tail = &first[first.len() - behind..];
            (start, first.len() - tail.trim_start_matches(|c: char| c.is_ascii_digit()).len())
        };
        let digits = first.get(start..end)?;
        let width = if digits.len() > 1 && digits.starts_with('0') { digits.len() } else { 0 };
        let slot = Self { prefix: &first[..start], suffix: &first[end..], width };
        slot.id(next).map(|_| slot)
    }

    /// Returns the number in `name`. `None`: `name` does not fit the pattern, the pattern would write its number with
    /// other zeros, or the number exceeds 64 bits.
    fn id(self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(self.prefix)?.strip_suffix(self.suffix)?;
        let as_written = digits.len() == self.width.max(1) || (digits.len() > self.width && !digits.starts_with('0'));
        // `parse` alone would let "+1" through.
        (as_written && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
    }

    fn write_run(self, (lo, hi): (u64, u64), out: &mut impl Write) -> fmt::Result {
        let width = self.width;
        write!(out, "{lo:0width$}")?;
        if lo < hi { write!(out, "-{hi:0width$}") } else { Ok(()) }
    }
}

/// Returns the byte offset of the first digit of the number that ends right before `end`; `end` if no digit precedes
/// `end`.
fn number_start(name: &str, end: usize) -> usize {
    end - name[..end].bytes().rev().take_while(u8::is_ascii_digit).count()
}
