//! Parses RFC 29 text to [`HostList`].
//!
//! ```text
//! hostlist = expression *("," expression)      expression = [name] ["[" idlist "]"] [name]
//! idlist = item *("," item)                    item = id | id "-" same-or-higher-id
//! ```

use std::fmt::Write as _;
use std::str::FromStr;

use super::HostList;
use crate::ParseError;

const WHAT: &str = "hostlist";
pub(super) const NAME_CHARACTER: &str = "a printable ASCII character other than space, ',', '[' and ']'";

/// Returns `true` if RFC 29 allows this byte in a host name.
pub(super) const fn in_name(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b',' | b'[' | b']')
}

impl FromStr for HostList {
    type Err = ParseError;

    /// Parses a hostlist (RFC 29) and expands its brackets.
    ///
    /// # Errors
    ///
    /// [`ParseError`] at the first byte that RFC 29 does not allow. If an id or an expression would make the list
    /// exceed a bound, the error points to the start of that id or expression, and comes before any expansion.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut list = Self::new();
        list.append_text(text)?;
        Ok(list)
    }
}

impl HostList {
    /// Appends the names in a text. The bounds of a list ([`HostList::MAX_HOSTS`] and others) include the names that
    /// the list has already. The parser checks the bounds before it expands names.
    ///
    /// # Errors
    ///
    /// [`ParseError`], as in `from_str`. The list keeps the names before the error.
    pub(crate) fn append_text(&mut self, text: &str) -> Result<(), ParseError> {
        let mut reader = Reader { text, at: 0 };
        loop {
            reader.expression(self)?;
            if reader.skip(b',') {
                continue;
            }
            return if reader.at == text.len() { Ok(()) } else { Err(reader.expected(reader.at, NAME_CHARACTER)) };
        }
    }
}

/// One item of an idlist: the ids from `lo` to `hi`, both included. `at`: the item's byte offset in the parsed text.
struct Item {
    at: usize,
    lo: u64,
    hi: u64,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn expression(&mut self, list: &mut HostList) -> Result<(), ParseError> {
        let from = self.at;
        let prefix = self.take(in_name);
        if !self.skip(b'[') {
            if !prefix.is_empty() {
                list.room_for(1, prefix.len()).map_err(|expected| self.expected(from, expected))?;
                list.append(1, |text, _| text.push_str(prefix));
            }
            return Ok(());
        }
        let (items, width) = self.idlist()?;
        let suffix = self.take(in_name);
        if self.peek() == Some(b'[') {
            return Err(self.expected(self.at, "one pair of brackets in an expression"));
        }
        for Item { at, lo, hi } in items {
            let digits = hi.checked_ilog10().unwrap_or(0) as usize + 1;
            let count = (hi - lo).saturating_add(1);
            list.room_for(
                usize::try_from(count).unwrap_or(usize::MAX),
                prefix.len() + digits.max(width) + suffix.len(),
            )
            .map_err(|expected| self.expected(at, expected))?;
            list.append(count, |text, i| {
                write!(text, "{prefix}{:0width$}{suffix}", lo + i).expect("writing to a String cannot fail");
            });
        }
        Ok(())
    }

    /// Parses the ids up to the closing bracket, and the bracket. Also returns the number of digits to which all ids
    /// are padded: the first id's, if that has leading zeros; otherwise 0.
    fn idlist(&mut self) -> Result<(Vec<Item>, usize), ParseError> {
        let mut items = Vec::new();
        let mut width = None;
        loop {
            let at = self.at;
            let lo = self.id(&mut width)?;
            let mut hi = lo;
            if self.skip(b'-') {
                let to = self.at;
                hi = self.id(&mut width)?;
                if hi < lo {
                    return Err(self.expected(to, format!("the end of an ascending range, {lo} or more")));
                }
            }
            items.push(Item { at, lo, hi });
            if self.skip(b']') {
                return Ok((items, width.unwrap_or(0)));
            }
            if !self.skip(b',') {
                return Err(self.expected(self.at, "',', '-', ']' or a digit"));
            }
        }
    }

    fn id(&mut self, width: &mut Option<usize>) -> Result<u64, ParseError> {
        let from = self.at;
        let digits = self.take(|b| b.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.expected(from, "a number"));
        }
        let padded = digits.len() > 1 && digits.starts_with('0');
        let width = *width.get_or_insert(if padded { digits.len() } else { 0 });
        if padded && digits.len() > width {
            return Err(self.expected(from, "no more leading zeros than the first id has"));
        }
        digits.parse().map_err(|_| self.expected(from, format!("a number up to {}", u64::MAX)))
    }

    fn take(&mut self, fits: impl Fn(u8) -> bool) -> &'a str {
        // Only ASCII bytes are taken, so `at` never lies within a character.
        let rest = &self.text[self.at..];
        let taken = &rest[..rest.bytes().position(|b| !(b.is_ascii() && fits(b))).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expected(&self, at: usize, expected: impl Into<String>) -> ParseError {
        ParseError::new(WHAT, self.text, at, expected)
    }
}
