//! Drain: keeps new jobs from a host at fault, for a reason that an operator can act on. The controller drains exactly
//! the hosts at fault, and never replaces an existing reason. A cancel by a user drains no host, except the cancel of
//! an after-action: the clean-up did not happen.
//!
//! ```text
//!   at fault, or by hand --> notice to the hook --confirmed--> in force --undrain--> notice --confirmed--> gone
//! ```
//! Without a hook, a drain is the controller's own list, and is in force at once.
//!
//! The store keeps a later fault of a drained host beside the first reason. The hook gets a new notice and must confirm
//! it: an operator may have undrained the node in the resource manager alone.
//!
//! A reboot ends a stuck script. With `reboot-cleans`, the reboot also lifts the script's drain, once the node has said
//! Hello and no script lives there. A drain with another fault stays, and so does a drain that an operator asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use crate::agent::io::Level;
use crate::controller::context::Context;
use crate::controller::io::{Again, DrainRow, Effect, ListedDrain, Now, Passing, Record};
use crate::controller::node::Node;
use crate::defect;
use crate::ids::{Attempt, HostName, JobId, Rank};
use crate::job::Part;

/// Longest reason, in characters: `flux resource drain` and `scontrol` show one line.
pub(crate) const MAX_REASON: usize = 200;

/// Kind of fault behind a drain. The kind decides whether a reboot lifts the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A script was stuck past its limit, in the boot of this number; `None`: the node is unknown.
    Stuck(Option<u32>),
    /// Recovery needs the drain for a while: the drain ends with its cause.
    Passing,
    /// The node was away.
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

/// Cause of a drain; `by`: the operator who asked for it.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) reason: String,
    pub(crate) by: Option<u32>,
    pub(crate) fault: Fault,
}

/// Change that a fault makes to the host's drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The host was not drained.
    First,
    /// The host was drained for another fault; the drain got a further reason.
    Again,
    Known,
}

/// The drained hosts, and what waits for them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drains {
    by_host: BTreeMap<HostName, DrainRow>,
    /// Ranks without a hold that wait for the drain of their host.
    pub(crate) waiting: BTreeMap<HostName, BTreeSet<(JobId, Attempt, Rank)>>,
    /// Drains whose notice the hook failed to carry out: since when, and the reason. Not stored: a restarted controller
    /// sends each notice again.
    pub(crate) failed: BTreeMap<HostName, (u64, String)>,
    /// A drain hook is configured: a drain is in force once the hook has confirmed it.
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
        let by_host = rows.into_iter().map(|drain| (drain.host.clone(), drain)).collect();
        Self { by_host, waiting: BTreeMap::new(), failed: BTreeMap::new(), hook }
    }

    /// Returns `true` if the host has a drain in force.
    pub(crate) fn is_drained(&self, host: &HostName) -> bool {
        self.by_host.get(host).is_some_and(|drain| drain.confirmed && !drain.lifted)
    }

    pub(crate) fn is_drained_or_draining(&self, host: &HostName) -> bool {
        self.by_host.get(host).is_some_and(|drain| !drain.lifted)
    }

    /// Returns `true` if the host has a drain that is not in force yet.
    pub(crate) fn is_draining(&self, host: &HostName) -> bool {
        self.by_host.get(host).is_some_and(|drain| !drain.confirmed && !drain.lifted)
    }

    /// Drains a host. An existing drain keeps its reason.
    pub(crate) fn drain(&mut self, host: &HostName, cause: Cause, cx: &mut Context) -> Told {
        let Cause { reason, by, fault } = cause;
        let standing = self.by_host.get(host).filter(|drain| !drain.lifted && !defect!(DrainOverwritten)).cloned();
        if let Some(drain) = standing {
            return self.drain_again(drain, Again { at_ms: cx.now.wall_ms, reason, by }, fault, cx);
        }
        let stuck = fault.stuck();
        // The earlier drain was lifted, but the hook has not confirmed the lift: time and number must grow.
        let before =
            self.by_host.get(host).map(|drain| (drain.since_ms.saturating_add(1), drain.telling.saturating_add(1)));
        let (earliest_ms, telling) = before.unwrap_or_default();
        let since_ms = cx.now.wall_ms.max(earliest_ms);
        let confirmed = !self.hook;
        self.failed.remove(host);
        let row = DrainRow::new(host.clone(), reason, by, since_ms);
        self.put(DrainRow { confirmed, stuck, telling: since_ms.max(telling), ..row }, cx);
        if confirmed {
            self.in_force(host, cx);
        }
        Told::First
    }

    /// Adds a fault to an existing drain.
    fn drain_again(&mut self, drain: DrainRow, again: Again, fault: Fault, cx: &mut Context) -> Told {
        let is_news = again.by.is_some() || drain.unvouched || drain.newest().reason != again.reason;
        let stuck = match fault {
            Fault::Passing => return Told::Known,
            Fault::Other => None,
            Fault::Stuck(boot) if is_news && drain.stuck.is_some() => boot,
            Fault::Stuck(_) | Fault::Away => drain.stuck,
        };
        if !is_news {
            if stuck != drain.stuck {
                self.put(DrainRow { stuck, ..drain }, cx);
            }
            return Told::Known;
        }
        let asked_ms = if drain.confirmed { again.at_ms } else { drain.asked_ms };
        let row = DrainRow {
            stuck,
            telling: again.at_ms.max(drain.telling.saturating_add(1)),
            asked_ms,
            again: Some(again),
            unvouched: false,
            passing: None,
            confirmed: drain.confirmed && (!self.hook || defect!(DrainToldOnce)),
            // A hook that is configured later must get a notice too.
            told: drain.told && self.hook,
            ..drain
        };
        self.put(row, cx);
        Told::Again
    }

    fn put(&mut self, row: DrainRow, cx: &mut Context) {
        cx.records.push(Record::Drain(row.clone()));
        self.by_host.insert(row.host.clone(), row);
        if self.hook {
            cx.effects.push(Effect::OutboxGrew);
        }
    }

    /// Drains a host for recovery; leaves an existing drain unchanged.
    pub(crate) fn drain_passing(&mut self, host: &HostName, reason: String, passing: Passing, cx: &mut Context) {
        let cause = Cause { reason: reason.clone(), by: None, fault: Fault::Passing };
        if self.drain(host, cause, cx) == Told::First
            && let Some(drain) = self.by_host.get(host).cloned()
        {
            self.put(DrainRow { passing: Some(passing), ..drain }, cx);
            cx.note(Level::Warning, None, Some(host), format!("drained: {reason}"));
        }
    }

    /// Lifts the drain of a host that recovery drained for this cause.
    pub(crate) fn lift_passing(&mut self, host: &HostName, passing: &Passing, cx: &mut Context) {
        if self.by_host.get(host).is_some_and(|drain| drain.passing.as_ref() == Some(passing) && !drain.lifted) {
            self.lift(host, cx);
        }
    }

    /// Marks the drains of a restored store as unvouched. An operator may have lifted them after the backup, so the
    /// hook gets no notice before they are vouched for. An undrain that the store owes to the hook is dropped: the node
    /// may have failed again after the backup.
    pub(crate) fn doubt(&mut self, cx: &mut Context) {
        if !self.hook || defect!(DrainsUndoubted) {
            return;
        }
        for drain in self.by_host.values().cloned().collect::<Vec<_>>() {
            if drain.lifted && !defect!(DoubtedUndrainTold) {
                let text = format!(
                    "its undrain was under way when the store was copied, and is dropped: perilog undrain {}",
                    drain.host
                );
                cx.note(Level::Warning, None, Some(&drain.host), text);
            }
            let lifted = drain.lifted && defect!(DoubtedUndrainTold);
            self.put(DrainRow { confirmed: false, unvouched: true, lifted, ..drain }, cx);
        }
    }

    /// Sends the hook a notice of every drain that was still unvouched when the recovery ended.
    pub(crate) fn tell_doubted(&mut self, cx: &mut Context) {
        for drain in self.by_host.values().filter(|drain| drain.unvouched).cloned().collect::<Vec<_>>() {
            let telling = drain.telling.saturating_add(1);
            self.put(DrainRow { unvouched: false, telling, ..drain }, cx);
        }
    }

    /// Adopts a drain that exists in the resource manager, made by perilog or by an operator.
    pub(crate) fn adopt(&mut self, listed: ListedDrain, cx: &mut Context) {
        match self.by_host.get(&listed.host).cloned() {
            Some(drain) if !drain.lifted && drain.unvouched => {
                self.put(DrainRow { unvouched: false, ..drain.clone() }, cx);
                // The drain exists in the resource manager, so the notice counts as carried out.
                self.hook_done(&listed.host, drain.telling, false, cx);
            }
            None if listed.ours => {
                let row = DrainRow::new(listed.host.clone(), listed.reason, None, cx.now.wall_ms);
                self.put(DrainRow { confirmed: true, told: true, ..row }, cx);
            }
            Some(_) | None => {}
        }
    }

    /// Releases the ranks, and settles the resolutions, that waited for this drain.
    pub(crate) fn in_force(&mut self, host: &HostName, cx: &mut Context) {
        cx.in_force.insert(host.clone());
        for (job, attempt, rank) in self.waiting.remove(host).into_iter().flatten() {
            cx.hold_dropped(&job, attempt, &Part::of_ranks([rank.0].into_iter().collect()));
        }
    }

    /// Applies the settings. Without a hook no confirmation comes, so every waiting drain is in force and every waiting
    /// undrain is done. A new hook gets a notice of each drain; the drain is in force again once the hook has confirmed
    /// it.
    pub(crate) fn set_hook(&mut self, hook: bool, cx: &mut Context) {
        self.hook = hook;
        let (waits, untold) =
            (|d: &DrainRow| d.lifted || !d.confirmed, |d: &DrainRow| d.confirmed && !d.told && !d.lifted);
        let affected = self.by_host.values().filter(|drain| if hook { untold(drain) } else { waits(drain) });
        for drain in affected.cloned().collect::<Vec<_>>() {
            if hook {
                let telling = drain.telling.saturating_add(1);
                self.put(DrainRow { confirmed: false, telling, ..drain }, cx);
            } else {
                self.hook_done(&drain.host, drain.telling, drain.lifted, cx);
            }
        }
    }

    pub(crate) fn lift(&mut self, host: &HostName, cx: &mut Context) {
        self.in_force(host, cx);
        // An earlier failure of the hook concerned the drain, not the lift.
        self.failed.remove(host);
        match self.by_host.get(host).cloned() {
            Some(drain) if self.hook => {
                self.put(DrainRow { lifted: true, confirmed: false, ..drain }, cx);
            }
            _ => self.remove(host, cx),
        }
    }

    /// Lifts the drain of a node with settled tasks, if a reboot has ended the drain's cause.
    pub(crate) fn reboot_cleans(&mut self, node: &Node, cx: &mut Context) {
        let host = &node.row.host;
        let Some(drain) = self.by_host.get(host).filter(|drain| !drain.lifted) else { return };
        let booted = drain.stuck.is_some_and(|boot| boot != node.row.boot_number) || defect!(AnyDrainIsCleaned);
        if booted && node.session.is_some() && node.live.is_empty() {
            let text = format!("it booted, and no script lives there: its drain is lifted ({})", drain.reason);
            self.lift(host, cx);
            cx.note(Level::Info, None, Some(host), text);
        }
    }

    pub(crate) fn remove(&mut self, host: &HostName, cx: &mut Context) {
        self.by_host.remove(host);
        self.failed.remove(host);
        cx.records.push(Record::Undrained { host: host.clone() });
    }

    /// Records that the hook failed; the controller sends the notice again. Ignores answers to earlier notices.
    pub(crate) fn hook_failed(&mut self, host: HostName, telling: u64, lifted: bool, why: String, now: Now) {
        let told = |drain: &DrainRow| drain.telling == telling && drain.lifted == lifted && !drain.confirmed;
        if self.by_host.get(&host).is_some_and(told) {
            self.failed.entry(host).or_insert_with(|| (now.wall_ms, String::new())).1 = why;
        }
    }

    /// Records that the hook has carried out the notice. Ignores answers to earlier notices.
    pub(crate) fn hook_done(&mut self, host: &HostName, telling: u64, lifted: bool, cx: &mut Context) {
        match self.by_host.get(host).cloned() {
            Some(drain) if (drain.telling == telling || defect!(AnyTellingConfirms)) && drain.lifted == lifted => {
                self.failed.remove(host);
                if lifted {
                    self.remove(host, cx);
                } else if !drain.confirmed {
                    let told = self.hook;
                    self.put(DrainRow { confirmed: true, unvouched: false, told, ..drain }, cx);
                    self.in_force(host, cx);
                }
            }
            _ => {}
        }
    }

    /// Forgets the ranks of an attempt that wait for drains.
    pub(crate) fn forget(&mut self, job: &JobId, number: Attempt) {
        let others = |(of, attempt, _): &(JobId, Attempt, Rank)| of != job || *attempt != number;
        self.waiting.values_mut().for_each(|waiting| waiting.retain(others));
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }
}
