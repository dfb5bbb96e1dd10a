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

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::verdict::{blamed, last_line};
use crate::controller::facts::Facts;
use crate::controller::io::{Again, DrainRow, Effect, Now, Passing, Record, Refusal, Reply, Settings};
use crate::controller::machine::Machine;
use crate::defect;
use crate::duration::Span;
use crate::hostlist::HostList;
use crate::ids::{HostName, TaskId};
use crate::job::Part;
use crate::outcome::{Loss, Outcome};
use crate::task::Ended;

/// Longest reason, in characters: `flux resource drain` and `scontrol` show one line.
const MAX_REASON: usize = 200;
/// Shortest time (ms) in which an operator can read a reason and type `undrain`.
const UNSEEN_MS: u64 = 1_000;

/// Kind of fault behind a drain. The kind decides whether a reboot lifts the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A script was stuck past its limit.
    Stuck,
    /// Recovery needs the drain for a while: the drain ends with its cause.
    Passing,
    /// The node was away.
    Away,
    Other,
}

/// Change that a fault makes to the host's drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The host was not drained.
    First,
    /// The host was drained for another fault; the drain got a further reason.
    Again,
    Known,
}

/// Returns `true` if this outcome is the node's fault.
fn is_at_fault(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Cancelled { .. } => defect!(CancelDrains),
        Outcome::Ok | Outcome::Resolved { .. } => false,
        Outcome::Tolerable | Outcome::Failed { .. } => true,
        Outcome::Timeout { .. } | Outcome::Lost { .. } | Outcome::Refused { .. } => !defect!(OnlyFailuresDrain),
    }
}

impl Machine {
    /// Drains the host of a task if the end is the node's fault, or if no clean-up follows the end.
    pub(in crate::controller) fn drain_for(&mut self, task: TaskId, ended: &Ended, now: Now) {
        let Some(action) = self.jobs.action(task.action) else { return };
        let row = &action.row;
        // A cancelled after-action has not cleaned up.
        let unclean = matches!(ended.outcome, Outcome::Cancelled { .. }) && self.jobs.follows(action);
        // A node must configure every after-action, or no clean-up happens. For any other action that the node does not
        // configure, the node is not at fault.
        let unmeant = matches!(ended.outcome, Outcome::Refused { .. })
            && self.facts().is_unconfigured(task)
            && !self.jobs.follows(action);
        let at_fault = is_at_fault(&ended.outcome) && !unmeant || (unclean && !defect!(CancelledEpilogIsClean));
        let unfollowed = self.jobs.unfollowed(task, ended);
        if !at_fault && unfollowed.is_none() {
            return;
        }
        let step = blamed(ended);
        let script = step.map(|step| format!(" {}", step.script)).unwrap_or_default();
        let mut reason = format!("{}{script}: {}", row.name, ended.outcome);
        // Every other outcome names its status in its text.
        if let (Outcome::Tolerable, Some(status)) = (&ended.outcome, step.and_then(|step| step.status)) {
            reason.push_str(&format!(" ({status})"));
        }
        if let Some(elapsed) = ended.elapsed_ms {
            reason.push_str(&format!(" after {}", Span::from_millis(elapsed)));
        }
        if let Some(name) = unfollowed {
            reason.push_str(&format!(", and {name} had been cancelled"));
        }
        for check in ended.checks.iter().take(1) {
            reason.push_str(&format!(": {}: {}", check.check, check.message));
        }
        if ended.checks.is_empty()
            && let Some(line) = last_line(ended)
        {
            reason.push_str(&format!(": {line}"));
        }
        let suffix = format!(" (job {} attempt {})", row.job, row.attempt);
        let fault = match ended.outcome {
            // A reboot does not replace the missing clean-up.
            _ if unfollowed.is_some() => Fault::Other,
            Outcome::Timeout { .. } => Fault::Stuck,
            // An operator may have rebooted the node to end the script.
            Outcome::Lost { why: Loss::Rebooted | Loss::Offline | Loss::Unreachable } => Fault::Away,
            _ => Fault::Other,
        };
        self.drain_task(task, reason, &suffix, fault, now);
    }

    /// Drains the host of a live task that is stuck.
    pub(in crate::controller) fn drain_stuck(&mut self, task: TaskId, what: &str, now: Now) {
        self.drain_alive(task, what, Fault::Stuck, now);
    }

    /// Drains the host of a task that an operator resolves while the task may be alive.
    pub(in crate::controller) fn drain_given_up(&mut self, task: TaskId, what: &str, now: Now) {
        self.drain_alive(task, what, Fault::Other, now);
    }

    /// Drains the host of a rank on which a task ran and no after-action will clean up.
    pub(in crate::controller) fn drain_unclean(&mut self, task: TaskId, now: Now) {
        self.drain_alive(task, "had ended before this rank was known, and does not clean up there", Fault::Other, now);
    }

    fn drain_alive(&mut self, task: TaskId, what: &str, fault: Fault, now: Now) {
        let Some(row) = self.jobs.action(task.action).map(|action| &action.row) else { return };
        let (reason, suffix) = (format!("{}: {what}", row.name), format!(" (job {} attempt {})", row.job, row.attempt));
        self.drain_task(task, reason, &suffix, fault, now);
    }

    fn drain_task(&mut self, task: TaskId, reason: String, suffix: &str, fault: Fault, now: Now) {
        let Some(host) = self.jobs.host_of(task) else { return };
        let room = MAX_REASON.saturating_sub(suffix.chars().count());
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(room).collect();
        if self.drain_host(&host, format!("{reason}{suffix}"), None, fault, now) == Told::Known {
            return;
        }
        let Some(row) = self.jobs.action(task.action).map(|action| &action.row) else { return };
        let (job, drain) = (row.job.clone(), self.drains.get(&host));
        let newest = drain.map(|drain| drain.newest().reason).unwrap_or_default();
        let context = json!({"action": row.name, "attempt": row.attempt, "ranks": task.rank.0.to_string(),
            "hosts": host, "reason": newest});
        self.event(&job, now, "drain", context);
        self.batch.note(Level::Warning, Some(&job), Some(&host), format!("drained: {newest}"));
    }

    /// Drains a host. An existing drain keeps its reason.
    fn drain_host(&mut self, host: &HostName, reason: String, by: Option<u32>, fault: Fault, now: Now) -> Told {
        let boot_number = self.nodes.get(host).map(|node| node.row.boot_number);
        let standing = self.drains.get(host).filter(|drain| !drain.lifted && !defect!(DrainOverwritten)).cloned();
        if let Some(drain) = standing {
            return self.drain_again(drain, Again { at_ms: now.wall_ms, reason, by }, fault, boot_number);
        }
        let stuck = boot_number.filter(|_| fault == Fault::Stuck);
        // The earlier drain was lifted, but the hook has not confirmed the lift: time and number must grow.
        let before =
            self.drains.get(host).map(|drain| (drain.since_ms.saturating_add(1), drain.telling.saturating_add(1)));
        let (earliest_ms, telling) = before.unwrap_or_default();
        let since_ms = now.wall_ms.max(earliest_ms);
        let confirmed = !self.settings.drain_hook;
        self.drain_failed.remove(host);
        let row = DrainRow::new(host.clone(), reason, by, since_ms);
        self.put_drain(DrainRow { confirmed, stuck, telling: since_ms.max(telling), ..row });
        if confirmed {
            self.drain_in_force(host);
        }
        Told::First
    }

    /// Adds a fault to an existing drain.
    fn drain_again(&mut self, drain: DrainRow, again: Again, fault: Fault, boot_number: Option<u32>) -> Told {
        let is_news = again.by.is_some() || drain.unvouched || drain.newest().reason != again.reason;
        let stuck = match fault {
            Fault::Passing => return Told::Known,
            Fault::Other => None,
            Fault::Stuck if is_news && drain.stuck.is_some() => boot_number,
            Fault::Stuck | Fault::Away => drain.stuck,
        };
        if !is_news {
            if stuck != drain.stuck {
                self.put_drain(DrainRow { stuck, ..drain });
            }
            return Told::Known;
        }
        let hook = self.settings.drain_hook;
        let asked_ms = if drain.confirmed { again.at_ms } else { drain.asked_ms };
        self.put_drain(DrainRow {
            stuck,
            telling: again.at_ms.max(drain.telling.saturating_add(1)),
            asked_ms,
            again: Some(again),
            unvouched: false,
            passing: None,
            confirmed: drain.confirmed && (!hook || defect!(DrainToldOnce)),
            // A hook that is configured later must get a notice too.
            told: drain.told && hook,
            ..drain
        });
        Told::Again
    }

    pub(in crate::controller) fn put_drain(&mut self, row: DrainRow) {
        self.batch.records.push(Record::Drain(row.clone()));
        self.drains.insert(row.host.clone(), row);
        if self.settings.drain_hook {
            self.batch.effects.push(Effect::OutboxGrew);
        }
    }

    /// Drains a host for recovery; leaves an existing drain unchanged.
    pub(in crate::controller) fn drain_passing(&mut self, host: &HostName, reason: String, passing: Passing, now: Now) {
        if self.drain_host(host, reason.clone(), None, Fault::Passing, now) == Told::First
            && let Some(drain) = self.drains.get(host).cloned()
        {
            self.put_drain(DrainRow { passing: Some(passing), ..drain });
            self.batch.note(Level::Warning, None, Some(host), format!("drained: {reason}"));
        }
    }

    /// Lifts the drain of a host that recovery drained for this cause.
    pub(in crate::controller) fn lift_passing(&mut self, host: &HostName, passing: &Passing) {
        if self.drains.get(host).is_some_and(|drain| drain.passing.as_ref() == Some(passing) && !drain.lifted) {
            self.lift(host);
        }
    }

    /// Marks the drains of a restored store as unvouched. An operator may have lifted them after the backup, so the
    /// hook gets no notice before they are vouched for. An undrain that the store owes to the hook is dropped: the node
    /// may have failed again after the backup.
    pub(in crate::controller) fn doubt_drains(&mut self) {
        if !self.settings.drain_hook || defect!(DrainsUndoubted) {
            return;
        }
        for drain in self.drains.values().cloned().collect::<Vec<_>>() {
            if drain.lifted && !defect!(DoubtedUndrainTold) {
                let text = format!(
                    "its undrain was under way when the store was copied, and is dropped: perilog undrain {}",
                    drain.host
                );
                self.batch.note(Level::Warning, None, Some(&drain.host), text);
            }
            let lifted = drain.lifted && defect!(DoubtedUndrainTold);
            self.put_drain(DrainRow { confirmed: false, unvouched: true, lifted, ..drain });
        }
    }

    /// Sends the hook a notice of every drain that was still unvouched when the recovery ended.
    pub(in crate::controller) fn tell_doubted_drains(&mut self) {
        for drain in self.drains.values().filter(|drain| drain.unvouched).cloned().collect::<Vec<_>>() {
            let telling = drain.telling.saturating_add(1);
            self.put_drain(DrainRow { unvouched: false, telling, ..drain });
        }
    }

    /// Releases the ranks, and settles the resolutions, that waited for this drain.
    fn drain_in_force(&mut self, host: &HostName) {
        self.batch.in_force.insert(host.clone());
        for (job, attempt, rank) in self.undrained.remove(host).into_iter().flatten() {
            self.batch
                .let_go
                .entry((job, attempt))
                .or_default()
                .extend_with(&Part::of_ranks([rank.0].into_iter().collect()));
        }
    }

    /// Applies new settings. Without a hook no confirmation comes, so every waiting drain is in force and every waiting
    /// undrain is done. A new hook gets a notice of each drain; the drain is in force again once the hook has confirmed
    /// it.
    pub(in crate::controller) fn on_settings(&mut self, settings: Settings) {
        self.jobs.after.clone_from(&settings.after);
        self.settings = settings;
        if !self.settings.drain_hook {
            let waiting: Vec<DrainRow> = self.drains.values().filter(|d| d.lifted || !d.confirmed).cloned().collect();
            for drain in waiting {
                // The drain exists, so the confirmation cannot fail.
                let _ = self.drain_done(&drain.host, drain.telling, drain.lifted);
            }
        } else {
            let untold = |drain: &&DrainRow| drain.confirmed && !drain.told && !drain.lifted;
            let standing: Vec<DrainRow> = self.drains.values().filter(untold).cloned().collect();
            for drain in standing {
                let telling = drain.telling.saturating_add(1);
                self.put_drain(DrainRow { confirmed: false, telling, ..drain });
            }
        }
        let owed = self.outbox.owed();
        if !self.settings.release_hook && owed > 0 {
            let were = if owed == 1 { "release is" } else { "releases are" };
            let text = format!(
                "{owed} {were} owed to a release hook, and none is configured: configured again it is told; to drop them: perilog job forget JOB --releases --reason TEXT"
            );
            self.batch.note(Level::Warning, None, None, text);
        }
    }

    pub(in crate::controller) fn drain(
        &mut self,
        hosts: &HostList,
        reason: &str,
        force: bool,
        uid: u32,
        now: Now,
    ) -> Result<Reply, Refusal> {
        if reason.trim().is_empty() {
            return Err(Refusal::Invalid("drain needs a reason".to_owned()));
        }
        let reason: String = reason.trim().chars().take(MAX_REASON).collect();
        let (list, hosts) = (hosts, names(hosts)?);
        let is_known = |host: &&HostName| self.nodes.contains_key(*host) || self.drains.contains_key(*host);
        let unknown = hosts.iter().filter(|host| !is_known(host)).map(HostName::as_str);
        let unknown = HostList::from_names(unknown).unwrap_or_default();
        if !unknown.is_empty() && !force {
            let text = format!(
                "no node {unknown} has ever said hello to this controller, and nobody was drained; to drain such hosts too: --force"
            );
            return Err(Refusal::NoSuchNode(text));
        }
        let mut count = 0;
        for host in hosts {
            count += u64::from(self.drain_host(&host, reason.clone(), Some(uid), Fault::Other, now) == Told::First);
        }
        self.batch.note(Level::Warning, None, None, format!("uid {uid} drained {list}: {reason}"));
        Ok(Reply::Reached { tasks: count })
    }

    /// Lifts drains. `forget` deletes each drain without the drain hook, for example of a host that the resource
    /// manager does not know.
    pub(in crate::controller) fn undrain(
        &mut self,
        hosts: &HostList,
        forget: bool,
        uid: u32,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let (list, hosts) = (hosts, names(hosts)?);
        for host in &hosts {
            match self.drains.get(host) {
                None => return Err(Refusal::Conflict(format!("{host} is not drained"))),
                Some(drain) if drain.lifted && !forget => {
                    let text = format!(
                        "the drain of {host} is lifted, and the drain hook has not carried that out; to drop it without the hook: --forget"
                    );
                    return Err(Refusal::Conflict(text));
                }
                Some(drain) => {
                    // The resource manager already shows the faults of which the hook or the edge has told it.
                    let is_told = drain.confirmed && (forget || self.settings.drain_hook);
                    if let Some(reason) = unseen(drain, now).filter(|_| !is_told) {
                        let text = format!(
                            "{host} was drained again within the last second, and nothing was lifted: {reason}; to lift that too, ask again"
                        );
                        return Err(Refusal::Conflict(text));
                    }
                }
            }
        }
        for host in &hosts {
            if forget {
                self.drain_in_force(host);
                self.undrained_host(host);
            } else {
                self.lift(host);
            }
        }
        let without = if forget { ", without the drain hook" } else { "" };
        self.batch.note(Level::Warning, None, None, format!("uid {uid} lifted the drain of {list}{without}"));
        Ok(Reply::Reached { tasks: hosts.len() as u64 })
    }

    fn lift(&mut self, host: &HostName) {
        self.drain_in_force(host);
        // An earlier failure of the hook concerned the drain, not the lift.
        self.drain_failed.remove(host);
        match self.drains.get(host).cloned() {
            Some(drain) if self.settings.drain_hook => {
                self.put_drain(DrainRow { lifted: true, confirmed: false, ..drain });
            }
            _ => self.undrained_host(host),
        }
    }

    /// Lifts the drain of a node with settled tasks, if a reboot has ended the drain's cause.
    pub(in crate::controller) fn reboot_cleans(&mut self, host: &HostName) {
        let Some((node, drain)) = self.nodes.get(host).zip(self.drains.get(host)) else { return };
        let booted = drain.stuck.is_some_and(|boot| boot != node.row.boot_number) || defect!(AnyDrainIsCleaned);
        let is_clean = node.session.is_some() && node.live.is_empty();
        if !(self.settings.reboot_cleans && booted && is_clean && !drain.lifted) || self.recovery.is_on() {
            return;
        }
        let text = format!("it booted, and no script lives there: its drain is lifted ({})", drain.reason);
        self.lift(host);
        self.batch.note(Level::Info, None, Some(host), text);
    }

    fn undrained_host(&mut self, host: &HostName) {
        self.drains.remove(host);
        self.drain_failed.remove(host);
        self.batch.records.push(Record::Undrained { host: host.clone() });
    }

    /// Records that the hook failed; the controller sends the notice again. Ignores answers to earlier notices.
    pub(in crate::controller) fn drain_failed(
        &mut self,
        host: HostName,
        telling: u64,
        lifted: bool,
        why: String,
        now: Now,
    ) {
        let told = |drain: &DrainRow| drain.telling == telling && drain.lifted == lifted && !drain.confirmed;
        if self.drains.get(&host).is_some_and(told) {
            self.drain_failed.entry(host).or_insert_with(|| (now.wall_ms, String::new())).1 = why;
        }
    }

    /// Records that the hook has carried out the notice. Ignores answers to earlier notices.
    pub(in crate::controller) fn drain_done(
        &mut self,
        host: &HostName,
        telling: u64,
        lifted: bool,
    ) -> Result<Reply, Refusal> {
        match self.drains.get(host).cloned() {
            Some(drain) if (drain.telling == telling || defect!(AnyTellingConfirms)) && drain.lifted == lifted => {
                self.drain_failed.remove(host);
                if lifted {
                    self.undrained_host(host);
                } else if !drain.confirmed {
                    let told = self.settings.drain_hook;
                    self.put_drain(DrainRow { confirmed: true, unvouched: false, told, ..drain });
                    self.drain_in_force(host);
                }
            }
            _ => {}
        }
        Ok(Reply::Done)
    }
}

impl Facts<'_> {
    /// Returns `true` if the host has a drain in force.
    pub(in crate::controller) fn is_drained(&self, host: &HostName) -> bool {
        self.drains.get(host).is_some_and(|drain| drain.confirmed && !drain.lifted)
    }

    pub(in crate::controller) fn is_drained_or_draining(&self, host: &HostName) -> bool {
        self.drains.get(host).is_some_and(|drain| !drain.lifted)
    }

    /// Returns `true` if the host has a drain that is not in force yet.
    pub(in crate::controller) fn is_draining(&self, host: &HostName) -> bool {
        self.drains.get(host).is_some_and(|drain| !drain.confirmed && !drain.lifted)
    }
}

/// Returns the latest fault of a drained host, if too recent for the operator who lifts the drain to have seen it.
fn unseen(drain: &DrainRow, now: Now) -> Option<&str> {
    let fault = drain.again.as_ref().filter(|again| again.by.is_none() && !drain.lifted)?;
    (now.wall_ms.abs_diff(fault.at_ms) < UNSEEN_MS).then_some(&fault.reason)
}

fn names(hosts: &HostList) -> Result<Vec<HostName>, Refusal> {
    hosts.iter().map(|host| HostName::new(host).map_err(|error| Refusal::Invalid(error.to_string()))).collect()
}
