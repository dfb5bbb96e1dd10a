//! Operators' decisions in a recovery (`perilog controller recover`): decides the consequences for attempts, orphans
//! and hosts.

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::io::Level;
use crate::controller::facts::Facts;
use crate::controller::io::{ActionRow, Confirm, Passing, Refusal, Reply};
use crate::controller::job::attempt::JobAttempt;
use crate::controller::job::layout::Layout;
use crate::controller::machine::Machine;
use crate::hostlist::HostList;
use crate::ids::{ActionId, ActionName, Attempt, Epoch, HostName, JobId, TaskId};
use crate::idset::IdSet;
use crate::job::{Part, Terms};

impl Facts<'_> {
    /// Returns the highest epoch number that agents have reported, in a refusal of this controller or in a suspect's
    /// newest commit; 0 if no agent has reported an epoch. Leaves out what no take-over may reach: the other agents
    /// would not obey.
    pub(crate) fn highest_reported(&self) -> u64 {
        let seen = self.highest_seen.as_ref().map(|(_, epoch)| epoch.number);
        let suspects = self.recovery.suspects.values().map(|commit| commit.epoch.number);
        let most = Epoch::highest_reachable(self.0.cx.now.wall_ms);
        suspects.chain(seen).filter(|number| *number <= most).max().unwrap_or(0)
    }
}

impl Machine {
    /// Applies an operator's statement to one attempt, or to all attempts that wait for a statement. Returns the number
    /// of attempts.
    ///
    /// # Errors
    /// * Nothing that the request names waits for a statement.
    /// * The request names a job but no attempt, and several attempts of the job wait.
    /// * The statement is `Running`, and the store knows none of the attempts.
    pub(crate) fn confirm(
        &mut self,
        job: Option<&JobId>,
        attempt: Option<Attempt>,
        word: Confirm,
        uid: u32,
    ) -> Result<Reply, Refusal> {
        let is_meant = |of: &JobId, number: Attempt| {
            job.is_none_or(|job| job == of) && attempt.is_none_or(|attempt| attempt == number)
        };
        // If the operator names the job, the statement also counts where an edge could still decide: the edge may never
        // come back.
        let waits = |attempt: &JobAttempt| attempt.waits_for_a_word() || job.is_some() && attempt.has_disowned();
        let waiting = self.jobs.attempts().filter(|(_, _, attempt)| waits(attempt));
        let mut waiting: BTreeSet<(JobId, Attempt)> = waiting.map(|(job, number, _)| (job.clone(), number)).collect();
        waiting.extend(self.facts().orphans().map(|(_, _, orphan)| (orphan.job.clone(), orphan.attempt)));
        waiting.retain(|(of, number)| is_meant(of, *number));
        if let Some(job) = job.filter(|_| waiting.len() > 1) {
            let numbers: Vec<String> = waiting.iter().map(|(_, number)| number.to_string()).collect();
            let text =
                format!("attempts {} of job {job} wait for a word each: name one (--attempt N)", numbers.join(", "));
            return Err(Refusal::Conflict(text));
        }
        // A job that is known only from orphans cannot go on: orphans show only some of the job's nodes.
        let is_known = |of: &(JobId, Attempt)| word != Confirm::Running || self.jobs.attempt(&of.0, of.1).is_some();
        let unknown = waiting.iter().find(|of| !is_known(of)).cloned();
        waiting.retain(is_known);
        if waiting.is_empty() {
            let text = match job {
                Some(job) if let Some((_, number)) = unknown => format!(
                    "this store does not know attempt {number} of job {job}: if it runs, name all its nodes: perilog \
                     job add {job} --attempt {number} --nodes HOSTS"
                ),
                Some(job) => format!("nothing of job {job} waits for a word: look with: perilog controller recover"),
                None => "nothing waits for a word".to_owned(),
            };
            return Err(Refusal::Conflict(text));
        }
        let named = job.is_some();
        for (job, number) in &waiting {
            let said = match word {
                Confirm::Over => "is over",
                Confirm::Running => "goes on",
                Confirm::Gone => "is over and has given its nodes back",
            };
            self.cx.note(Level::Info, Some(job), None, format!("uid {uid} says that attempt {number} {said}"));
            if word == Confirm::Gone {
                self.close_untold(job, *number, uid);
                continue;
            }
            // If the attempt is vouched for, the statement is only about its disowned ranks and its orphans.
            let is_vouched = self.jobs.attempt(job, *number).is_some_and(JobAttempt::is_vouched);
            let handed = self.adopt_orphans_of(job, *number, word);
            self.jobs.assert_attempt(job, *number, &mut self.cx);
            self.jobs.clean_by_hand(job, *number, named, &mut self.cx);
            match word {
                Confirm::Gone => {}
                Confirm::Over if is_vouched => {
                    drop(self.jobs.let_go(job, *number, &Part::of_ranks(handed), &mut self.cx))
                }
                Confirm::Over => {
                    let whole = self.jobs.attempt(job, *number).map(JobAttempt::whole).unwrap_or_default();
                    self.jobs.let_go(job, *number, &whole, &mut self.cx);
                }
                Confirm::Running => {
                    if let Some(attempt) = self.jobs.attempt_mut(job, *number).filter(|attempt| attempt.open) {
                        attempt.added = true;
                        self.cx.attempt_changed(job, *number);
                    }
                    self.jobs.let_go(job, *number, &Part::of_ranks(handed), &mut self.cx);
                }
            }
            let attempt = self.jobs.attempt(job, *number);
            for action in attempt.into_iter().flat_map(|attempt| self.jobs.of(attempt)) {
                self.jobs.ready(action.row.id, action.row.ranks.clone(), &mut self.cx);
            }
        }
        Ok(Reply::Reached { tasks: waiting.len() as u64 })
    }

    /// Adopts the orphans of an attempt, each on its rank. Adds the attempt first if the store does not know the
    /// attempt. Gives up the others, for example those that contradict the store: a running orphan gets a SIGTERM, and
    /// the controller acknowledges its end. Returns the ranks of the orphans that are after-actions: a lost life had
    /// handed these ranks over.
    fn adopt_orphans_of(&mut self, job: &JobId, number: Attempt, word: Confirm) -> IdSet {
        let of: Vec<(HostName, TaskId, ActionName, Option<u32>, bool)> = self
            .facts()
            .orphans()
            .filter(|(_, _, orphan)| orphan.job == *job && orphan.attempt == number)
            .map(|(host, task, o)| (host.clone(), task, o.action.clone(), o.userid, o.is_unclaimed()))
            .collect();
        if of.is_empty() {
            return IdSet::new();
        }
        if self.jobs.attempt(job, number).is_none() {
            let by_rank: BTreeMap<u32, &HostName> = of.iter().map(|(host, task, ..)| (task.rank.0, host)).collect();
            let hosts = HostList::from_names(by_rank.values().map(|host| host.as_str())).unwrap_or_default();
            let userid = of.iter().find_map(|(.., userid, _)| *userid);
            let is_newer = self.jobs.get(job).and_then(|entry| entry.last_attempt()).is_none_or(|last| last < number);
            if let Ok(layout) = Layout::new(by_rank.keys().copied().collect(), hosts)
                && is_newer
            {
                let attempt = JobAttempt::new(layout, userid, Terms::default(), true, self.cx.now.wall_ms);
                self.jobs.open_attempt(job, number, JobAttempt { recovered: true, ..attempt }, &mut self.cx);
            }
        }
        let mut handed = IdSet::new();
        let mut setup: BTreeMap<(ActionId, ActionName), IdSet> = BTreeMap::new();
        for (host, task, name, _, is_unclaimed) in of {
            let id = ActionId::of(self.cx.settings.cluster, job, number, &name);
            let fits = self.jobs.attempt(job, number).is_some_and(|attempt| {
                let holds = attempt.hold.ranks.contains(task.rank.0);
                attempt.layout.host(task.rank).as_ref() == Some(&host) && holds && id == task.action
            });
            let follows = self.cx.settings.after.contains(&name);
            let is_open = self.jobs.action(id).is_none_or(|action| action.row.verdict.is_none());
            let is_stale = is_unclaimed && word == Confirm::Over;
            if fits && follows && is_open {
                handed.insert(task.rank.0);
            } else if fits && !follows && !self.jobs.actions.contains_key(&id) && !is_stale {
                setup.entry((id, name)).or_default().insert(task.rank.0);
            } else {
                self.nodes.give_up_orphan(&host, task, &mut self.cx);
            }
        }
        for ((id, name), ranks) in setup {
            let userid = self.jobs.attempt(job, number).and_then(|attempt| attempt.userid);
            let mut row = ActionRow::new(id, job.clone(), number, name.clone(), ranks.clone(), self.cx.now.wall_ms);
            row.timeout_ms = self.cx.settings.timeouts.get(&name).copied();
            (row.userid, row.waiting, row.accepted) = (userid, IdSet::new(), ranks.clone());
            self.jobs.begin(row, &mut self.cx);
        }
        handed
    }

    /// Forgets what a host's agent has reported and the store does not know. That is the host's orphans, tombstones,
    /// suspect commit and earlier boots, the number of its last session, and the epoch for which the agent refused this
    /// controller. Ends the session; the agent then connects and reports again.
    pub(crate) fn forget_told(&mut self, host: &HostName, uid: u32) -> Result<Reply, Refusal> {
        let was_suspect = self.recovery.suspects.remove(host).is_some();
        self.highest_seen.take_if(|(of, _)| of == host);
        let Some(node) = self.nodes.get_mut(host) else {
            let meant = self.nodes.did_you_mean(host.as_str());
            let text = format!("no node {host} has ever said hello to this controller{meant}");
            let unknown = || Refusal::NoSuchNode(text);
            return was_suspect.then_some(Reply::Reached { tasks: 0 }).ok_or_else(unknown);
        };
        let orphans = std::mem::take(&mut node.unsettled.orphans);
        let tombstones = std::mem::take(&mut node.unsettled.tombstones);
        (node.link, node.note) = (None, None);
        node.over.clear();
        if let Some(session) = node.session {
            self.nodes.end_session(session, "an operator had the controller forget what this host told", &mut self.cx);
        }
        self.nodes.orphan_hosts.remove(host);
        self.drains.lift_passing(host, &Passing::Orphan, &mut self.cx);
        self.jobs.reordered(&mut self.cx);
        let tasks = (orphans.len() + tombstones.len()) as u64;
        let text =
            format!("uid {uid} had the controller forget what it told: {tasks} tasks that the store does not know");
        self.cx.note(Level::Warning, None, Some(host), text);
        Ok(Reply::Reached { tasks })
    }
}
