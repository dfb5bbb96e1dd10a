//! Evidence: decides whether this store is behind its nodes, that is, whether the nodes have accepted commits which the
//! store lacks.
//!
//! | evidence | found | then |
//! |---|---|---|
//! | a stamp: `controller backup` or `restore` made this copy | at load | a new generation |
//! | the anchor file names a commit that the store lacks | at load | a new generation, in an epoch above the anchor's |
//! | a node's newest commit is foreign, and so is another node's (1) | at its Hello | a new generation |
//! | the same, and this node's commit is of the running epoch (2) | at its Hello | a new generation, in a new epoch |
//! | the newest commit of one host alone is foreign | at its Hello | no Welcome for the host; shown |
//! | a foreign commit of another epoch, as high as ours or higher: a rival | at its Hello | no Welcome; shown |
//! | a foreign commit of an epoch that is known to be lost (3) | at its Hello | only its tasks: [`super::unknown`] |
//! | a commit of another cluster | at its Hello | nothing; shown |
//!
//! 1. One node is enough if the store knows fewer than three nodes, or no attempt.
//! 2. The store was restored while the controller ran.
//! 3. An epoch lower than that of the last generation. So a lost epoch causes one generation at most.
//!
//! A commit is foreign if this store never made it ([`crate::mark`]). The batch that sends a Welcome also commits the
//! generation, because the Welcome makes the node forget the evidence.

use std::collections::BTreeSet;

use crate::agent::io::Level;
use crate::controller::facts::Facts;
use crate::controller::interface::io::{Record, SessionId};
use crate::controller::machine::Machine;
use crate::ids::{Epoch, HostName};
use crate::mark::{Commit, Place};
use crate::message::Hello;
use crate::{defect, utc};

/// Number of known nodes below which the evidence of one host is enough for a new generation.
const FEW_NODES: usize = 3;

impl Machine {
    /// Judges the evidence at a start of the controller: the stamp in the store, and the anchor file beside the store.
    /// Begins a generation if either shows that the store is behind.
    pub(crate) fn judge_store(&mut self, stamp: Option<u64>, anchor: Option<Commit>) {
        let anchor = anchor.filter(|anchor| self.history.place(*anchor) == Place::Foreign);
        let anchor = if defect!(AnchorIgnored) { None } else { anchor };
        let stamp = if defect!(StampIgnored) { None } else { stamp };
        let why = match (stamp, anchor) {
            (Some(at_ms), _) => {
                format!("the store is a copy that was made at {}", utc::second(at_ms))
            }
            (None, Some(anchor)) => format!(
                "the store is older than the one that the controller last had here: it ends with commit {}, that one \
                 with commit {} of epoch {}",
                self.history.last, anchor.number, anchor.epoch.number
            ),
            (None, None) => return,
        };
        self.begin_generation(why);
    }

    /// Decides whether the newest commit in a node's Hello shows that the store is behind, and begins a generation if
    /// the evidence is enough. Returns `false` if the session must get no Welcome.
    pub(crate) fn judge_hello(&mut self, id: SessionId, hello: &Hello) -> bool {
        if defect!(MarksIgnored) {
            return true;
        }
        let Some(mark) = hello.newest else { return true };
        if mark.cluster != self.cx.settings.cluster {
            let text = "this node has accepted a controller of another cluster before";
            self.cx.note_of_node(Level::Warning, &hello.host, text);
            return true;
        }
        let commit = mark.commit;
        if self.history.place(commit) == Place::Past || self.facts().is_known_lost(commit) {
            self.recovery.suspects.remove(&hello.host);
            return true;
        }
        let is_rival = commit.epoch.number >= self.epoch.number && commit.epoch != self.epoch;
        let is_rival = if defect!(RivalIsEvidence) { false } else { is_rival };
        self.recovery.suspects.insert(hello.host.clone(), commit);
        let is_new = self.jobs.table.count_attempts() == 0;
        let enough = self.recovery.suspects.len() > 1 || self.nodes.len() < FEW_NODES || is_new;
        let enough = if defect!(LoneMarkBelieved) { true } else { enough };
        if is_rival || !enough {
            let what = format!(
                "this node knows a state that this controller's store does not have (commit {} of epoch {})",
                commit.number, commit.epoch.number
            );
            let why = if is_rival {
                format!("{what}; if no other controller runs, take over with perilog controller recover --take-over")
            } else {
                format!(
                    "{what}, and no other node reports one; if the store was restored and no other controller runs, \
                     take over with perilog controller recover --take-over"
                )
            };
            self.nodes.turn_away(id, &hello.host, &why, &mut self.cx);
            if let Some(node) = self.nodes.get_mut(&hello.host) {
                node.note = Some(why);
            }
            return false;
        }
        let hosts: Vec<&str> = self.recovery.suspects.keys().map(HostName::as_str).take(4).collect();
        let why = format!(
            "nodes report a newer state than this store has, as after a restore of a backup: {} (commit {} of epoch \
             {})",
            hosts.join(", "),
            commit.number,
            commit.epoch.number
        );
        // This epoch will use the numbers of its lost commits again, and the marks of both commits would look alike.
        let is_restored = commit.epoch == self.epoch;
        let is_restored = if defect!(RestoredContinues) { false } else { is_restored };
        if is_restored {
            self.raise_epoch(self.epoch.number);
        }
        self.begin_generation(why);
        !is_restored
    }

    /// Begins a new epoch of the controller, higher than `above`. Ends every session, so that the agents connect again
    /// under the new epoch.
    pub(crate) fn raise_epoch(&mut self, above: u64) {
        self.epoch.number = self.epoch.number.max(above).saturating_add(1);
        self.cx.outbox.begin(self.epoch.number, self.cx.now.wall_ms);
        self.history.begin(self.epoch, self.history.last + 1);
        self.cx.records.push(Record::Epoch(self.epoch));
        let sessions: BTreeSet<SessionId> = self.nodes.sessions.keys().copied().collect();
        for id in sessions {
            self.nodes.end_session(id, "the controller began a new epoch; the agents reconnect", &mut self.cx);
        }
    }
}

impl Facts<'_> {
    /// Returns the time (ms since 1970) before which jobs may have begun that the store lacks: that of the last
    /// generation. `None`: there was none, or retention would have forgotten these jobs by now.
    pub(crate) fn may_lack_jobs_before(&self) -> Option<u64> {
        let since_ms = self.recovery.row.as_ref()?.since_ms;
        let past_ms = self.cx.now.wall_ms.saturating_sub(since_ms);
        (past_ms < self.cx.settings.retention_ms).then_some(since_ms)
    }

    /// Returns `true` if the commit is of a lower epoch than the one that began the last generation. Such an epoch is
    /// lost for good.
    pub(super) fn is_known_lost(&self, commit: Commit) -> bool {
        self.recovery.row.as_ref().is_some_and(|row| commit.epoch.number < row.epoch)
    }

    /// Returns the highest epoch number that agents have reported, in a refusal of this controller or in a suspect's
    /// newest commit; 0 if no agent has reported an epoch. Leaves out what no take-over may reach: the other agents
    /// would not accept it.
    pub(crate) fn highest_reported(&self) -> u64 {
        let seen = self.highest_seen.as_ref().map(|(_, epoch)| epoch.number);
        let suspects = self.recovery.suspects.values().map(|commit| commit.epoch.number);
        let most = Epoch::highest_reachable(self.0.cx.now.wall_ms);
        suspects.chain(seen).filter(|number| *number <= most).max().unwrap_or(0)
    }
}
