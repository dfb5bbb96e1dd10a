//! Turns an action into a call, and the answer into an outcome. The edge repeats a call without an answer: to send a
//! call twice has the same effect as once.

use std::path::Path;

use perilog_core::{Fluid, IdSet, JobId, Span};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Event, FIRST_BACKOFF, LAST_BACKOFF, QUIET, Session, inspect};
use crate::broker::{Broker, RpcError};
use crate::controller::{CallError, Controller};
use crate::plan::{Action, Job, Reference, View, sync};

const ENOENT: u32 = 2;
const EINVAL: u32 = 22;
const EPROTO: u32 = 71;
const EALREADY: u32 = 114;

/// Beginning of the key of [`Action::Inspect`].
pub(super) const INSPECT: &str = "inspect ";

/// The answer of Flux or of the controller to an action, or the lack of an answer.
#[derive(Debug)]
pub(super) enum Outcome {
    Done(Value),
    /// The answer to [`Action::Inspect`].
    Inspected(inspect::Found),
    /// Flux or the controller refuses the action, and would refuse a repetition too.
    Refused(String),
    /// The call failed; a later try may succeed.
    Failed(String),
    /// The controller is quiesced: the edge tries again later, until an operator resumes the controller.
    Quiet(String),
}

/// Returns the key of an action, for example its job's id or `flux n1`. The edge sends no action while another one with
/// the same key waits for its answer, except a follower in one go with it.
pub(super) fn key(action: &Action) -> String {
    match action {
        Action::Post { id, mark, .. } => format!("{id} {mark}"),
        Action::Inspect { id, .. } => format!("{INSPECT}{id}"),
        Action::Drain { host, .. } | Action::Undrain { host } => format!("flux {host}"),
        Action::Notified { host, .. } | Action::Lifted { host, .. } => format!("perilog {host}"),
        Action::Add { id, .. }
        | Action::Run { id, .. }
        | Action::Start { id, .. }
        | Action::DropHold { id, .. }
        | Action::Cancel { id, .. }
        | Action::Finish { id, .. } => format!("{id}"),
    }
}

/// Returns `true` if this action begins a prolog. While the controller is quiesced, the edge sends such actions one at
/// a time.
pub(super) const fn begins_anew(action: &Action) -> bool {
    matches!(action, Action::Run { what: Reference::Prolog, .. })
}

impl Session {
    /// Sends an action, together with the action `then` that follows it if there is one, without blocking. The answers
    /// arrive as an [`Event::Done`].
    pub(super) fn send(&self, action: Action, then: Option<Action>) {
        let actions: Vec<Action> = std::iter::once(action).chain(then).collect();
        let calls: Vec<Call> = actions.iter().map(|action| self.call(action)).collect();
        let (broker, sender, room) = (self.broker.clone(), self.sender.clone(), self.room.clone());
        let socket = self.config.controller.to_path_buf();
        tokio::spawn(async move {
            let _room = room.acquire().await;
            let outcomes = outcomes(&socket, &broker, &actions, calls).await;
            // An ended session needs no answer.
            let _ = sender.send(Event::Done(actions.into_iter().zip(outcomes).collect())).await;
        });
    }

    fn call(&self, action: &Action) -> Call {
        let source = json!({ "name": "flux", "instance": self.config.instance.as_str() });
        let controller = |method, parameters| Call::Controller { method, parameters };
        let flux = |topic, payload| Call::Flux { topic, payload };
        match action {
            Action::Add { id, job, attempt } => {
                let known = self.view.jobs.get(id);
                let held = known.and_then(Job::held);
                let mut parameters = json!({
                    "job": job, "attempt": attempt, "R": held.as_ref().map(|held| held.r), "source": source,
                    "userid": known.and_then(|known| known.userid),
                });
                if let (Some(of), Some((known, held))) = (parameters.as_object_mut(), known.zip(held.as_ref())) {
                    of.extend(sync::terms(&self.view, known, held));
                }
                controller("JobAdd", parameters)
            }
            Action::Run { id, job, attempt, what } => {
                let userid = self.view.jobs.get(id).and_then(|known| known.userid);
                let mut env = json!({ "FLUX_JOB_ID": Fluid(*id).to_sign() });
                if let Some(userid) = userid {
                    env["FLUX_JOB_USERID"] = userid.to_string().into();
                }
                if let Some(held) = self.view.jobs.get(id).and_then(Job::held) {
                    env["FLUX_JOB_RANKS"] = held.r.ranks().to_string().into();
                }
                let parameters =
                    json!({ "job": job, "attempt": attempt, "action": what.as_str(), "userid": userid, "env": env });
                controller("Run", parameters)
            }
            Action::Start { job, attempt, name, id } => {
                let external = self.view.site.externals.get(name);
                let lease = Span::from_millis(external.map_or(0, |external| external.lease_ms)).to_exact();
                let mut parameters = json!({ "job": job, "attempt": attempt, "action": name, "lease": lease });
                parameters["resources"] = json!(external.map(|external| &external.resources));
                let held = self.view.jobs.get(id).and_then(Job::held);
                if let (Some(held), true) = (held, external.is_some_and(|external| external.nodes)) {
                    parameters["targets"] = held.r.ranks().to_string().into();
                }
                controller("ActionStart", parameters)
            }
            Action::DropHold { job, attempt, .. } => controller("JobFinish", json!({ "job": job, "attempt": attempt })),
            Action::Cancel { job, attempt, name, .. } => {
                let parameters = json!({ "job": job, "attempt": attempt, "action": name, "why": "the job is over" });
                controller("Cancel", parameters)
            }
            Action::Notified { host, notice_id, lifted } => {
                controller("DrainDone", json!({ "host": host, "notice_id": notice_id, "lifted": lifted }))
            }
            Action::Lifted { host, notice_id } => {
                controller("Undrain", json!({ "nodes": host, "forget": true, "notice_id": notice_id }))
            }
            Action::Post { id, name, context, .. } => {
                flux("job-manager.post-event.post", json!({ "id": id, "name": name, "context": context }))
            }
            Action::Inspect { job, ranks, .. } => Call::Inspect { job: job.clone(), ranks: ranks.clone() },
            Action::Finish { id, what, status } => {
                let payload = json!({ "id": id, "what": what.as_str(), "status": status });
                flux("job-manager.perilog-hold.finish", payload)
            }
            Action::Drain { host, reason, overwrite } => {
                let mode = if *overwrite { "overwrite" } else { "update" };
                flux("resource.drain", json!({ "targets": host, "reason": reason, "mode": mode }))
            }
            Action::Undrain { host } => flux("resource.undrain", json!({ "targets": host })),
        }
    }

    /// Handles the outcome of an action. Logs an accepted action and updates the view; records a refusal; schedules
    /// another try after a failure, or while the controller is quiesced.
    pub(super) fn done(&mut self, action: &Action, outcome: Outcome) {
        let job = action.id().map(|id| tracing::field::display(Fluid(id)));
        let subject = self.in_flight.get(&key(action)).cloned().unwrap_or_else(|| subject(&self.view, action));
        match outcome {
            Outcome::Done(reply) => {
                self.key_is_done(action);
                if begins_anew(action) {
                    self.quiet = None;
                }
                self.view.did(action);
                self.syncs_again();
                match (line(action, &reply), action) {
                    (Some(line), Action::Drain { .. }) => tracing::warn!(job, "{subject}: {line}"),
                    (Some(line), _) => tracing::info!(job, "{subject}: {line}"),
                    (None, _) => {}
                }
                if let Action::Add { job, .. } = action
                    && reply["over"] == true
                {
                    // The attempt ended before the feed began, and the feed reports only later changes.
                    let source = json!({ "name": "flux", "instance": self.config.instance.as_str() });
                    self.query(json!({ "source": source, "jobs": [job] }));
                }
            }
            Outcome::Inspected(found) => self.record_units(action, found),
            Outcome::Refused(why) => {
                self.key_is_done(action);
                tracing::error!(job, "{subject}: {} is refused: {why}", action.what());
                match action {
                    Action::Add { job, attempt, .. }
                    | Action::Run { job, attempt, .. }
                    | Action::Start { job, attempt, .. } => {
                        drop(self.view.refused.insert((job.clone(), *attempt), why));
                    }
                    // The other side would refuse a repeated request again.
                    action => self.view.did(action),
                }
            }
            Outcome::Quiet(why) if begins_anew(action) => {
                self.in_flight.remove(&key(action));
                if self.quiet.replace(Instant::now() + QUIET).is_none() {
                    tracing::warn!(job, "prologs wait, first the prolog of {subject}: {why}");
                }
            }
            Outcome::Failed(why) | Outcome::Quiet(why) => self.again(action, &why),
        }
    }

    /// Schedules another try of an action, later each time.
    pub(super) fn again(&mut self, action: &Action, why: &str) {
        let job = action.id().map(|id| tracing::field::display(Fluid(id)));
        let key = key(action);
        let subject = self.in_flight.remove(&key).unwrap_or_else(|| subject(&self.view, action));
        let wait = self.delayed.get(&key).map_or(FIRST_BACKOFF, |(_, wait)| (*wait * 2).min(LAST_BACKOFF));
        if wait >= LAST_BACKOFF / 10 {
            tracing::warn!(job, "{subject}: {} is tried again: {why}", action.what());
        }
        self.delayed.insert(key, (Instant::now() + wait, wait));
    }

    fn query(&self, parameters: Value) {
        let (sender, socket) = (self.sender.clone(), self.config.controller.to_path_buf());
        tokio::spawn(async move {
            if let Ok(reply) = attempts(&socket, &parameters).await {
                let _ = sender.send(Event::Feed(reply)).await;
            }
        });
    }
}

/// Returns the line for the edge's log about an action that was carried out; `None`: this kind of action gets no line,
/// or the answer to a repeated call says that the action had begun already. `reply`: the answer.
fn line(action: &Action, reply: &Value) -> Option<String> {
    // The edge repeats a Run that the feed does not show yet: the action began with the first.
    if matches!(action, Action::Run { .. } | Action::Start { .. }) && reply["attached"] == true {
        return None;
    }
    Some(match action {
        Action::Run { what, .. } => format!("{} begins", what.as_str()),
        Action::Finish { what, status, .. } => format!("{} is over: status {status}", what.as_str()),
        Action::Start { name, .. } => format!("{name} begins: its service is awaited"),
        Action::Cancel { name, .. } => format!("{name} is cancelled, because the job does not continue"),
        Action::Post { name, mark, context, .. } => match context["note"].as_str() {
            Some(note) => format!("notified the user: {name} ({mark}): {note}"),
            None => format!("notified the user: {name} ({mark})"),
        },
        Action::Drain { reason, .. } => format!("drained in Flux: {reason}"),
        Action::Undrain { .. } => "undrained in Flux".to_owned(),
        Action::Lifted { .. } => "undrained in Flux, and therefore undrained in perilog".to_owned(),
        Action::Add { .. } | Action::DropHold { .. } | Action::Notified { .. } | Action::Inspect { .. } => return None,
    })
}

/// Returns the subject of an action: `f2mKAgF7 on n[0-3]`, or the host of a drain.
pub(super) fn subject(view: &View, action: &Action) -> String {
    match action {
        Action::Drain { host, .. }
        | Action::Undrain { host }
        | Action::Notified { host, .. }
        | Action::Lifted { host, .. } => host.to_string(),
        action => action.id().map(|id| view.subject(id)).unwrap_or_default(),
    }
}

enum Call {
    Flux { topic: &'static str, payload: Value },
    Controller { method: &'static str, parameters: Value },
    Inspect { job: JobId, ranks: IdSet },
}

/// Makes the calls of these actions and returns their outcomes. A list of several calls contains only calls to the
/// controller.
async fn outcomes(socket: &Path, broker: &Broker, actions: &[Action], calls: Vec<Call>) -> Vec<Outcome> {
    let mut asked = Vec::new();
    for (action, call) in actions.iter().zip(calls) {
        match call {
            Call::Flux { topic, payload } => return vec![of_flux(action, broker.rpc(topic, &payload, 0).await)],
            Call::Inspect { job, ranks } => {
                return vec![Outcome::Inspected(inspect::inspect(broker, &job, &ranks).await)];
            }
            Call::Controller { method, parameters } => asked.push((method, without_nulls(&parameters))),
        }
    }
    ask(socket, &asked).await
}

/// Sends calls to the controller in one go, so that the controller can commit them at once. Returns the outcomes up to
/// the first failed call. The next plan decides about the calls after the failed one.
async fn ask(socket: &Path, calls: &[(&str, Value)]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let asked = async {
        let mut controller = Controller::connect(socket).await?;
        controller.send_all(calls).await?;
        for _ in calls {
            outcomes.push(Outcome::Done(controller.reply().await?.0));
        }
        Ok::<(), CallError>(())
    };
    if let Err(error) = asked.await {
        outcomes.push(of_controller(error));
    }
    outcomes
}

/// Reads the attempts of a few jobs from the controller. The result may be outdated; only the feed is current.
async fn attempts(socket: &Path, parameters: &Value) -> Result<Value, CallError> {
    let mut controller = Controller::connect(socket).await?;
    controller.call_more("Attempts", parameters).await?;
    let mut all = Vec::new();
    loop {
        let (reply, more) = controller.reply().await?;
        all.extend(reply["attempts"].as_array().cloned().unwrap_or_default());
        if !more {
            return Ok(json!({ "attempts": all, "current": false }));
        }
    }
}

fn without_nulls(parameters: &Value) -> Value {
    let members = parameters.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    Value::Object(members.map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn of_flux(action: &Action, answer: Result<Value, RpcError>) -> Outcome {
    let error = match answer {
        Ok(reply) => return Outcome::Done(reply),
        Err(error) => error,
    };
    match (action, error.errnum()) {
        (Action::Finish { .. }, Some(EALREADY)) => Outcome::Done(Value::Null),
        // The job has ended, or has passed this point in Flux: no part of Flux waits for the call.
        (Action::Finish { .. } | Action::Post { .. }, Some(ENOENT | EINVAL | EPROTO)) => {
            Outcome::Refused(error.to_string())
        }
        _ => Outcome::Failed(error.to_string()),
    }
}

fn of_controller(error: CallError) -> Outcome {
    match error {
        error if error.is_final() => Outcome::Refused(error.to_string()),
        CallError::Refused { code, text } if code == "unavailable" => Outcome::Quiet(text),
        error => Outcome::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn refused(errnum: u32) -> Result<Value, RpcError> {
        Err(RpcError::Refused { topic: "x".to_owned(), errnum, text: String::new() })
    }

    /// The edge sends a Run again if the feed still shows the state before the first Run. The edge's log gets a line
    /// for the first Run only, with job and hosts.
    #[test]
    fn an_action_that_begins_is_logged_once() {
        let mut view = View::new(Default::default());
        let r =
            json!({"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {}}], "nodelist": ["n[0-1]"]}});
        let mut job = Job::new(6_731_191_091_817_518);
        job.set_r(&r);
        view.jobs.insert(job.id, job);
        let (id, job, attempt) =
            (6_731_191_091_817_518, Fluid(6_731_191_091_817_518).job(), perilog_core::Attempt::FIRST);
        let run = Action::Run { id, job, attempt, what: Reference::Prolog };
        let summary = |reply: Value| line(&run, &reply).map(|line| format!("{}: {line}", subject(&view, &run)));
        assert_eq!(summary(json!({"attached": false})).as_deref(), Some("fuZZybuNNy on n[0-1]: prolog begins"));
        assert_eq!(summary(json!({"attached": true})), None);
    }

    #[test]
    fn an_answer_that_never_changes_is_not_asked_for_again() {
        let finish = Action::Finish { id: 1, what: Reference::Prolog, status: 0 };
        let drain =
            Action::Drain { host: perilog_core::HostName::new("n0").unwrap(), reason: String::new(), overwrite: false };
        for (action, answer, expect) in [
            (&finish, Ok(Value::Null), "done"),
            (&finish, refused(EALREADY), "done"),
            (&finish, refused(ENOENT), "refused"),
            (&finish, refused(EINVAL), "refused"),
            // job-manager is not loaded yet.
            (&finish, refused(38), "failed"),
            (&finish, Err(RpcError::Late("x".to_owned())), "failed"),
            (&drain, refused(EINVAL), "failed"),
        ] {
            let outcome = match of_flux(action, answer) {
                Outcome::Done(_) => "done",
                Outcome::Refused(_) => "refused",
                _ => "failed",
            };
            assert_eq!(outcome, expect, "{action:?}");
        }
    }

    /// The edge makes several calls at once, and one of them fails. The edge drops the answers to the calls after it,
    /// although the controller has handled those calls too: the next plan decides about them.
    #[tokio::test]
    async fn a_call_behind_one_that_failed_has_no_outcome() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("controller.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let done = json!({ "parameters": {} }).to_string();
        let refused = |code: &str| {
            let parameters = json!({ "code": code, "text": "no" });
            json!({ "error": "io.perilog.Controller.Refused", "parameters": parameters }).to_string()
        };
        for (answers, expect) in [
            ([done.clone(), done.clone()], "done done"),
            ([refused("invalid"), done.clone()], "refused"),
            ([done.clone(), refused("unavailable")], "done quiet"),
            ([refused("no-such-job"), refused("no-such-job")], "failed"),
        ] {
            let calls = [("JobAdd", json!({})), ("Run", json!({}))];
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = Vec::new();
                while asked.iter().filter(|byte| **byte == 0).count() < calls.len() {
                    stream.read_buf(&mut asked).await.unwrap();
                }
                stream.write_all((answers.join("\0") + "\0").as_bytes()).await.unwrap();
            };
            let (outcomes, ()) = tokio::join!(ask(&socket, &calls), serve);
            let words = outcomes.iter().map(|outcome| match outcome {
                Outcome::Done(_) => "done",
                Outcome::Refused(_) => "refused",
                Outcome::Failed(_) => "failed",
                Outcome::Quiet(_) => "quiet",
                Outcome::Inspected(_) => "inspected",
            });
            assert_eq!(words.collect::<Vec<_>>().join(" "), expect);
        }
    }
}
