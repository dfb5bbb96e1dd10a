//! Who waits for what on the local socket: the loop's side.

use std::collections::HashMap;

use perilog_core::agent::io::{Caller, Exec, ExecReply, Input, TaskStatus};
use perilog_core::ids::TaskId;
use perilog_core::message::Phase;
use perilog_core::outcome::Outcome;
use perilog_core::task::Ended;
use tokio::sync::{oneshot, watch};

/// What a caller of `Exec` is told: the latest of each.
#[derive(Debug, Clone, Default)]
pub struct Followed {
    /// The task's stem, and whether it was there before.
    pub attached: Option<(String, bool)>,
    pub phase: Option<Phase>,
    pub end: Option<End>,
}

/// How an `Exec` ends.
#[derive(Debug, Clone)]
pub enum End {
    Ended(Box<Ended>),
    /// Before this call; only the outcome is left.
    Before(Outcome),
    Refused(String),
}

/// The status of this node.
#[derive(Debug)]
pub struct NodeStatus {
    pub controller: Option<String>,
    pub connected: bool,
    pub epoch: Option<u64>,
    pub tasks: Vec<TaskStatus>,
}

/// What the socket asks of the loop. The number of callers is bounded by the server's number of connections.
#[derive(Debug)]
pub enum Asked {
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
    /// A caller of `Exec` went away.
    Hangup {
        caller: Caller,
    },
}

#[derive(Debug)]
enum Waiting {
    Exec(watch::Sender<Followed>),
    Status(oneshot::Sender<NodeStatus>),
    Cancel(oneshot::Sender<Result<(), String>>),
}

/// All callers that wait.
#[derive(Debug, Default)]
pub struct Callers {
    last: Caller,
    waiting: HashMap<Caller, Waiting>,
}

impl Callers {
    /// A request as the machine's input; `None` if it was answered at once. `task_of` finds a task by its stem.
    pub fn asked(&mut self, asked: Asked, task_of: impl Fn(&str) -> Option<TaskId>) -> Option<Input> {
        match asked {
            Asked::Exec { exec, caller: number, follow } => {
                let caller = self.wait(Waiting::Exec(follow));
                // A caller that is gone by now hangs up next.
                let _ = number.send(caller);
                Some(Input::Exec { caller, exec: *exec })
            }
            Asked::Status { reply } => Some(Input::Status { caller: self.wait(Waiting::Status(reply)) }),
            Asked::Cancel { stem, reply } => match task_of(&stem) {
                Some(task) => Some(Input::CancelLocal { caller: self.wait(Waiting::Cancel(reply)), task }),
                None => {
                    let _ = reply.send(Err(format!("there is no task {stem} on this host")));
                    None
                }
            },
            Asked::Hangup { caller } => self.waiting.remove(&caller).map(|_| Input::Hangup { caller }),
        }
    }

    /// The machine's word to a caller of `Exec` or `Cancel`. Whoever is gone is not told.
    pub fn tell(&mut self, caller: Caller, reply: ExecReply) {
        match self.waiting.remove(&caller) {
            Some(Waiting::Exec(follow)) => {
                let over = follow_up(&follow, reply);
                if !over {
                    self.waiting.insert(caller, Waiting::Exec(follow));
                }
            }
            Some(Waiting::Cancel(reply_to)) => {
                let answer = match reply {
                    ExecReply::Refused(text) => Err(text),
                    _ => Ok(()),
                };
                let _ = reply_to.send(answer);
            }
            Some(Waiting::Status(_)) | None => {}
        }
    }

    pub fn tell_status(&mut self, caller: Caller, status: NodeStatus) {
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

/// Puts the reply into the caller's slot; true if it is the last.
fn follow_up(follow: &watch::Sender<Followed>, reply: ExecReply) -> bool {
    follow.send_modify(|told| match reply {
        ExecReply::Attached { stem, attached, .. } => told.attached = Some((stem, attached)),
        ExecReply::Phase(phase) => told.phase = Some(phase),
        ExecReply::Ended(ended) => told.end = Some(End::Ended(ended)),
        ExecReply::EndedBefore(outcome) => told.end = Some(End::Before(outcome)),
        ExecReply::Refused(text) => told.end = Some(End::Refused(text)),
        ExecReply::Cancelling => {}
    });
    follow.borrow().end.is_some()
}
