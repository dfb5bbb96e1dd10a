//! Commits and marks: decides whether a store is behind what its nodes have accepted. A commit is a transaction of the
//! controller's store; a mark is a commit as a node keeps it.
//!
//! A restored store does not know that it is behind. The nodes know: the intent and the tombstone of each task that a
//! controller ordered carry the commit that caused them, and `epoch.json` carries a commit of the accepted epoch. A
//! commit in the store's [`History`] is the store's own past. Any other commit belongs to a later state that the store
//! has lost, or to another controller.

use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, Epoch};

/// A commit of a store: the epoch that made the commit, and the commit's number. Numbers grow by one with each commit
/// and continue over all epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Commit {
    pub epoch: Epoch,
    pub number: u64,
}

/// A mark: a commit as a node keeps it, with the cluster whose controller made the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub cluster: ClusterId,
    pub commit: Commit,
}

/// The contents of `epoch.json`: the epoch that a node accepted last, and a commit of that epoch. The commit is the one
/// in the epoch's first Welcome, or a newer one that a tombstone carried until the agent removed the tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedEpoch {
    #[serde(flatten)]
    pub epoch: Epoch,
    /// The cluster of the controller with this epoch. `None`: an older agent wrote the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The number of the commit. 0: an older agent wrote the file, or the controller does not number its commits.
    #[serde(default)]
    pub commit: u64,
}

impl AcceptedEpoch {
    pub const fn newest(self) -> Commit {
        Commit { epoch: self.epoch, number: self.commit }
    }
}

impl From<Epoch> for AcceptedEpoch {
    fn from(epoch: Epoch) -> Self {
        Self { epoch, cluster: None, commit: 0 }
    }
}

/// An epoch of the controller in the history of its store. An epoch begins with a start of the controller, or when a
/// running controller raises its epoch (`perilog controller recover --take-over`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRange {
    pub epoch: Epoch,
    /// The number of the epoch's first commit.
    pub first: u64,
}

/// Maximum number of epochs that a store remembers. The commits of older epochs count as [`Place::Past`].
pub const MAX_EPOCHS: usize = 1_024;

/// The place of a commit relative to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// This store made the commit, or the commit is older than all epochs that the store remembers.
    Past,
    /// This store never made the commit.
    Foreign,
}

/// The epochs of a store, oldest first, and the number of its last commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub epochs: Vec<EpochRange>,
    pub last: u64,
}

impl History {
    /// Returns the place of a commit.
    ///
    /// | the commit's epoch | and its number | place |
    /// |---|---|---|
    /// | in the history | within the epoch | past |
    /// | in the history | above the epoch's last number in the history | foreign: the store is an older copy |
    /// | unknown, older than all remembered epochs | any | past |
    /// | unknown otherwise | any | foreign |
    ///
    /// The second row is the case of a restored backup: after the backup, the same epoch made further commits, and
    /// nodes keep their marks.
    pub fn place(&self, commit: Commit) -> Place {
        let Some(at) = self.epochs.iter().position(|epoch_range| epoch_range.epoch == commit.epoch) else {
            let forgotten = self.epochs.len() >= MAX_EPOCHS
                && self.epochs.first().is_some_and(|oldest| commit.epoch.number < oldest.epoch.number);
            return if forgotten { Place::Past } else { Place::Foreign };
        };
        let last = self.epochs.get(at + 1).map_or(self.last, |next| next.first.saturating_sub(1));
        if commit.number <= last { Place::Past } else { Place::Foreign }
    }

    /// Returns the store's last commit; `None`: the store is new.
    pub fn newest(&self) -> Option<Commit> {
        self.epochs.last().map(|epoch_range| Commit { epoch: epoch_range.epoch, number: self.last })
    }

    /// Appends an epoch whose first commit has the number `first`. Drops the oldest epochs beyond [`MAX_EPOCHS`].
    pub fn begin(&mut self, epoch: Epoch, first: u64) {
        self.epochs.push(EpochRange { epoch, first });
        let surplus = self.epochs.len().saturating_sub(MAX_EPOCHS);
        self.epochs.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64, nonce: u64) -> Epoch {
        Epoch { number, nonce }
    }

    #[test]
    fn what_an_older_agent_wrote_is_read() {
        let read: AcceptedEpoch = serde_json::from_str(r#"{"number":18446744073709551615,"nonce":7}"#).unwrap();
        assert_eq!(read, AcceptedEpoch::from(epoch(u64::MAX, 7)));
        let whole = AcceptedEpoch { cluster: Some(ClusterId::from_name("c")), commit: 9, ..read };
        let text = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<AcceptedEpoch>(&text).unwrap(), whole);
        assert_eq!(serde_json::from_str::<Epoch>(&text).unwrap(), whole.epoch, "an older agent reads it, too");
    }

    #[test]
    fn a_commit_is_past_or_foreign() {
        let epochs = vec![EpochRange { epoch: epoch(3, 30), first: 10 }, EpochRange { epoch: epoch(4, 40), first: 20 }];
        let history = History { epochs, last: 25 };
        for (of, number, expect) in [
            (epoch(3, 30), 10, Place::Past),
            (epoch(3, 30), 19, Place::Past),
            (epoch(3, 30), 20, Place::Foreign),
            (epoch(4, 40), 20, Place::Past),
            (epoch(4, 40), 25, Place::Past),
            (epoch(4, 40), 26, Place::Foreign),
            (epoch(4, 41), 20, Place::Foreign),
            (epoch(5, 50), 1, Place::Foreign),
            (epoch(2, 20), 1, Place::Foreign),
        ] {
            assert_eq!(history.place(Commit { epoch: of, number }), expect, "{of:?} {number}");
        }
        assert_eq!(history.newest(), Some(Commit { epoch: epoch(4, 40), number: 25 }));
        assert_eq!(History::default().place(Commit { epoch: epoch(1, 1), number: 1 }), Place::Foreign);
    }

    #[test]
    fn what_is_older_than_the_memory_is_past() {
        let mut history = History::default();
        for number in 1..=MAX_EPOCHS as u64 + 2 {
            history.begin(epoch(number, number), number);
            history.last = number;
        }
        assert_eq!(history.epochs.len(), MAX_EPOCHS);
        assert_eq!(history.place(Commit { epoch: epoch(2, 2), number: 2 }), Place::Past);
        assert_eq!(history.place(Commit { epoch: epoch(3, 4), number: 3 }), Place::Foreign);
    }
}
