//! `job forget`: decides whether an operator may drop releases that the release hook keeps refusing. The job and its
//! attempts stay.

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::interface::io::{Refusal, Reply};
use crate::controller::state::Jobs;
use crate::controller::state::context::Context;
use crate::ids::{Attempt, JobId};

impl Jobs {
    /// Drops the releases of a job or attempt that the release hook has not carried out; returns the number of dropped
    /// releases.
    ///
    /// # Errors
    /// The reason is empty, `releases` is not set, or no release waits for the hook: it has carried out each of them,
    /// or there is no such job or attempt.
    pub(crate) fn job_forget(
        &mut self,
        job: &JobId,
        attempt: Option<Attempt>,
        releases: bool,
        reason: &str,
        uid: u32,
        cx: &mut Context,
    ) -> Result<Reply, Refusal> {
        let reason = reason.trim();
        if reason.is_empty() {
            return Err(Refusal::Invalid("forget needs a reason".to_owned()));
        }
        if !releases {
            return Err(Refusal::Invalid("name what to drop: the pending releases (--releases)".to_owned()));
        }
        let of = |number: Attempt| attempt.is_none_or(|attempt| attempt == number);
        let pending = cx.outbox.releases().filter(|entry| entry.job == *job && of(entry.attempt));
        let pending: Vec<u64> = pending.map(|entry| entry.sequence).collect();
        if pending.is_empty() {
            return Err(Refusal::Conflict(format!("the release hook has no pending notice of job {job}")));
        }
        for sequence in &pending {
            cx.finish_notice(*sequence);
        }
        let dropped = if pending.len() == 1 { "1 release".to_owned() } else { format!("{} releases", pending.len()) };
        let text =
            format!("uid {uid} dropped {dropped} of this job that the release hook had not carried out: {reason}");
        cx.note(Level::Warning, Some(job), None, text);
        let context = json!({"sequences": pending, "why": reason, "by": uid});
        self.event(job, "release-forgotten", context, cx);
        Ok(Reply::Reached { tasks: pending.len() as u64 })
    }
}
