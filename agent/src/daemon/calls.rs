//! D-Bus calls for the machine: each call runs in a tokio task of its own, and the answer returns as an input.
//!
//! A call belongs to its connection. Once a new connection is up, the machine learns all units anew, so this module
//! drops answers from the old connection.

use std::sync::Arc;

use perilog_core::agent::io::{HookCall, Input, Seen, StartReply};
use perilog_core::ids::TaskId;
use perilog_core::task::{Intent, UnitFacts};
use perilog_host::fault;
use tokio::sync::{Semaphore, mpsc};

use super::orphaned_hook;
use crate::spool::{Spool, Traces};
use crate::systemd::{Bus, BusError, runner};

/// An answer to a call. `connection`: the number of the D-Bus connection that the call used; `None` for a call that
/// used none.
pub(super) struct Answer {
    connection: Option<u64>,
    input: Input,
}

/// The current D-Bus connection, and the channel through which answers of calls reach the agent's event loop.
pub(super) struct Calls {
    bus: Option<Bus>,
    /// The number of the current connection, which grows with each connection of this agent.
    connection: u64,
    answers: mpsc::Sender<Answer>,
    unanswered: Arc<Semaphore>,
}

/// Maximum number of D-Bus calls under way at once that send a Unix signal to a unit. Bounds a controller that sends
/// signals without end; a task needs a few.
const MAX_UNANSWERED: usize = 1_024;

const NO_BUS: &str = "there is no connection to the system bus";

impl Calls {
    pub(super) fn new(answers: mpsc::Sender<Answer>) -> Self {
        Self { bus: None, connection: 0, answers, unanswered: Arc::new(Semaphore::new(MAX_UNANSWERED)) }
    }

    pub(super) fn connected(&mut self, bus: Bus) {
        self.bus = Some(bus);
        self.connection += 1;
    }

    pub(super) fn lost(&mut self) {
        self.bus = None;
    }

    /// Returns the input in an answer; `None` for an answer from an earlier connection.
    pub(super) fn input(&self, answer: Answer) -> Option<Input> {
        answer.connection.is_none_or(|connection| connection == self.connection).then_some(answer.input)
    }

    /// Starts a task's unit (StartTransientUnit), and returns `None`: the reply reaches the machine later as
    /// `Input::Started`. Without a bus, returns that input at once, with an unknown result.
    pub(super) fn start(&self, stem: String, intent: Box<Intent>, since_boot_ms: u64) -> Option<Input> {
        let task = intent.start.task;
        let unknown = move || Input::Started { task, reply: StartReply::Unknown(NO_BUS.to_owned()) };
        self.answered(unknown, async move |bus| Input::Started {
            task,
            reply: bus.start(&stem, &intent, since_boot_ms).await,
        })
    }

    /// Starts an inspection of a task's unit, processes and files, and returns `None`: the result reaches the machine
    /// later as `Input::Inspected`. Without a bus, returns that input at once, with an error.
    pub(super) fn inspect(&self, spool: Spool, stem: String, task: TaskId) -> Option<Input> {
        let unknown = move || Input::Inspected { task, seen: Err(NO_BUS.to_owned()) };
        self.answered(unknown, async move |bus| {
            let seen = inspect(&bus, &spool, &stem).await.map_err(|error| error.to_string());
            Input::Inspected { task, seen }
        })
    }

    /// Watches a unit, normally one that an earlier connection started, so that the agent inspects its task after each
    /// change. Without a bus the call has no effect: the next connection lists all units anyway.
    pub(super) fn watch(&self, stem: String) {
        if let Some(bus) = self.bus.clone() {
            tokio::spawn(async move { bus.watch(&stem).await });
        }
    }

    pub(super) fn signal(&self, stem: String, signal: u8) {
        self.spawned("signal the runner", stem, async move |bus, stem| bus.signal_runner(&stem, signal).await);
    }

    pub(super) fn kill_all(&self, stem: String) {
        self.spawned("kill the lingering processes", stem, async move |bus, stem| bus.kill_all(&stem).await);
    }

    /// Starts to unload a unit that has ended, and returns `None`: the result reaches the machine later as
    /// `Input::Unloaded`. Without a bus, returns that input at once, with an error.
    pub(super) fn unload(&self, stem: String) -> Option<Input> {
        let of = stem.clone();
        let unknown = move || Input::Unloaded { stem: of, result: Err(NO_BUS.to_owned()) };
        self.answered(unknown, async move |bus| {
            let result = bus.unload(&stem).await.map_err(|error| error.to_string());
            Input::Unloaded { stem, result }
        })
    }

    /// Runs the site's program for an orphaned hook in a tokio task. The result reaches the machine later as
    /// `Input::HookCalled`.
    pub(super) fn call_hook(&self, call: Box<HookCall>) {
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let result = orphaned_hook::run(&call).await;
            let input = Input::HookCalled { task: call.task, event: call.event, result };
            // The loop has ended and needs no answer.
            let _ = answers.send(Answer { connection: None, input }).await;
        });
    }

    pub(super) fn forget(&self, stem: &str) {
        if let Some(bus) = &self.bus {
            bus.forget(stem);
        }
    }

    pub(super) fn forget_unit(&self, stem: &str) {
        if let Some(bus) = &self.bus {
            bus.forget_unit(stem);
        }
    }

    /// Makes a D-Bus call in a tokio task, without an answer for the machine: the next inspection of the task shows the
    /// call's effect. Only logs if there is no bus, or if [`MAX_UNANSWERED`] such calls are under way.
    fn spawned<F, R>(&self, doing: &'static str, stem: String, call: F)
    where
        F: FnOnce(Bus, String) -> R + Send + 'static,
        R: Future<Output = Result<(), BusError>> + Send + 'static,
    {
        let Some(bus) = self.bus.clone() else {
            tracing::warn!(unit = stem, "cannot {doing} of {stem}: {NO_BUS}");
            return;
        };
        let Ok(under_way) = self.unanswered.clone().try_acquire_owned() else {
            tracing::debug!(unit = stem, "does not {doing} of {stem}: {MAX_UNANSWERED} such calls are under way");
            return;
        };
        tokio::spawn(async move {
            let _under_way = under_way;
            if let Err(error) = call(bus, stem.clone()).await {
                tracing::warn!(unit = stem, "cannot {doing} of {stem}: {error}");
            }
        });
    }

    fn answered<F, R>(&self, unknown: impl FnOnce() -> Input, call: F) -> Option<Input>
    where
        F: FnOnce(Bus) -> R + Send + 'static,
        R: Future<Output = Input> + Send + 'static,
    {
        let Some(bus) = self.bus.clone() else { return Some(unknown()) };
        let (answers, connection) = (self.answers.clone(), self.connection);
        tokio::spawn(async move {
            let input = call(bus).await;
            // The loop has ended and needs no answer.
            let _ = answers.send(Answer { connection: Some(connection), input }).await;
        });
        None
    }
}

/// Inspects a task. Reads the unit first, then the unit's processes, then the files: once a unit has ended, the files
/// are complete.
async fn inspect(bus: &Bus, spool: &Spool, stem: &str) -> Result<Seen, BusError> {
    let (unit, unit_ids, processes) = bus.inspect(stem).await?;
    let deaf = unit.as_ref().and_then(|unit| bus.deaf(unit));
    let runner = unit.as_ref().and_then(|unit| runner::shown(unit.main_pid));
    let Traces { claim, result, steps, tails, stop_asked } = spool.traces(stem, unit.as_ref().is_some_and(runs));
    fault::point_if("claim-seen", || claim.is_some());
    let gone = !spool.has(stem);
    Ok(Seen { unit, unit_ids, processes, claim, result, steps, tails, stop_asked, deaf, runner, gone })
}

/// Returns `true` if the unit's main process is running, or about to start.
pub(super) fn runs(unit: &UnitFacts) -> bool {
    unit.main_pid != 0 || unit.is_to_start()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn without_a_bus_calls_fail_and_old_answers_are_dropped() {
        let (answers, _queue) = mpsc::channel(1);
        let mut calls = Calls::new(answers);
        let intent = testing::intent();
        let task = intent.start.task;
        let started = calls.start("x".to_owned(), Box::new(intent), 0);
        assert!(matches!(started, Some(Input::Started { reply: StartReply::Unknown(_), .. })), "{started:?}");
        let answer = |connection| Answer { connection: Some(connection), input: Input::TaskChanged { task } };
        assert!(calls.input(answer(0)).is_some(), "the bus is lost, and nothing was joined since");
        calls.connection += 1;
        assert!(calls.input(answer(0)).is_none());
    }
}
