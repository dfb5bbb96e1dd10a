//! A session that others contradict. They tell of tasks that its node did not tell of in its Hello: it never had them, or it has had another controller
//! since then and the session is half open. So it is asked, by a probe, whether the session lives.
//!
//! | the probe | then |
//! |-----------|------|
//! | is answered | what stands `unknown` there it does not have, [`Machine::not_known`] |
//! | is answered, and others told of more meanwhile | asked again: the answer may have been under way before that |
//! | is not answered in time | the session ends, and the next Hello tells |

use crate::controller::action::Stand;
use crate::controller::io::{Effect, Now, SessionId};
use crate::controller::machine::Machine;
use crate::ids::{HostName, TaskId};
use crate::message::ToAgent;

/// As long as the kernel waits for a host that acknowledges nothing (TCP_USER_TIMEOUT, `Keepalive` of perilog-host): an agent that hangs is taken for one.
const ANSWER_WITHIN_MS: u64 = 60_000;

/// The one question that a session has to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    nonce: u64,
    until_ms: u64,
    /// Others have told of more since it left.
    again: bool,
}

impl Machine {
    pub(super) fn ask_whether_it_lives(&mut self, session: SessionId, now: Now) {
        match self.asked.get_mut(&session) {
            Some(asked) => asked.again |= !self.batch.probed.contains(&session),
            None => self.probe(session, now),
        }
    }

    fn probe(&mut self, session: SessionId, now: Now) {
        self.probe_last += 1;
        let nonce = self.probe_last;
        let until_ms = now.mono_ms.saturating_add(ANSWER_WITHIN_MS);
        self.asked.insert(session, Asked { nonce, until_ms, again: false });
        self.batch.probed.insert(session);
        self.batch.effects.push(Effect::Send { session, message: ToAgent::Probe { nonce } });
    }

    /// It lives, and what it did not tell of in its Hello it does not have.
    pub(super) fn settle_asked(&mut self, session: SessionId, host: &HostName, answer: u64, now: Now) {
        let Some(asked) = self.asked.get(&session).filter(|asked| asked.nonce == answer) else { return };
        if asked.again {
            return self.probe(session, now);
        }
        self.asked.remove(&session);
        let Some(node) = self.nodes.get(host) else { return };
        let is_unknown = |task: &TaskId| {
            self.actions.get(&task.action).is_some_and(|action| action.stand(task.rank) == Stand::Unknown)
        };
        let tasks: Vec<TaskId> = node.tasks.iter().copied().filter(is_unknown).collect();
        for task in tasks {
            self.not_known(task, now);
        }
    }

    /// Those whose time is over.
    pub(super) fn asked_due(&mut self, now: Now) {
        let is_due = |asked: &Asked| asked.until_ms <= now.mono_ms;
        let due: Vec<SessionId> = self.asked.iter().filter(|(_, asked)| is_due(asked)).map(|(id, _)| *id).collect();
        for id in due {
            self.end_session(
                id,
                "did not answer a probe: it is asked again what it holds, for others tell of more",
                now,
            );
        }
    }

    pub(super) fn next_asked(&self) -> Option<u64> {
        self.asked.values().map(|asked| asked.until_ms).min()
    }
}
