//! Drain: decides which reasons a host's drain has, when it is in force, and when it is lifted. A drain keeps new jobs
//! from a host at fault, for a reason on which an operator can act. A drain keeps its first reason, and beside it the
//! newest later reason.
//!
//! ```text
//!   at fault, or manual --> notice to the hook --confirmed--> in force --undrain--> notice --confirmed--> gone
//! ```
//! Without a drain hook, the list of drains is the controller's own, and a drain is in force at once.
//!
//! A later fault of a drained host becomes a second reason beside the first. The hook gets a new notice and must
//! confirm it, because an operator may have undrained the node in the resource manager alone.
//!
//! A reboot ends a stuck script. With `reboot-cleans`, the reboot also lifts the drain for the script, once the node
//! has said Hello and no script lives on the node. A drain with another reason stays, and so does a drain that an
//! operator asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use crate::agent::io::Level;
use crate::controller::interface::io::{Again, DrainRow, Effect, ListedDrain, Now, Passing, Record};
use crate::controller::state::context::Context;
use crate::controller::state::node::Node;
use crate::defect;
use crate::hostlist::HostList;
use crate::ids::{Attempt, HostName, JobId, Rank};
use crate::job::Part;

/// Longest reason, in characters, because `flux resource drain` and `scontrol` show one line.
pub(crate) const MAX_REASON: usize = 200;

/// Kind of fault for which a host is drained. The kind decides whether a reboot lifts the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A script is stuck past its limit, in the boot with this number; `None`: the node is unknown.
    Stuck(Option<u32>),
    /// Recovery drains the host for the time of a cause, for example an unknown task ([`Passing`]). The drain is lifted
    /// when the cause has ended, unless it has got another reason.
    Passing,
    /// A task was lost because its node rebooted or was away. If the host is drained already because of a stuck script,
    /// a reboot may still lift that drain.
    Away,
    Other,
}

impl Fault {
    const fn stuck(self) -> Option<u32> {
        match self {
            Self::Stuck(boot) => boot,
            Self::Passing | Self::Away | Self::Other => None,
        }
    }
}

/// Reason for which a host is to be drained; `by`: the operator who asked for it, `None`: the controller.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) reason: String,
    pub(crate) by: Option<u32>,
    pub(crate) fault: Fault,
}

/// Effect of a call to [`Drains::drain`] on the host's drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainChange {
    /// The host was not drained, and has a new drain now.
    New,
    /// The host was drained already, and the drain has a later reason now.
    ReasonAdded,
    /// The host was drained already, and the drain got no new reason.
    Unchanged,
}

/// All drains, and the ranks that wait for a drain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drains {
    by_host: BTreeMap<HostName, DrainRow>,
    /// Hosts whose drain, or its lift, the drain hook has not carried out ([`DrainRow::is_pending`]).
    pending: BTreeSet<HostName>,
    /// Number of changes since this controller started: two equal numbers mean that nothing has changed in between.
    revision: u64,
    /// Ranks without a hold that are released once the drain of their host is in force.
    pub(crate) waiting: BTreeMap<HostName, BTreeSet<(JobId, Attempt, Rank)>>,
    /// Key: a host for which the drain hook failed to carry out a notice. Value: the time of the hook's first failure
    /// (ms since 1970), and the reason of its last failure. Not stored: a restarted controller sends each notice again.
    pub(crate) failed: BTreeMap<HostName, (u64, String)>,
    /// `true` if a drain hook is configured.
    pub(crate) hook: bool,
}

impl Deref for Drains {
    type Target = BTreeMap<HostName, DrainRow>;

    fn deref(&self) -> &Self::Target {
        &self.by_host
    }
}

impl Drains {
    pub(crate) fn of(rows: Vec<DrainRow>, hook: bool) -> Self {
        let pending = rows.iter().filter(|drain| drain.is_pending()).map(|drain| drain.host.clone()).collect();
        let by_host = rows.into_iter().map(|drain| (drain.host.clone(), drain)).collect();
        Self { by_host, pending, revision: 0, waiting: BTreeMap::new(), failed: BTreeMap::new(), hook }
    }

    /// Returns the drains and lifts that the drain hook has not carried out. Costs nothing for any other drain: a
    /// cluster may have drained hosts for months.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &DrainRow> {
        self.pending.iter().filter_map(|host| self.by_host.get(host))
    }

    /// Returns the number of changes since this controller started.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns `true` if the host's drain is in force.
    pub(crate) fn is_drained(&self, host: &HostName) -> bool {
        self.by_host.get(host).is_some_and(|drain| drain.confirmed && !drain.lifted)
    }

    /// Returns `true` if the host has a drain that is not lifted, in force or not.
    pub(crate) fn is_drained_or_draining(&self, host: &HostName) -> bool {
        self.by_host.get(host).is_some_and(|drain| !drain.lifted)
    }

    /// Returns `true` if the host has a drain that is not in force yet.
    pub(crate) fn is_draining(&self, host: &str) -> bool {
        self.by_host.get(host).is_some_and(|drain| !drain.confirmed && !drain.lifted)
    }

    /// Drains a host. If the host is drained already, its drain may get the reason as a later reason.
    pub(crate) fn drain(&mut self, host: &HostName, cause: Cause, cx: &mut Context) -> DrainChange {
        self.drain_at(host, cause, cx.now.wall_ms, cx)
    }

    /// Drains a host as [`Self::drain`] does, for a request of the time `at_ms` (milliseconds since 1970).
    pub(crate) fn drain_at(&mut self, host: &HostName, cause: Cause, at_ms: u64, cx: &mut Context) -> DrainChange {
        let Cause { reason, by, fault } = cause;
        let standing = self.by_host.get(host).filter(|drain| !drain.lifted).cloned();
        let standing = if defect!(DrainOverwritten) { None } else { standing };
        if let Some(drain) = standing {
            return self.drain_again(drain, Again { at_ms, reason, by }, fault, cx);
        }
        let stuck = fault.stuck();
        // A drain that is lifted, without confirmation of the lift, makes room for the new one. Time and number of the
        // new one must be higher.
        let before =
            self.by_host.get(host).map(|drain| (drain.since_ms.saturating_add(1), drain.notice_id.saturating_add(1)));
        let (earliest_ms, notice_id) = before.unwrap_or_default();
        let since_ms = at_ms.max(earliest_ms);
        let confirmed = !self.hook;
        self.failed.remove(host);
        let row = DrainRow::new(host.clone(), reason, by, since_ms);
        self.put(DrainRow { confirmed, stuck, notice_id: since_ms.max(notice_id), ..row }, cx);
        if confirmed {
            self.in_force(host, cx);
        }
        DrainChange::New
    }

    /// Adds a later reason to a drain that exists. Ignores a reason of recovery ([`Fault::Passing`]). Also adds no
    /// reason that equals the drain's newest one, unless an operator gives it or the drain is doubtful.
    fn drain_again(&mut self, drain: DrainRow, again: Again, fault: Fault, cx: &mut Context) -> DrainChange {
        let is_news = again.by.is_some() || drain.doubtful || drain.newest().reason != again.reason;
        let stuck = match fault {
            Fault::Passing => return DrainChange::Unchanged,
            Fault::Other => None,
            Fault::Stuck(boot) if is_news && drain.stuck.is_some() => boot,
            Fault::Stuck(_) | Fault::Away => drain.stuck,
        };
        if !is_news {
            if stuck != drain.stuck {
                self.put(DrainRow { stuck, ..drain }, cx);
            }
            return DrainChange::Unchanged;
        }
        let asked_ms = if drain.confirmed { again.at_ms } else { drain.asked_ms };
        let confirmed = if defect!(DrainNotifiedOnce) { drain.confirmed } else { drain.confirmed && !self.hook };
        let row = DrainRow {
            stuck,
            notice_id: again.at_ms.max(drain.notice_id.saturating_add(1)),
            asked_ms,
            again: Some(again),
            doubtful: false,
            passing: None,
            confirmed,
            // Without a hook now: a hook that the site configures later must get a notice of this reason.
            notified: drain.notified && self.hook,
            ..drain
        };
        self.put(row, cx);
        DrainChange::ReasonAdded
    }

    fn put(&mut self, row: DrainRow, cx: &mut Context) {
        cx.records.push(Record::Drain(row.clone()));
        self.revision += 1;
        match row.is_pending() {
            true => self.pending.insert(row.host.clone()),
            false => self.pending.remove(&row.host),
        };
        self.by_host.insert(row.host.clone(), row);
        if self.hook {
            cx.effects.push(Effect::OutboxGrew);
        }
    }

    /// Drains a host for recovery, for the cause `passing`. If the host is drained already, nothing changes.
    pub(crate) fn drain_passing(&mut self, host: &HostName, reason: String, passing: Passing, cx: &mut Context) {
        let cause = Cause { reason: reason.clone(), by: None, fault: Fault::Passing };
        if self.drain(host, cause, cx) == DrainChange::New
            && let Some(drain) = self.by_host.get(host).cloned()
        {
            self.put(DrainRow { passing: Some(passing), ..drain }, cx);
            cx.note_host(Level::Warning, host, format!("drained: {reason}"));
        }
    }

    /// Lifts the drain of a host if recovery drained the host for the cause `passing` and no other reason came later.
    pub(crate) fn lift_passing(&mut self, host: &HostName, passing: &Passing, cx: &mut Context) {
        let drain = self.by_host.get(host).filter(|drain| drain.passing.as_ref() == Some(passing) && !drain.lifted);
        if let Some(text) = drain.map(|drain| format!("undrained: the reason for the drain is gone ({})", drain.reason))
        {
            self.lift(host, cx);
            cx.note_host(Level::Info, host, text);
        }
    }

    /// Marks the drains of a restored store as doubtful, if there is a drain hook. The hook gets no notice of a
    /// doubtful drain before the grace ends, because an operator may have lifted the drain after the backup. A lift
    /// that the hook has not confirmed is dropped, because the node may have failed again after the backup.
    pub(crate) fn doubt(&mut self, cx: &mut Context) {
        if defect!(DrainsUndoubted) {
            return;
        }
        if !self.hook {
            return;
        }
        for drain in self.by_host.values().cloned().collect::<Vec<_>>() {
            if defect!(DoubtedUndrainNotified) {
                self.put(DrainRow { confirmed: false, doubtful: true, ..drain }, cx);
                continue;
            }
            if drain.lifted {
                let text = "an undrain of this host was under way when the store was copied, and is dropped; to \
                            undrain it: perilog undrain NODES";
                cx.note_host(Level::Warning, &drain.host, text.to_owned());
            }
            self.put(DrainRow { confirmed: false, doubtful: true, lifted: false, ..drain }, cx);
        }
    }

    /// Ends the doubt about drains at the end of the grace, and sends the drain hook a notice of each of these
    /// drains.
    pub(crate) fn renotify_doubtful(&mut self, cx: &mut Context) {
        for drain in self.by_host.values().filter(|drain| drain.doubtful).cloned().collect::<Vec<_>>() {
            let notice_id = drain.notice_id.saturating_add(1);
            self.put(DrainRow { doubtful: false, notice_id, ..drain }, cx);
        }
    }

    /// Sends the drain hook a notice of every drain in force once more, because the controller has moved to another
    /// host: a command that the other host began may still have undone the drain after it was confirmed.
    pub(crate) fn renotify_in_force(&mut self, cx: &mut Context) {
        if defect!(MovedDrainsUnsent) {
            return;
        }
        let is_in_force = |drain: &&DrainRow| self.hook && drain.confirmed && drain.notified && !drain.lifted;
        let in_force: Vec<DrainRow> = self.by_host.values().filter(is_in_force).cloned().collect();
        if !in_force.is_empty() {
            let hosts = HostList::sorted(in_force.iter().map(|d| d.host.as_str()));
            let text = format!("the controller moved here, and sends the drain hook the drains of {hosts} again");
            cx.note(Level::Info, None, None, text);
        }
        for drain in in_force {
            self.put(DrainRow { confirmed: false, notice_id: drain.notice_id.saturating_add(1), ..drain }, cx);
        }
    }

    /// Applies one drain from the resource manager's list. If the store has a drain of the host that is doubtful since
    /// a generation began, that drain counts as confirmed again. If the store has no drain of the host, adds the listed
    /// one, but only if it was made for perilog. Otherwise changes nothing.
    pub(crate) fn adopt(&mut self, listed: ListedDrain, cx: &mut Context) {
        match self.by_host.get(&listed.host).cloned() {
            Some(drain) if !drain.lifted && drain.doubtful => {
                self.put(DrainRow { doubtful: false, ..drain.clone() }, cx);
                // The drain is in force in the resource manager: its notice counts as carried out.
                self.hook_done(&listed.host, drain.notice_id, false, cx);
            }
            None if listed.is_ours() => {
                let row = DrainRow::new(listed.host.clone(), listed.reason, None, cx.now.wall_ms);
                self.put(DrainRow { confirmed: true, notified: true, ..row }, cx);
            }
            Some(_) | None => {}
        }
    }

    /// Ends the wait for a host's drain, because the drain is now in force or lifted. The end of the batch releases the
    /// ranks, and settles the resolutions, that waited for the drain.
    pub(crate) fn in_force(&mut self, host: &HostName, cx: &mut Context) {
        cx.in_force.insert(host.clone());
        for (job, attempt, rank) in self.waiting.remove(host).into_iter().flatten() {
            cx.hold_dropped(&job, attempt, &Part::of_ranks([rank.0].into_iter().collect()));
        }
    }

    /// Takes over the setting `hook`: whether a drain hook is configured. Without a hook, every drain comes into force,
    /// and every lift is done. With a hook, the hook gets a notice of each drain in force that no hook has carried out
    /// yet. Until the hook confirms the notice, such a drain is not in force.
    pub(crate) fn set_hook(&mut self, hook: bool, cx: &mut Context) {
        self.hook = hook;
        let (waits, unnotified) =
            (|d: &DrainRow| d.lifted || !d.confirmed, |d: &DrainRow| d.confirmed && !d.notified && !d.lifted);
        let affected = self.by_host.values().filter(|drain| if hook { unnotified(drain) } else { waits(drain) });
        for drain in affected.cloned().collect::<Vec<_>>() {
            if hook {
                let notice_id = drain.notice_id.saturating_add(1);
                self.put(DrainRow { confirmed: false, notice_id, ..drain }, cx);
            } else {
                self.hook_done(&drain.host, drain.notice_id, drain.lifted, cx);
            }
        }
    }

    /// Lifts the drain of a host, and releases the ranks that waited for it. With a drain hook, the drain is gone once
    /// the hook has confirmed the lift.
    pub(crate) fn lift(&mut self, host: &HostName, cx: &mut Context) {
        self.in_force(host, cx);
        // A recorded failure of the hook was about the drain, not about this lift.
        self.failed.remove(host);
        match self.by_host.get(host).cloned() {
            Some(drain) if self.hook => {
                self.put(DrainRow { lifted: true, confirmed: false, ..drain }, cx);
            }
            _ => self.remove(host, cx),
        }
    }

    /// Lifts the drain of a node that has rebooted since its script was stuck. The node must be connected, no script
    /// may live on it, and the drain may have no other reason than stuck scripts and tasks lost by an absence or
    /// reboot.
    pub(crate) fn reboot_cleans(&mut self, node: &Node, cx: &mut Context) {
        let host = &node.row.host;
        let Some(drain) = self.by_host.get(host).filter(|drain| !drain.lifted) else { return };
        let booted = drain.stuck.is_some_and(|boot| boot != node.row.boot_number);
        let booted = if defect!(AnyDrainIsCleaned) { true } else { booted };
        if booted && node.session.is_some() && node.live.is_empty() {
            let text = format!("undrained: the node has rebooted, and no script runs there ({})", drain.reason);
            self.lift(host, cx);
            cx.note_host(Level::Info, host, text);
        }
    }

    /// Removes a drain, without a notice to the drain hook.
    pub(crate) fn remove(&mut self, host: &HostName, cx: &mut Context) {
        self.revision += 1;
        self.by_host.remove(host);
        self.pending.remove(host);
        self.failed.remove(host);
        cx.records.push(Record::Undrained { host: host.clone() });
    }

    /// Records that the drain hook failed on a notice, which the controller sends again. A failure on an earlier notice
    /// changes nothing.
    pub(crate) fn hook_failed(&mut self, host: HostName, notice_id: u64, lifted: bool, why: String, now: Now) {
        let notified = |drain: &DrainRow| drain.notice_id == notice_id && drain.lifted == lifted && !drain.confirmed;
        if self.by_host.get(&host).is_some_and(notified) {
            self.failed.entry(host).or_insert_with(|| (now.wall_ms, String::new())).1 = why;
        }
    }

    /// Records that the drain hook has carried out a notice: the drain is in force, or gone if `lifted`. A confirmation
    /// of an earlier notice changes nothing.
    pub(crate) fn hook_done(&mut self, host: &HostName, notice_id: u64, lifted: bool, cx: &mut Context) {
        let known = self.by_host.get(host).cloned();
        let newest = known.as_ref().map_or(notice_id, |drain| drain.notice_id);
        let notice_id = if defect!(AnyNoticeConfirms) { newest } else { notice_id };
        match known {
            Some(drain) if drain.notice_id == notice_id && drain.lifted == lifted => {
                self.failed.remove(host);
                if lifted {
                    self.remove(host, cx);
                } else if !drain.confirmed {
                    let notified = self.hook;
                    self.put(DrainRow { confirmed: true, doubtful: false, notified, ..drain }, cx);
                    self.in_force(host, cx);
                }
            }
            _ => {}
        }
    }

    /// Removes the ranks of an attempt from those that wait for drains, because the controller forgets the attempt.
    pub(crate) fn forget(&mut self, job: &JobId, number: Attempt) {
        let others = |(of, attempt, _): &(JobId, Attempt, Rank)| of != job || *attempt != number;
        self.waiting.values_mut().for_each(|waiting| waiting.retain(others));
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }
}
