//! Requests of operators and resource managers, to controllers and to nodes.

use std::collections::BTreeSet;

use perilog_core::agent::Input;
use perilog_core::agent::io::Exec;
use perilog_core::controller::Input as ControllerInput;
use perilog_core::controller::io::{AskWhich, JobAdd, Request, RunRequest, Which};
use perilog_core::message::Ask;
use perilog_core::{ActionId, ClusterId, Rank, TaskId};
use perilog_core::{HostList, IdSet, Targets, Terms, Tolerance};

use super::World;
use super::event::{AgentEvent, Event};
use super::site;
use crate::plan::Op;

/// Caller number for requests on a node's local socket whose reply no caller awaits, such as a cancel of a local task.
const CANCELS: u64 = u64::MAX;

impl World {
    /// Records, for the checks (`truth`), a request after which a controller may withdraw waiting tasks.
    fn may_withdraw(&mut self, op: &Op) {
        match op {
            Op::Run { job, attempt, action, .. } => {
                self.truth.asked_for_attempt(&site::job(*job), attempt.map(site::attempt));
                // Under some settings `sweep` is an after-action: then no setup action begins there after it.
                if action == "sweep" {
                    self.truth.asked_to_end(site::job(*job));
                }
            }
            // The service works for the newest attempt, or for the first.
            Op::Serve { job, .. } => self.truth.asked_for_attempt(&site::job(*job), None),
            Op::AddJob { job, attempt, keep, shrink, .. } => {
                self.truth.asked_for_attempt(&site::job(*job), attempt.map(site::attempt));
                if keep.is_some() || *shrink {
                    self.truth.asked_to_end(site::job(*job));
                }
            }
            Op::Cancel { job, .. } | Op::Resolve { job, .. } | Op::Finish { job, .. } | Op::CancelJob { job, .. } => {
                self.truth.asked_to_end(site::job(*job));
            }
            _ => {}
        }
    }

    pub(crate) fn operate(&mut self, op: Op) {
        if self.quiet {
            return;
        }
        self.log_line(|| format!("DO {op:?}"));
        self.may_withdraw(&op);
        match op {
            Op::Run { to, job, action, attempt, nodes } => {
                let job = site::job(job);
                let run = RunRequest {
                    env: site::offered(&job),
                    job,
                    attempt: attempt.map(site::attempt),
                    action: site::action(&action),
                    nodes: nodes.map(|(first, count)| self.hosts(first, count)),
                    targets: None,
                    userid: Some(1_000),
                    timeout_ms: None,
                    known: false,
                };
                self.ask(to, Request::Run(run));
            }
            Op::Cancel { to, job, action } => {
                let which = which(job, action.as_deref());
                self.ask(to, Request::Cancel { which, why: "asked".to_owned() });
            }
            Op::Resolve { to, job, ok } => {
                self.ask(to, Request::Resolve { which: which(job, None), ok, reason: "by an operator".to_owned() });
            }
            Op::Signal { to, job, signal } => self.ask(to, Request::Signal { which: which(job, None), signal }),
            Op::TakeOver { to } => {
                self.truth.store_may_be_behind();
                self.ask(to, Request::Recover { take_over: true });
            }
            Op::Query { to, job } => self.query_everything(to, job),
            // A resource manager, if the world has one, acknowledges its own entries.
            Op::OutboxApplied { .. } if self.plan.scheduler.is_some() => {}
            Op::OutboxApplied { to } => {
                // Acknowledges the oldest entry only: later entries stay for the next fetch.
                let through = self.controllers[to].store.outbox.first().map_or(0, |entry| entry.sequence);
                self.ask(to, Request::OutboxApplied { through });
            }
            Op::Exec { node, job, action, attempt } => {
                let job = site::job(job);
                let exec = Exec {
                    env: site::offered(&job),
                    job,
                    attempt: site::attempt(attempt),
                    action: site::action(&action),
                    rank: Rank(0),
                    userid: None,
                    timeout_ms: None,
                    plan: None,
                    hook: perilog_core::task::Hook::default(),
                    daemon_died: false,
                };
                let id = ActionId::of(ClusterId::LOCAL, &exec.job, exec.attempt, &exec.action);
                let caller = self.callers.len() as u64;
                self.callers.insert(caller, (node, TaskId { action: id, rank: exec.rank }));
                self.local(node, Input::Exec { caller, exec });
            }
            Op::Hangup { node } => {
                let of_node = self.callers.iter().filter(|(_, (at, _))| *at == node);
                let callers: Vec<u64> = of_node.map(|(caller, _)| *caller).collect();
                for caller in callers {
                    self.local(node, Input::Hangup { caller });
                }
            }
            Op::CancelLocal { node, job, action, attempt } => {
                let (job, name) = (site::job(job), site::action(&action));
                let id = ActionId::of(ClusterId::LOCAL, &job, site::attempt(attempt), &name);
                let task = TaskId { action: id, rank: Rank(0) };
                self.local(node, Input::CancelLocal { caller: CANCELS, task });
            }
            Op::Ask { to, job } => {
                let which = match job {
                    Some(job) => AskWhich::Tasks(which(job, None)),
                    None => AskWhich::Hosts(self.hosts(0, self.plan.nodes)),
                };
                self.ask(to, Request::Ask { which, ask: Ask::Status });
            }
            // No caller waits for this reply.
            Op::Status { node } => self.local(node, Input::Status { caller: CANCELS }),
            Op::Reload { node, policy } => {
                self.nodes[node].policy = policy;
                let incarnation = self.nodes[node].incarnation;
                self.after(1, Event::Agent { node, incarnation, event: AgentEvent::Reload });
            }
            Op::Configure { settings } => {
                self.settings = settings;
                self.truth.configured(&site::settings(settings));
                let incarnation = self.controllers[0].incarnation;
                self.controller_receives(0, incarnation, ControllerInput::Settings(site::settings(settings)));
            }
            Op::AddJob { to, job, attempt, nodes: (first, count), tolerate, percent, keep, shrink, rabbits } => {
                let hosts = self.hosts(first, count);
                // A request that takes up an attempt with fewer hosts states that the other hosts were released: no
                // operator lies about that.
                let mut rows = self.controllers[to].store.attempts.iter();
                if rows.any(|row| row.job == site::job(job) && row.abandoned)
                    && self.truth.is_alive_elsewhere(&site::job(job), &hosts)
                {
                    return;
                }
                // Jobs with odd numbers get an R.
                let r = (job % 2 == 1).then(|| site::resources(&hosts)).flatten().map(Box::new);
                let nodes = r.is_none().then_some(hosts);
                let resources = if rabbits { site::rabbits() } else { BTreeSet::new() };
                let tolerance = match u8::try_from(tolerate) {
                    Ok(share) if percent => Tolerance::Percent(share),
                    _ => Tolerance::Ranks(tolerate),
                };
                let tolerate = (tolerate > 0 || keep.is_none()).then_some(tolerance);
                let terms = Terms { tolerate, keep, shrink, r, resources, ..Terms::default() };
                let attempt = attempt.map(site::attempt);
                let (source, job) = (None, site::job(job));
                let add = JobAdd { source, job, attempt, nodes, userid: Some(1_000), terms };
                self.ask(to, Request::JobAdd(Box::new(add)));
            }
            Op::Finish { to, job, ranks } => {
                let targets = ranks.map(|(first, count)| Targets::Ranks(IdSet::from(first..=first + count - 1)));
                self.ask(to, Request::JobFinish { job: site::job(job), attempt: None, targets, resources: None });
            }
            Op::CancelJob { to, job } => {
                self.ask(to, Request::JobCancel { job: site::job(job), attempt: None, why: "asked".to_owned() });
            }
            Op::Drain { to, node } => {
                self.ask(
                    to,
                    Request::Drain {
                        hosts: self.hosts(node, 1),
                        reason: "by an \
                                                                                   operator"
                            .to_owned(),
                        force: true,
                    },
                );
            }
            Op::Undrain { to, node } => {
                // An undrain states that nothing is wrong on the host.
                self.truth.lifted(site::host(node), self.t);
                self.ask(to, Request::Undrain { hosts: self.hosts(node, 1), forget: false, notice_id: None });
            }
            Op::LiftOutside { node } => {
                let host = site::host(node);
                let drains = &self.controllers[0].store.drains;
                let in_force = drains.iter().any(|drain| drain.host == host && drain.confirmed && !drain.lifted);
                self.truth.lifted_outside(&host, in_force, self.t);
            }
            Op::Serve { job, nodes, rabbits, lease_ms } => self.serve(job, nodes, rabbits, lease_ms),
            Op::Milestone { to, job, ranks } => {
                let ranks = ranks.map(|(first, count)| IdSet::from(first..=first + count - 1));
                let name = site::milestone();
                self.truth.reported_by_operator(&site::job(job), &name, ranks.as_ref());
                let (job, targets) = (site::job(job), ranks.map(Targets::Ranks));
                self.ask(to, Request::Milestone { job, attempt: None, name, targets });
            }
            Op::Quiesce { to, wait } => {
                self.truth.asks_quiet(to, self.controllers[to].clients + 1);
                self.ask(to, Request::Quiesce { reason: "asked".to_owned(), wait });
            }
            Op::Resume { to } => {
                self.truth.asks_resume(to);
                self.ask(to, Request::Resume {});
            }
            Op::Launch { job, count, ms } => self.launch(job, count, ms),
            Op::Shrink { job, keep } => self.shrink_launched(job, keep),
            Op::End { job } => self.end_launched(job),
            Op::Backup => {
                let copy = self.backup();
                self.controllers[0].backups.push(copy);
            }
        }
    }

    fn local(&mut self, at: usize, input: Input) {
        let incarnation = self.nodes[at].incarnation;
        self.after(1, Event::Agent { node: at, incarnation, event: AgentEvent::Local(Box::new(input)) });
    }

    pub(super) fn hosts(&self, first: usize, count: usize) -> HostList {
        let names: Vec<_> = (first..first + count).map(site::host).collect();
        HostList::from_names(names.iter().map(|host| host.as_str())).unwrap_or_default()
    }

    pub(crate) fn query_everything(&mut self, to: usize, job: u8) {
        // Every other request also asks for held resources.
        let held = self.controllers[to].clients.is_multiple_of(2);
        self.ask(to, Request::Ps { older_than_ms: 0, held });
        self.ask(to, Request::Show { job: site::job(job), targets: None });
        self.ask(to, Request::Nodes { targets: None, after: None });
        self.ask(to, Request::Why { host: site::host(0) });
        self.ask(to, Request::Status {});
        self.ask(to, Request::Outbox { after: 0, limit: usize::MAX });
    }
}

fn which(job: u8, action: Option<&str>) -> Which {
    Which { job: site::job(job), attempt: None, action: action.map(site::action), targets: None, resources: None }
}
