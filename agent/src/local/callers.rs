//! Clients of the local socket that wait for a reply of the agent's event loop.

use std::collections::HashMap;

use perilog_core::agent::io::{Caller, Exec, ExecReply, Input, TaskStatus};
use perilog_core::ids::TaskId;
use perilog_core::message::Phase;
use perilog_core::outcome::Outcome;
use perilog_core::task::Ended;
use tokio::sync::{oneshot, watch};

/// State of a task that a caller of `Exec` waits for: the latest value of each field. A slow caller may miss earlier
/// values.
#[derive(Debug, Clone, Default)]
pub struct Followed {
    /// Whether the task existed before the call. `None`: the machine has not answered yet, or has no task to follow.
    pub attached: Option<bool>,
    pub phase: Option<Phase>,
    /// The milestone that a script reported last.
    pub milestone: Option<String>,
    pub end: Option<End>,
}

/// The final result of a call of `Exec`.
#[derive(Debug, Clone)]
pub enum End {
    Ended(Box<Ended>),
    /// The task had ended before the call. The agent has only the outcome left, from the task's tombstone.
    Before(Outcome),
    Refused(String),
}

/// State of this node, for the method `Status`.
#[derive(Debug)]
pub struct NodeStatus {
    pub controller: Option<String>,
    pub connected: bool,
    /// State of the session with the controller: `not connected`, `connecting`, `connected` or `turned away`.
    pub session: &'static str,
    pub epoch: Option<u64>,
    pub tasks: Vec<TaskStatus>,
}

/// A request of a client of the local socket to the agent's event loop. The socket's bound on connections also bounds
/// the number of requests.
#[derive(Debug)]
pub enum LocalRequest {
    Exec {
        exec: Box<Exec>,
        caller: oneshot::Sender<Caller>,
        follow: watch::Sender<Followed>,
    },
    Status {
        reply: oneshot::Sender<NodeStatus>,
    },
    Cancel {
        stem: String,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// The resource manager's daemon that waits for a hook's status has died: no caller learns how the hook's task
    /// ends.
    DaemonDied {
        stem: String,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// A caller of `Exec` disconnected.
    Hangup {
        caller: Caller,
    },
}

#[derive(Debug)]
enum Waiting {
    Exec(watch::Sender<Followed>),
    Status(oneshot::Sender<NodeStatus>),
    Done(oneshot::Sender<Result<(), String>>),
}

/// Clients of the local socket that wait for the agent's reply, by number.
#[derive(Debug, Default)]
pub struct Callers {
    last: Caller,
    waiting: HashMap<Caller, Waiting>,
}

impl Callers {
    /// Converts a request to the machine's input. `None`: the machine has nothing to do, because the request's stem is
    /// no task's (the caller then has its refusal), or because the caller that hung up has its last reply already.
    /// `task_of` finds a task by its stem.
    pub fn input_of(&mut self, request: LocalRequest, task_of: impl Fn(&str) -> Option<TaskId>) -> Option<Input> {
        match request {
            LocalRequest::Exec { exec, caller: number, follow } => {
                let caller = self.wait(Waiting::Exec(follow));
                // If the caller has disconnected, its hangup follows.
                let _ = number.send(caller);
                Some(Input::Exec { caller, exec: *exec })
            }
            LocalRequest::Status { reply } => Some(Input::Status { caller: self.wait(Waiting::Status(reply)) }),
            LocalRequest::Cancel { stem, reply } => {
                let (caller, task) = self.about(task_of(&stem), &stem, reply)?;
                Some(Input::CancelLocal { caller, task })
            }
            LocalRequest::DaemonDied { stem, reply } => {
                let (caller, task) = self.about(task_of(&stem), &stem, reply)?;
                Some(Input::DaemonDied { caller, task })
            }
            LocalRequest::Hangup { caller } => self.waiting.remove(&caller).map(|_| Input::Hangup { caller }),
        }
    }

    /// Registers a caller of `Cancel` or `Orphaned`, and returns the caller's number with the task. If `task` is
    /// `None`, sends the caller an error and returns `None`.
    fn about(
        &mut self,
        task: Option<TaskId>,
        stem: &str,
        reply: oneshot::Sender<Result<(), String>>,
    ) -> Option<(Caller, TaskId)> {
        match task {
            Some(task) => Some((self.wait(Waiting::Done(reply)), task)),
            None => {
                let _ = reply.send(Err(format!("there is no task {stem} on this host")));
                None
            }
        }
    }

    /// Passes the machine's reply to a caller of `Exec`, `Cancel` or `Orphaned`. Drops the reply if the caller has
    /// disconnected.
    pub fn reply(&mut self, caller: Caller, reply: ExecReply) {
        match self.waiting.remove(&caller) {
            Some(Waiting::Exec(follow)) => {
                let over = follow_up(&follow, reply);
                if !over {
                    self.waiting.insert(caller, Waiting::Exec(follow));
                }
            }
            Some(Waiting::Done(reply_to)) => {
                let answer = match reply {
                    ExecReply::Refused(text) => Err(text),
                    _ => Ok(()),
                };
                let _ = reply_to.send(answer);
            }
            Some(Waiting::Status(_)) | None => {}
        }
    }

    pub fn reply_status(&mut self, caller: Caller, status: NodeStatus) {
        if let Some(Waiting::Status(reply)) = self.waiting.remove(&caller) {
            let _ = reply.send(status);
        }
    }

    fn wait(&mut self, waiting: Waiting) -> Caller {
        self.last += 1;
        self.waiting.insert(self.last, waiting);
        self.last
    }
}

/// Updates the state that the caller of `Exec` follows; returns `true` if this reply is the last.
fn follow_up(follow: &watch::Sender<Followed>, reply: ExecReply) -> bool {
    follow.send_modify(|reported| match reply {
        ExecReply::Attached { attached, .. } => reported.attached = Some(attached),
        ExecReply::Phase(phase) => reported.phase = Some(phase),
        ExecReply::Milestone(name) => reported.milestone = Some(name),
        ExecReply::Ended(ended) => reported.end = Some(End::Ended(ended)),
        ExecReply::EndedBefore(outcome) => reported.end = Some(End::Before(outcome)),
        ExecReply::Refused(text) => reported.end = Some(End::Refused(text)),
        ExecReply::Cancelling | ExecReply::Noted => {}
    });
    follow.borrow().end.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use perilog_core::ids::{ActionName, Attempt, JobId, Rank};

    fn exec() -> Box<Exec> {
        Box::new(Exec {
            job: JobId::new("j1").unwrap(),
            attempt: Attempt::FIRST,
            action: ActionName::new("prolog").unwrap(),
            rank: Rank(0),
            userid: None,
            env: std::collections::BTreeMap::new(),
            timeout_ms: None,
            plan: None,
            hook: Default::default(),
            daemon_died: false,
        })
    }

    #[tokio::test]
    async fn a_slow_caller_misses_phases_and_not_the_end() {
        let mut callers = Callers::default();
        let (follow, mut followed) = watch::channel(Followed::default());
        let (number, caller) = oneshot::channel();
        let asked = LocalRequest::Exec { exec: exec(), caller: number, follow };
        assert!(matches!(callers.input_of(asked, |_| None), Some(Input::Exec { caller: 1, .. })));
        let caller = caller.await.unwrap();
        let task = testing::intent().start.task;
        callers.reply(caller, ExecReply::Attached { task, stem: String::new(), attached: false });
        for name in ["a", "b"] {
            callers.reply(caller, ExecReply::Milestone(name.to_owned()));
        }
        callers.reply(caller, ExecReply::EndedBefore(Outcome::Ok));
        let reported = followed.borrow_and_update().clone();
        assert_eq!((reported.attached, reported.milestone.as_deref()), (Some(false), Some("b")));
        assert!(matches!(reported.end, Some(End::Before(Outcome::Ok))));
        assert!(callers.waiting.is_empty(), "nothing is kept of a caller that got its end");
        assert!(callers.input_of(LocalRequest::Hangup { caller }, |_| None).is_none(), "its leaving is no news");
    }

    #[tokio::test]
    async fn a_cancel_of_nothing_is_answered_here() {
        let mut callers = Callers::default();
        let (reply, answer) = oneshot::channel();
        assert!(callers.input_of(LocalRequest::Cancel { stem: "x".to_owned(), reply }, |_| None).is_none());
        assert!(answer.await.unwrap().unwrap_err().contains("no task x"));
        let (reply, answer) = oneshot::channel();
        let task = testing::intent().start.task;
        let input = callers.input_of(LocalRequest::Cancel { stem: "x".to_owned(), reply }, |_| Some(task));
        let Some(Input::CancelLocal { caller, .. }) = input else { panic!("{input:?}") };
        callers.reply(caller, ExecReply::Refused("the controller's".to_owned()));
        assert_eq!(answer.await.unwrap(), Err("the controller's".to_owned()));
    }
}
