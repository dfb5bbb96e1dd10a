//! Pages: keeps track of the lists of edges (`Sync`), which come in pages. Decides which page continues which list, and
//! when a half list is dropped.
//!
//! ```text
//!   first page --> half --further pages--> half --last page--> whole
//!                   |                                            |
//!                   +-- dropped by a new first page,             +-- half again with the next first page
//!                       or after a minute without a page
//! ```
//! A half list says nothing about the attempts that it lacks. Until the list is whole, no clean-up begins that waits
//! for a list of its source, and no recovery ends. So a lost connection between two pages changes nothing: the edge
//! begins again with a first page.
//!
//! A listed attempt bears the number of the list ([`JobAttempt::listed`]), so a half list needs no memory for the
//! attempts that the store has.
//!
//! [`JobAttempt::listed`]: crate::controller::state::attempt::JobAttempt::listed

use std::collections::BTreeMap;

use crate::controller::interface::io::{Now, Refusal, Source, SyncPage};
use crate::defect;
use crate::ids::Epoch;

/// Maximum number of attempts in one list: more than a resource manager runs at a time.
const MAX_LISTED: usize = 1_000_000;
/// Maximum number of sources whose lists are kept. A site has one or two.
const MAX_SOURCES: usize = 256;
/// Time (ms) without a further page after which a half list is dropped: its edge has lost the connection.
const DROPPED_MS: u64 = 60_000;

/// The lists of all sources that have begun one since this controller started.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lists {
    by_source: BTreeMap<Source, List>,
    /// The number of the newest list. Numbers grow over the epochs of the controller, so no page of an earlier epoch
    /// continues a list of this one.
    last: u64,
}

/// The list of one source.
#[derive(Debug, Clone, Default, PartialEq)]
struct List {
    half: Option<Half>,
    /// The number of the newest list of the source that is whole; `None`: there is none, or a newer list is half.
    whole: Option<u64>,
    /// `true` if the newest whole list has an attempt that the controller refused. Such an attempt may run anywhere, so
    /// no clean-up begins that waits for the list.
    refused: bool,
}

/// A list whose last page has not come yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Half {
    pub(crate) number: u64,
    listed: usize,
    dropped_ms: u64,
    pub(crate) refused: bool,
}

impl Lists {
    pub(crate) const fn new(epoch: Epoch) -> Self {
        Self { by_source: BTreeMap::new(), last: epoch.number << 24 }
    }

    /// Takes out the half list to which the page belongs. A first page begins a new list, and drops a half one of the
    /// same source. The caller applies the page, and then stores the list with [`Self::is_half`] or [`Self::is_whole`].
    ///
    /// # Errors
    /// The list that the page continues is not under way, the page makes a list exceed a bound, or too many sources
    /// have lists.
    pub(crate) fn turn(&mut self, page: &SyncPage, now: Now) -> Result<Half, Refusal> {
        if !self.by_source.contains_key(&page.source) && self.by_source.len() >= MAX_SOURCES {
            let most = format!("too many sources for one run of the controller: the limit is {MAX_SOURCES}");
            return Err(Refusal::Invalid(most));
        }
        let of = self.by_source.entry(page.source.clone()).or_default();
        let half = of.half.take();
        let mut half = match page.sync {
            None => {
                self.last += 1;
                Half { number: self.last, listed: 0, dropped_ms: 0, refused: false }
            }
            Some(number) => half.filter(|half| half.number == number).ok_or_else(|| {
                let Source { name, .. } = &page.source;
                let why = format!("list {number} of {name} is not under way: begin again with a page without `sync`");
                Refusal::Conflict(why)
            })?,
        };
        half.listed += page.attempts.len() + page.unfit.len();
        half.dropped_ms = now.mono_ms.saturating_add(DROPPED_MS);
        if half.listed > MAX_LISTED {
            let most = format!("too many attempts in one list: the limit is {MAX_LISTED}");
            return Err(Refusal::Invalid(most));
        }
        if !defect!(HalfListCounts) {
            of.whole = None;
        }
        Ok(half)
    }

    /// Stores a half list again: further pages of it follow.
    pub(crate) fn is_half(&mut self, source: &Source, half: Half) {
        self.by_source.entry(source.clone()).or_default().half = Some(half);
    }

    /// Records that the last page of a list has come.
    pub(crate) fn is_whole(&mut self, source: &Source, half: Half) {
        let list = List { half: None, whole: Some(half.number), refused: half.refused };
        self.by_source.insert(source.clone(), list);
    }

    /// Drops each half list of which no page has come for a minute.
    pub(crate) fn drop_old(&mut self, now: Now) {
        for list in self.by_source.values_mut() {
            list.half.take_if(|half| half.dropped_ms <= now.mono_ms);
        }
    }

    /// Returns the time (monotonic) at which the next half list is dropped.
    pub(crate) fn next_drop(&self) -> Option<u64> {
        self.halves().map(|half| half.dropped_ms).min()
    }

    /// Returns `true` while a list is half.
    pub(crate) fn has_half(&self) -> bool {
        self.halves().next().is_some()
    }

    fn halves(&self) -> impl Iterator<Item = &Half> {
        self.by_source.values().filter_map(|list| list.half.as_ref())
    }

    /// Returns the number of the source's newest list, if it is whole. `None`: this controller has no list of the
    /// source, or the newest one is half.
    pub(crate) fn whole(&self, source: &Source) -> Option<u64> {
        self.by_source.get(source)?.whole
    }

    /// Returns `true` if this is the number of a source's newest list, whole or half.
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        let mut numbers =
            self.by_source.values().flat_map(|list| [list.whole, list.half.as_ref().map(|half| half.number)]);
        numbers.any(|of| of == Some(number))
    }

    /// Returns `true` if a source for which `is_same` returns `true` has listed all its attempts since this controller
    /// started, and none of them was refused.
    pub(crate) fn has_all(&self, is_same: impl Fn(&Source) -> bool) -> bool {
        self.by_source.iter().any(|(source, list)| {
            let refused = if defect!(CleanedBesideRefused) { false } else { list.refused };
            is_same(source) && list.whole.is_some() && !refused
        })
    }
}
