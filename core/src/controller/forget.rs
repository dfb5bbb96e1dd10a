//! What an operator's word takes out of the books: an attempt that never was, of which only nodes tell; releases that the release hook will not
//! carry out. What was asked for is finished, and never forgotten so.

use serde_json::json;

use crate::agent::io::Level;
use crate::controller::action::Action;
use crate::controller::io::{Now, Record, Refusal, Reply};
use crate::controller::machine::Machine;
use crate::ids::{Attempt, JobId};

impl Machine {
    /// # Errors
    /// No reason; an attempt that somebody has asked for, of which a node has something still, or of which releases are owed; nothing that is owed.
    pub(super) fn job_forget(
        &mut self,
        job: &JobId,
        attempt: Option<Attempt>,
        releases: bool,
        reason: &str,
        uid: u32,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let reason = reason.trim();
        if reason.is_empty() {
            return Err(Refusal::Invalid("forget needs a reason".to_owned()));
        }
        if releases {
            return self.forget_releases(job, attempt, reason, uid, now);
        }
        let Some(number) = attempt else {
            let text =
                "name the attempt that never was (--attempt N), or what is owed to the release hook (--releases)";
            return Err(Refusal::Invalid(text.to_owned()));
        };
        let (_, entry) = self.attempt_of(job, attempt)?;
        if entry.asked {
            let text = format!(
                "attempt {number} of job {job} was asked for, and not told of by nodes alone: perilog job finish {job} --attempt {number}"
            );
            return Err(Refusal::Conflict(text));
        }
        let told = |action: &Action| !action.open().difference(&action.row.unknown).is_empty();
        if let Some(action) = self.of(entry).find(|action| told(action)) {
            let (ranks, name) = (action.open().difference(&action.row.unknown), &action.row.name);
            let hosts = entry.layout.hosts_of(&ranks);
            return Err(Refusal::Conflict(format!(
                "{hosts} has {name} of job {job} attempt {number} still: perilog resolve {job} {name} --attempt {number} --ranks {hosts} first"
            )));
        }
        if self.outbox.is_hooked(job, number) {
            return Err(Refusal::Conflict(format!(
                "the release hook is owed releases of job {job} attempt {number}: perilog job forget {job} --attempt {number} --releases first"
            )));
        }
        self.forget(job, number, &format!("uid {uid} says that it never was: {reason}"));
        if self.jobs.contains_key(job) {
            let context = json!({"attempt": number, "why": reason, "by": uid});
            self.event(job, now, "attempt-forgotten", context);
        }
        // Whoever waited for it on a host may begin there.
        self.reordered(now);
        Ok(Reply::Reached { tasks: 1 })
    }

    fn forget_releases(
        &mut self,
        job: &JobId,
        attempt: Option<Attempt>,
        reason: &str,
        uid: u32,
        now: Now,
    ) -> Result<Reply, Refusal> {
        let of = |number: Attempt| attempt.is_none_or(|attempt| attempt == number);
        let owed = self.outbox.releases().filter(|entry| entry.job == *job && of(entry.attempt));
        let owed: Vec<u64> = owed.map(|entry| entry.sequence).collect();
        if owed.is_empty() {
            return Err(Refusal::Conflict(format!("the release hook is owed nothing of job {job}")));
        }
        for sequence in &owed {
            self.outbox.done(*sequence);
            self.batch.records.push(Record::OutboxDone { sequence: *sequence });
        }
        let text = format!(
            "uid {uid} dropped {} of its releases, of which the release hook has not heard: {reason}",
            owed.len()
        );
        self.note(Level::Warning, Some(job), None, text);
        let context = json!({"sequences": owed, "why": reason, "by": uid});
        self.event(job, now, "release-forgotten", context);
        Ok(Reply::Reached { tasks: owed.len() as u64 })
    }
}
