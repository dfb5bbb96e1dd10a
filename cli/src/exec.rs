//! Client of the method `Exec` of this host's agent (`io.perilog.Agent`): its replies, and a session that reads them
//! until the task ends.

use perilog_core::message::Phase;
use perilog_core::task::Ended;
use perilog_core::{Attempt, Outcome, Verdict};
use perilog_host::varlink::Client;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Answer, Daemon, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::session::{SessionSender, Stop};
use crate::text;

/// A reply of the agent's method `Exec`. The last reply to a call reports the task's end.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Reply {
    pub(crate) unit: String,
    /// The attempt of the task; `None` from an older agent.
    #[serde(default)]
    pub(crate) attempt: Option<Attempt>,
    #[serde(default)]
    pub(crate) attached: Option<bool>,
    #[serde(default)]
    pub(crate) phase: Option<Phase>,
    /// The milestone that a script of the task reported last.
    #[serde(default)]
    pub(crate) milestone: Option<String>,
    #[serde(default)]
    pub(crate) ended: Option<Ended>,
    /// The outcome, if the task ended before the call and only its tombstone is left.
    #[serde(default)]
    pub(crate) outcome: Option<Outcome>,
    #[serde(default)]
    pub(crate) status: Option<u8>,
}

impl Reply {
    pub(crate) fn is_last(&self) -> bool {
        self.ended.is_some() || self.outcome.is_some() || self.status.is_some()
    }

    pub(crate) fn exit(&self) -> Exit {
        match (self.status, self.outcome()) {
            (Some(status), _) => Exit::Status(status),
            (None, Some(outcome)) => match outcome.status() {
                Some(status) if status > 0 => Exit::Status(status),
                _ => Exit::of(Verdict::of([outcome])),
            },
            (None, None) => Exit::Other,
        }
    }

    /// Returns the outcome as text for people, such as `failed (exit 7)`; `None`: the task has not ended.
    pub(crate) fn result(&self) -> Option<String> {
        let ended = self.ended.as_ref().map(Ended::result);
        ended.or_else(|| self.outcome.as_ref().map(ToString::to_string)).map(|result| text::line(&result))
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.ended.as_ref().map(|ended| &ended.outcome).or(self.outcome.as_ref())
    }
}

/// Calls `Exec` on this connection. Hands each reply to `note` first, then to `sender`. If the stream of replies ends
/// before the task does, fails with [`Fault::WentAway`].
pub(crate) fn session(
    endpoint: &Endpoint,
    client: &mut Client,
    request: &impl Serialize,
    sender: &mut SessionSender<Answer<Reply>>,
    mut note: impl FnMut(&Reply),
) -> Result<(), Stop> {
    endpoint.wait_for_ever(client)?;
    let mut ended = false;
    endpoint.follow(client, "Exec", request, |reply: Answer<Reply>| {
        ended |= reply.body.is_last();
        note(&reply.body);
        sender.send_message(reply)
    })?;
    if ended {
        Ok(())
    } else {
        Err(Fault::WentAway { daemon: Daemon::Agent, why: "the replies ended before the task did".to_owned() }.into())
    }
}

/// Describes a task's phase in a line, such as `waiting: ...` or `2 of 5  20-gpu`.
pub(crate) fn describe(phase: &Phase) -> String {
    match phase {
        Phase::Waiting { why } => format!("waiting: {}", text::line(why)),
        Phase::Starting => "starting".to_owned(),
        Phase::Running { script, index, of, progress } => {
            let note = progress.as_deref().map(|note| format!(": {}", text::line(note))).unwrap_or_default();
            format!("{index} of {of}  {}{note}", text::line(script))
        }
        Phase::Overdue { script, limit_ms, doing } => {
            let doing = if doing.is_empty() { String::new() } else { format!(": {}", text::line(doing)) };
            format!("overdue: {} is past its limit of {}{doing}", text::line(script), text::age(*limit_ms))
        }
        Phase::Lingering { processes } => {
            let list: Vec<String> =
                processes.iter().map(|p| format!("{} ({})", p.pid, text::line(&p.command))).collect();
            format!("lingering: the scripts ended, these processes did not: {}", list.join(", "))
        }
    }
}
