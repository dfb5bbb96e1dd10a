//! Strategies (proptest) for arbitrary messages that fit a frame.

use std::collections::BTreeMap;

use perilog_core::message::{Ask, FromAgent, Held, HeldState, Hello, Phase, ToAgent};
use perilog_core::outcome::{ExitStatus, Failure, Loss, Outcome};
use perilog_core::task::{Check, Ended, Process, Reboot, Start, Step, Tail};
use perilog_core::{
    ActionId, ActionName, Attempt, BootId, ClusterId, Commit, Epoch, HostList, HostName, IdSet, JobId, MachineId, Mark,
    MilestoneName, Rank, TaskId,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

fn text() -> impl Strategy<Value = String> {
    ".{0,40}"
}

prop_compose! { fn task()(id: u128,
rank: u32) -> TaskId { TaskId { action: ActionId(Uuid::from_u128(id)), rank: Rank(rank) } } }
prop_compose! { fn job()(id in "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}") -> JobId { JobId::new(&id).unwrap() } }
prop_compose! { fn action()(name in "[a-z][a-z0-9-]{0,31}") -> ActionName { ActionName::new(&name).unwrap() } }
prop_compose! { fn boot()(id in "[a-z0-9+-]{1,64}") -> BootId { BootId::new(&id).unwrap() } }
prop_compose! { fn attempt()(whole: u64,
nano in 0..1_000_000_000u32) -> Attempt { Attempt::from_parts(whole, nano).unwrap() } }
prop_compose! { fn epoch()(number: u64, nonce: u64) -> Epoch { Epoch { number, nonce } } }
prop_compose! { fn commit()(epoch in epoch(), number: u64) -> Commit { Commit { epoch, number } } }
prop_compose! { fn mark()(cluster: u128,
commit in commit()) -> Mark { Mark { cluster: ClusterId(Uuid::from_u128(cluster)),
    commit } } }
prop_compose! { fn ranks()(ids in vec(0..2000u32, 0..50)) -> IdSet { ids.into_iter().collect() } }
prop_compose! { fn hosts()(names in vec("[a-z]{1,3}[0-9]{0,3}(-ib)?",
0..20)) -> HostList { HostList::from_names(names).unwrap() } }

fn status() -> impl Strategy<Value = ExitStatus> {
    prop_oneof![any::<u8>().prop_map(ExitStatus::Exit), any::<u8>().prop_map(ExitStatus::Signal)]
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        any::<u8>().prop_map(Failure::Exit),
        any::<u8>().prop_map(Failure::Signal),
        Just(Failure::Oom),
        text().prop_map(Failure::Exec),
        text().prop_map(Failure::Configuration),
        text().prop_map(Failure::Unit),
        option::of(status()).prop_map(Failure::NoResult),
        Just(Failure::Reported),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let loss = [Loss::Rebooted, Loss::Vanished, Loss::Unreachable, Loss::Offline, Loss::UnknownNode, Loss::Lease];
    prop_oneof![
        Just(Outcome::Ok),
        Just(Outcome::Tolerable),
        failure().prop_map(|why| Outcome::Failed { why }),
        option::of(status()).prop_map(|status| Outcome::Timeout { status }),
        option::of(status()).prop_map(|status| Outcome::Cancelled { status }),
        proptest::sample::select(loss.to_vec()).prop_map(|why| Outcome::Lost { why }),
        text().prop_map(|why| Outcome::Refused { why }),
        (any::<bool>(), text(), any::<u32>()).prop_map(|(ok, reason, by)| Outcome::Resolved { ok, reason, by }),
    ]
}

prop_compose! {
    fn step()(
        script in text(), digest in text(), attempt: u32, began_ms: u64, elapsed_ms: u64,
        status in option::of(status()),
        tolerable: bool, timed_out: bool,
    ) -> Step {
        Step { script, digest, attempt, began_ms, elapsed_ms, status, tolerable, timed_out }
    }
}

prop_compose! { fn process()(pid: u32, command in text()) -> Process { Process { pid, command } } }

prop_compose! {
    fn ended()(
        outcome in outcome(),
        times in any::<(Option<u64>, u64, Option<u64>)>(),
        steps in vec(step(), 0..4),
        checks in vec((text(), text()).prop_map(|(check, message)| Check { check, message }), 0..4),
        milestones in vec(text(), 0..4),
        user_message in option::of(text()),
        expect_reboot: bool,
        booted: bool,
        lingering in vec(process(), 0..4),
        tails in vec((text(), text()).prop_map(|(script, text)| Tail { script, text }), 0..4),
        texts in (option::of(text()), option::of(text())),
        numbers in any::<(Option<u64>, Option<u64>, u32)>(),
        (skipped, empty, excused) in (vec(text(), 0..4), any::<bool>(), any::<bool>()),
    ) -> Ended {
        let ((began_ms, ended_ms, elapsed_ms), (forensics, note), (cpu_ns, memory_peak, dropped_env)) = (times, texts,
            numbers);
        Ended {
            outcome, began_ms, ended_ms, elapsed_ms, steps, checks, milestones, user_message, expect_reboot, booted,
            lingering, tails,
            forensics, cpu_ns, memory_peak, dropped_env, note, skipped, empty, excused,
        }
    }
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![
        text().prop_map(|why| Phase::Waiting { why }),
        Just(Phase::Starting),
        (text(), any::<u32>(), any::<u32>(), option::of(text()))
            .prop_map(|(script, index, of, progress)| { Phase::Running { script, index, of, progress } }),
        (text(), any::<u64>(), text()).prop_map(|(script, limit_ms, doing)| Phase::Overdue { script, limit_ms, doing }),
        vec(process(), 0..4).prop_map(|processes| Phase::Lingering { processes }),
    ]
}

fn held_state() -> impl Strategy<Value = HeldState> {
    prop_oneof![
        Just(HeldState::Unclaimed),
        (phase(), any::<u64>()).prop_map(|(phase, age_ms)| HeldState::Live { phase, age_ms }),
        Just(HeldState::Ended),
        (outcome(), any::<u64>(), select(vec![Reboot::None, Reboot::Expected, Reboot::Come, Reboot::Since]))
            .prop_map(|(outcome, past_ms, reboot)| HeldState::Tombstone { outcome, past_ms, reboot }),
    ]
}

prop_compose! {
    fn held()(
        task in task(), key in (job(), attempt(), action()), userid: Option<u32>, local: bool,
        state in held_state(), limit_ms: Option<u64>, commit in option::of(commit()),
    ) -> Held {
        let (job, attempt, action) = key;
        Held { task, job, attempt, action, userid, commit, limit_ms, local, state }
    }
}

prop_compose! {
    fn hello()(
        host in "[a-z0-9][a-z0-9.-]{0,60}", machine in "[a-f0-9]{32}", boot in boot(), link: u64, version in text(),
        actions in option::of(btree_set(action(), 0..5)), newest in option::of(mark()),
        tasks in vec(held(), 0..5), more: bool,
    ) -> Hello {
        let (host, machine) = (HostName::new(&host).unwrap(), MachineId::new(&machine).unwrap());
        Hello { host, machine, boot, link, version, actions, newest, tasks, more }
    }
}

prop_compose! {
    pub(crate) fn start()(
        task in task(), key in (job(), attempt(), action()), boot in boot(), not_after_ms: u64, ranks in ranks(),
        hosts in hosts(),
        userid: Option<u32>, env in btree_map("[A-Z_]{1,8}", text(), 0..5), timeout_ms: Option<u64>, after: bool,
        milestones in btree_set("[a-z0-9][a-z0-9.-]{0,8}", 0..5), commit: u64,
    ) -> Start {
        let (job, attempt, action) = key;
        let env: BTreeMap<String, String> = env;
        let milestones = milestones.iter().map(|name| MilestoneName::new(name).unwrap()).collect();
        Start { task, job, attempt, action, boot, not_after_ms, ranks, hosts, userid, env, timeout_ms, after,
               milestones, commit }
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    let logs = (job(), option::of(action()), option::of(attempt()), any::<Option<u32>>(), any::<u32>());
    prop_oneof![
        logs.prop_map(|(job, action, attempt, rank, lines)| Ask::Logs { job, action, attempt, rank, lines }),
        Just(Ask::Status),
    ]
}

pub(crate) fn to_agent() -> impl Strategy<Value = ToAgent> {
    prop_oneof![
        (epoch(), any::<u128>(), any::<u64>(), any::<u64>()).prop_map(|(epoch, cluster, redial_window_ms, commit)| {
            ToAgent::Welcome { epoch, cluster: ClusterId(Uuid::from_u128(cluster)), redial_window_ms, commit }
        }),
        text().prop_map(|why| ToAgent::TurnedAway { why }),
        start().prop_map(ToAgent::Start).boxed(),
        task().prop_map(|task| ToAgent::Begin { task }),
        (task(), job(), attempt(), action(), text(), any::<u64>()).prop_map(
            |(task, job, attempt, action, why, commit)| ToAgent::Cancel { task, job, attempt, action, why, commit }
        ),
        (task(), 1..=64u8).prop_map(|(task, signal)| ToAgent::Signal { task, signal }),
        (task(), any::<u64>()).prop_map(|(task, commit)| ToAgent::Ack { task, commit }),
        task().prop_map(|task| ToAgent::BootExpected { task }),
        vec(task(), 0..20).prop_map(|tasks| ToAgent::Forget { tasks }),
        any::<u64>().prop_map(|nonce| ToAgent::Probe { nonce }),
        (any::<u64>(), ask()).prop_map(|(question, ask)| ToAgent::Ask { question, ask }),
        any::<u32>().prop_map(|message| ToAgent::Unsupported { message }),
    ]
}

pub(crate) fn from_agent() -> impl Strategy<Value = FromAgent> {
    prop_oneof![
        // On the heap: the stack of a test's thread has room for two messages as they are, and no more.
        hello().prop_map(FromAgent::Hello).boxed(),
        epoch().prop_map(|seen| FromAgent::EpochRefused { seen }),
        (task(), any::<Option<u64>>()).prop_map(|(task, limit_ms)| FromAgent::Accepted { task, limit_ms }),
        (task(), phase(), any::<u64>()).prop_map(|(task, phase, age_ms)| FromAgent::PhaseChanged {
            task,
            phase,
            age_ms
        }),
        (task(), text()).prop_map(|(task, name)| FromAgent::Milestone { task, name }),
        (task(), ended()).prop_map(|(task, ended)| FromAgent::Finished { task, ended: Box::new(ended) }).boxed(),
        (task(), any::<Option<u64>>(), ended()).prop_map(|(task, within_ms, ended)| FromAgent::ExpectsBoot {
            task,
            within_ms,
            ended: Box::new(ended)
        }),
        any::<u64>().prop_map(|nonce| FromAgent::Probed { nonce }),
        (any::<u64>(), text(), any::<bool>()).prop_map(|(question, text, last)| FromAgent::Answer {
            question,
            text,
            last
        }),
        any::<u32>().prop_map(|message| FromAgent::Unsupported { message }),
    ]
}
