//! Hostlists: ordered lists of host names, with duplicates, in the form of RFC 29: `n[0-3,7]-ib,login1`.
//!
//! The position of a name matters: the ranks of a job are the positions in the job's hostlist. So no function here
//! sorts or merges, but [`HostList::sorted`], which is for people. A name is printable ASCII without space, `,`, `[`
//! and `]`; this module does not check whether a name is a legal host name.
//!
//! The parser reads what Flux writes as Flux reads it: the leading zeros of an id pad that id or range alone. So
//! `[005,4]` is 005,4 and `[10-11,08-09]` is 10,11,08,09. (RFC 29 pads all ids of the brackets like the first; Flux and
//! Slurm do not.) White space does not separate. The parser refuses two texts that Flux's decoder alters and never
//! writes, because another reading would name another host. One is a range whose end has more zeros than its beginning
//! (`[8-011]`). The other is a second pair of brackets (`foo[1-2]x[3-4]`): in RFC 29 an expression has one idlist, and
//! a name has no bracket. An empty expression adds no name (`a,,b`).

mod fold;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{IdSet, ParseError};

/// A list of host names. Clones share the names in memory: the list that goes to every node of a job is stored once.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct HostList {
    names: Arc<Names>,
}

/// The names of a host list, all in one text. So a list of 65,536 hosts needs few allocations, not one for each name.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Names {
    text: String,
    /// Byte offset in `text` of the end of each name. [`HostList::MAX_BYTES`] keeps each offset far below `u32::MAX`.
    ends: Vec<u32>,
}

impl HostList {
    /// Maximum number of names in a list: sixteen times the 65,536 hosts of the largest cluster that perilog is planned
    /// for. Flux expands at most this number from one range.
    pub const MAX_HOSTS: usize = 1 << 20;
    /// Maximum length of a name in bytes: that of a DNS name (RFC 1035).
    pub const MAX_NAME: usize = 253;
    /// Maximum length of all names together in bytes: [`HostList::MAX_HOSTS`] names of 32 bytes. Without this bound a
    /// text of 300 bytes could ask for 265 MB.
    pub const MAX_BYTES: usize = Self::MAX_HOSTS * 32;

    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a list of these names, in this order; brackets have no meaning in a name.
    ///
    /// # Errors
    ///
    /// [`ParseError`] of the first name that [`HostList::push`] refuses.
    pub fn from_names<I: IntoIterator<Item: AsRef<str>>>(names: I) -> Result<Self, ParseError> {
        let mut list = Self::new();
        for name in names {
            list.push(name.as_ref())?;
        }
        Ok(list)
    }

    /// Creates a list of these names in the order of people ([`by_number`]), for a text of few brackets. Leaves out
    /// names that no list can hold.
    pub fn sorted<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable_by(|a, b| by_number(a, b));
        let mut list = Self::new();
        // An error is about this name alone, or the list is full.
        names.into_iter().for_each(|name| drop(list.push(name)));
        list
    }

    /// Appends one name.
    ///
    /// # Errors
    /// [`ParseError`] if `name` is empty, longer than [`HostList::MAX_NAME`], has a character that RFC 29 allows in no
    /// name, or the list is full.
    pub fn push(&mut self, name: &str) -> Result<(), ParseError> {
        let err = |at, expected: &str| Err(ParseError::new("host name", name, at, expected));
        if name.is_empty() {
            return err(0, "a host name");
        }
        if let Some(at) = name.bytes().position(|b| !parse::in_name(b)) {
            return err(at, parse::NAME_CHARACTER);
        }
        if let Err(expected) = self.room_for(1, name.len()) {
            return err(0, &expected);
        }
        self.append(1, |text, _| text.push_str(name));
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.names.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.ends.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&str> {
        (index < self.len()).then(|| &self.names.text[self.span(index)])
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|index| &self.names.text[self.span(index)])
    }

    /// Returns the first position of `name`, counted from 0; `None`: the list does not contain the name. Walks the
    /// list; for many names use [`crate::Targets::resolve`].
    pub fn position(&self, name: &str) -> Option<usize> {
        self.iter().position(|n| n == name)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Returns the name by which the list has the host `own`: the same name, or else one of the same host
    /// ([`is_same_host`]); `None`: the list does not have this host.
    pub fn listed(&self, own: &str) -> Option<&str> {
        let same = self.iter().find(|host| host.eq_ignore_ascii_case(own));
        same.or_else(|| self.iter().find(|host| is_same_host(host, own)))
    }

    /// Returns the first name that the list contains a second time; `None`: all names differ.
    pub fn first_duplicate(&self) -> Option<&str> {
        let mut seen = HashSet::with_capacity(self.len());
        self.iter().find(|name| !seen.insert(*name))
    }

    /// Returns the list of the names at these positions, in the order of this list; ignores positions past the end.
    #[must_use]
    pub fn select(&self, positions: &IdSet) -> Self {
        let mut chosen = Self::new();
        for (lo, hi) in positions.ranges() {
            let until = usize::try_from(hi).map_or(self.len(), |hi| self.len().min(hi.saturating_add(1)));
            for index in usize::try_from(lo).unwrap_or(until)..until {
                chosen.append(1, |text, _| text.push_str(&self.names.text[self.span(index)]));
            }
        }
        chosen
    }

    fn span(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.names.ends[before]);
        start as usize..self.names.ends[index] as usize
    }

    /// Checks that the list has room for `count` names of at most `longest` bytes. The error names the bound.
    fn room_for(&self, count: usize, longest: usize) -> Result<(), String> {
        if longest > Self::MAX_NAME {
            return Err(format!("names of at most {} characters", Self::MAX_NAME));
        }
        if count > Self::MAX_HOSTS - self.len() {
            return Err(format!("at most {} hosts in all", Self::MAX_HOSTS));
        }
        if count * longest > Self::MAX_BYTES - self.names.text.len() {
            return Err(format!("names of at most {} bytes in all", Self::MAX_BYTES));
        }
        Ok(())
    }

    /// Appends `count` names, for which the list must have room. `write` appends the text of the name with the given
    /// index, from 0.
    fn append(&mut self, count: u64, write: impl Fn(&mut String, u64)) {
        let names = Arc::make_mut(&mut self.names);
        for i in 0..count {
            write(&mut names.text, i);
            names.ends.push(names.text.len() as u32);
        }
    }
}

/// Formats the list as RFC 29 text. Neighbouring names that differ in one number share brackets: `n[0-3,7].c1`.
impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fold::write(self.iter(), f)
    }
}

impl fmt::Debug for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostList({self})")
    }
}

impl Serialize for HostList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Returns `true` if two names have the same first label, as the short and the long name of a host do.
pub fn is_same_host(one: &str, two: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    first(one) == first(two)
}

/// Compares names by the numbers in them: `n2` comes before `n10`.
pub fn by_number(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut one, mut other) = (a, b);
    loop {
        let same = one.bytes().zip(other.bytes()).take_while(|(x, y)| x == y && !x.is_ascii_digit()).count();
        (one, other) = (&one[same..], &other[same..]);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (many, more) = (digits(one), digits(other));
        if many == 0 || more == 0 {
            return one.cmp(other).then_with(|| a.cmp(b));
        }
        let (x, y) = (one[..many].trim_start_matches('0'), other[..more].trim_start_matches('0'));
        match x.len().cmp(&y.len()).then_with(|| x.cmp(y)).then_with(|| many.cmp(&more)) {
            std::cmp::Ordering::Equal => (one, other) = (&one[many..], &other[more..]),
            unequal => return unequal,
        }
    }
}
