//! Bed: the agent's machine under test. A test hands in an input, and names all effects that the input must have, in
//! order.

use crate::agent::io::{Effect, Input, Node, Now};
use crate::agent::machine::Machine;
use crate::ids::TaskId;

use super::effect_text::{effect_text, name};
use super::values::*;

pub(super) struct Bed {
    pub(super) machine: Machine,
    pub(super) now: Now,
    /// Whether the bed answers each `Unload` at once; the effects of that answer then count as effects of the input.
    pub(super) unloads: bool,
    /// Whether [`Self::check`] also compares the ticks that the agent requests to check a running task's limit. If
    /// `false`, it leaves them out of the effects.
    pub(super) watches: bool,
}

impl Bed {
    /// Makes a machine that has had no input yet.
    pub(super) fn cold() -> Self {
        Self::of(node())
    }

    pub(super) fn of(node: Node) -> Self {
        crate::switch_on_defect!(crate::defect::chosen());
        Self { machine: Machine::new(node), now: Now::default(), unloads: true, watches: false }
    }

    /// Makes a machine that found no tasks on its host and accepts the controller of epoch 1.
    pub(super) fn up() -> Self {
        Self::up_as(node())
    }

    pub(super) fn up_as(node: Node) -> Self {
        let mut bed = Self::of(node);
        bed.check(joined(vec![], vec![]), &[]);
        bed.connect(&["hello 1 []"], &["redial 1000"]);
        bed
    }

    /// Opens the agent's first session, of epoch 1. `hello`, `then`: the expected effects of the connect and of the
    /// opened session.
    pub(super) fn connect(&mut self, hello: &[&str], then: &[&str]) {
        self.check(Input::LinkUp { counter: 1 }, hello);
        self.check(welcome(1), &["write-epoch 1"]);
        self.check(epoch_written(1), then);
    }

    /// Ends the session and opens another one of epoch 1, with the Hello `hello` and then the effects `then`.
    pub(super) fn reconnect(&mut self, hello: &str, then: &[&str]) {
        self.check(Input::LinkDown, &[]);
        self.check(Input::LinkUp { counter: 2 }, &[hello]);
        self.check(welcome(1), then);
    }

    /// Opens the first session of the agent, and ignores its effects.
    pub(super) fn connect_any(&mut self) {
        self.feed(Input::LinkUp { counter: 1 });
        self.feed(welcome(1));
        self.feed(epoch_written(1));
    }

    /// Ends the session and opens another one; ignores the Hello, and asserts the effects `then`.
    pub(super) fn reconnect_any(&mut self, then: &[&str]) {
        self.check(Input::LinkDown, &[]);
        self.feed(Input::LinkUp { counter: 3 });
        self.check(welcome(1), then);
    }

    pub(super) fn feed(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = self.machine.handle(input, self.now);
        let unloads = |effect: &Effect| match effect {
            Effect::Unload { stem } => Some(Input::Unloaded { stem: stem.clone(), result: Ok(()) }),
            _ => None,
        };
        let answers: Vec<Input> = effects.iter().filter(|_| self.unloads).filter_map(unloads).collect();
        for answer in answers {
            effects.extend(self.machine.handle(answer, self.now));
        }
        effects
    }

    /// Hands in `input`, asserts that its effects are `expect`, and returns them. An expectation that ends in `*`
    /// matches any continuation.
    #[track_caller]
    pub(super) fn check(&mut self, input: Input, expect: &[&str]) -> Vec<Effect> {
        let shown = format!("{input:?}");
        let effects = self.feed(input);
        let watched = self.machine.tasks.values().filter_map(|task| task.watch_at()).min();
        let of_watch = |effect: &&Effect| matches!(effect, Effect::WakeAt { boot_ms } if Some(*boot_ms) == watched);
        let got: Vec<String> = effects.iter().filter(|it| self.watches || !of_watch(it)).map(effect_text).collect();
        let fits = |(got, expect): (&String, &&str)| match expect.strip_suffix('*') {
            Some(start) => got.starts_with(start),
            None => got == expect,
        };
        assert!(
            got.len() == expect.len() && got.iter().zip(expect).all(fits),
            "{shown}\n  gave {got:#?}\n  not  {expect:#?}"
        );
        effects
    }

    #[track_caller]
    pub(super) fn checks<const N: usize>(&mut self, table: [(Input, &[&str]); N]) {
        for (input, expect) in table {
            self.check(input, expect);
        }
    }

    /// Lets `ms` milliseconds pass, then hands in a tick and asserts its effects `expect`.
    #[track_caller]
    pub(super) fn pass(&mut self, ms: u64, expect: &[&str]) {
        self.now.boot_ms += ms;
        self.now.wall_ms += ms;
        self.check(Input::Tick, expect);
    }

    /// Makes a live task: hands in its Start, the answer to each effect, and last systemd's answer that it has queued
    /// the start of the unit.
    #[track_caller]
    pub(super) fn live(&mut self, j: &str, attempt: u64, a: &str, rank: u32) -> TaskId {
        let (id, name) = (task(j, attempt, a, rank), name(task(j, attempt, a, rank)));
        self.check(start_message(j, attempt, a, rank), &[&format!("write-intent {name}")]);
        self.check(intent_written(id), &[&format!("accepted {name}"), &format!("start-unit {name}")]);
        self.check(queued(id), &[]);
        id
    }

    /// Makes a live task whose runner has the claim.
    #[track_caller]
    pub(super) fn claimed(&mut self, j: &str, attempt: u64, a: &str, rank: u32) -> TaskId {
        let id = self.live(j, attempt, a, rank);
        self.check(task_changed(id), &[&format!("inspect {}", name(id))]);
        self.check(inspected(id, seen_running(&intent(j, attempt, a, rank), 1)), &[]);
        id
    }

    /// Makes a claimed task whose unit ended with exit status `code`, with its outcome on disk; `then`: the expected
    /// effects of that write.
    #[track_caller]
    pub(super) fn ended(&mut self, j: &str, attempt: u64, a: &str, code: u8, then: &[&str]) -> TaskId {
        let id = self.live(j, attempt, a, 0);
        self.feed(task_changed(id));
        self.feed(inspected(id, seen_exited(&intent(j, attempt, a, 0), 1, code)));
        self.check(outcome_written(id), then);
        id
    }

    /// Makes a task that ended with `ok`, whose end the controller has acknowledged, and of which only the tombstone is
    /// left.
    #[track_caller]
    pub(super) fn tombstone_written(&mut self, j: &str, attempt: u64, a: &str) -> TaskId {
        let name = name(task(j, attempt, a, 0));
        let id = self.ended(j, attempt, a, 0, &[&format!("unload {name}"), &format!("finished {name} ok")]);
        self.check(ack(id), &[&format!("write-tombstone {name} ok")]);
        self.check(tombstone_written(id), &[]);
        id
    }
}
