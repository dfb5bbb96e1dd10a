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
        Reader { text, at: 0 }.each(|reader, expression| self.append_expression(reader, &expression))
    }

    /// Returns the number of names in a text, at most `u64::MAX`. Expands nothing: a few bytes with brackets can name a
    /// million hosts.
    ///
    /// # Errors
    ///
    /// [`ParseError`] at the first byte that RFC 29 does not allow.
    pub fn count(text: &str) -> Result<u64, ParseError> {
        let mut count = 0_u64;
        Reader { text, at: 0 }.each(|_, expression| {
            count = expression.items.iter().fold(count, |count, item| count.saturating_add(item.count()));
            Ok(())
        })?;
        Ok(count)
    }

    fn append_expression(&mut self, reader: &Reader<'_>, of: &Expression<'_>) -> Result<(), ParseError> {
        let Expression { prefix, suffix, .. } = of;
        for item in &of.items {
            let Item { at, lo, digits, .. } = *item;
            let Some(width) = digits else {
                self.room_for(1, prefix.len()).map_err(|expected| reader.expected(at, expected))?;
                self.append(1, |text, _| text.push_str(prefix));
                continue;
            };
            let longest = width.max(item.hi.checked_ilog10().unwrap_or(0) as usize + 1);
            self.room_for(usize::try_from(item.count()).unwrap_or(usize::MAX), prefix.len() + longest + suffix.len())
                .map_err(|expected| reader.expected(at, expected))?;
            self.append(item.count(), |text, i| {
                write!(text, "{prefix}{:0width$}{suffix}", lo + i).expect("writing to a String cannot fail");
            });
        }
        Ok(())
    }
}

/// An expression: names with the same beginning and end. A name without brackets is one item without digits.
struct Expression<'a> {
    prefix: &'a str,
    items: Vec<Item>,
    suffix: &'a str,
}

/// One item of an idlist: the ids from `lo` to `hi`, both included. `at`: the item's byte offset in the parsed text.
struct Item {
    at: usize,
    lo: u64,
    hi: u64,
    /// The number of digits of the first id, to which the item's ids are padded; `None`: the name has no brackets.
    digits: Option<usize>,
}

impl Item {
    const fn count(&self) -> u64 {
        (self.hi - self.lo).saturating_add(1)
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Passes each expression of the text to `take`, in order; leaves out empty expressions.
    fn each(mut self, mut take: impl FnMut(&Self, Expression<'a>) -> Result<(), ParseError>) -> Result<(), ParseError> {
        loop {
            let expression = self.expression()?;
            take(&self, expression)?;
            if !self.skip(b',') {
                break;
            }
        }
        if self.at == self.text.len() { Ok(()) } else { Err(self.expected(self.at, NAME_CHARACTER)) }
    }

    fn expression(&mut self) -> Result<Expression<'a>, ParseError> {
        let at = self.at;
        let prefix = self.take(in_name);
        if !self.skip(b'[') {
            let name = Item { at, lo: 0, hi: 0, digits: None };
            let items = if prefix.is_empty() { Vec::new() } else { vec![name] };
            return Ok(Expression { prefix, items, suffix: "" });
        }
        let items = self.idlist()?;
        let suffix = self.take(in_name);
        if self.peek() == Some(b'[') {
            return Err(self.expected(self.at, "one pair of brackets in an expression"));
        }
        Ok(Expression { prefix, items, suffix })
    }

    /// Parses the items up to the closing bracket, and the bracket.
    fn idlist(&mut self) -> Result<Vec<Item>, ParseError> {
        let mut items = Vec::new();
        loop {
            let at = self.at;
            let (lo, width) = self.id(usize::MAX)?;
            let mut hi = lo;
            if self.skip(b'-') {
                let to = self.at;
                hi = self.id(width)?.0;
                if hi < lo {
                    return Err(self.expected(to, format!("the end of an ascending range, {lo} or more")));
                }
            }
            items.push(Item { at, lo, hi, digits: Some(width) });
            if self.skip(b']') {
                return Ok(items);
            }
            if !self.skip(b',') {
                return Err(self.expected(self.at, "',', '-', ']' or a digit"));
            }
        }
    }

    /// Parses an id; returns it with its number of digits. An id with leading zeros may have at most `most` digits.
    fn id(&mut self, most: usize) -> Result<(u64, usize), ParseError> {
        let from = self.at;
        let digits = self.take(|b| b.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.expected(from, "a number"));
        }
        if digits.len() > most && digits.starts_with('0') {
            return Err(self.expected(from, "no more leading zeros than the first id of the range has"));
        }
        let id = digits.parse().map_err(|_| self.expected(from, format!("a number up to {}", u64::MAX)))?;
        Ok((id, digits.len()))
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
