//! Samples for the tests that freeze what is on disk: every outcome, and an end with every field. The store's tests use
//! this file, too.
//!
//! A list of [`variants!`] that lacks a variant does not compile; [`assert_complete`] fails if the samples lack one. A
//! sample that lacks a field does not compile; [`assert_set`] fails if the field says nothing.

use std::collections::BTreeSet;
use std::fmt::Debug;

use perilog_core::outcome::{ExitStatus, Failure, Loss, Outcome};
use perilog_core::task::{Check, Ended, Process, Step, Tail};

/// A type each of whose variants needs a sample.
pub(crate) trait Variants {
    const ALL: &'static [&'static str];

    fn variant(&self) -> &'static str;
}

/// Implements [`Variants`] for types from the patterns of their variants.
macro_rules! variants {
    ($($type:ident { $($variant:pat),+ $(,)? })+) => {$(
        impl Variants for $type {
            const ALL: &'static [&'static str] = &[$(stringify!($variant)),+];

            fn variant(&self) -> &'static str {
                match self {
                    $($variant => stringify!($variant)),+
                }
            }
        }
    )+};
}
pub(crate) use variants;

variants! {
    ExitStatus { Self::Exit(_), Self::Signal(_) }
    Failure {
        Self::Exit(_), Self::Signal(_), Self::Oom, Self::Exec(_), Self::Configuration(_), Self::Unit(_),
        Self::NoResult(_), Self::Reported,
    }
    Loss { Self::Rebooted, Self::Vanished, Self::Unreachable, Self::Offline, Self::UnknownNode, Self::Lease }
    Outcome {
        Self::Ok, Self::Tolerable, Self::Failed { .. }, Self::Timeout { .. }, Self::Cancelled { .. }, Self::Lost { .. },
        Self::Refused { .. }, Self::Resolved { .. },
    }
}

/// Fails unless each variant of the type is among the samples.
pub(crate) fn assert_complete<'a, T: Variants + 'a>(samples: impl IntoIterator<Item = &'a T>) {
    let found: BTreeSet<&str> = samples.into_iter().map(T::variant).collect();
    assert_eq!(found, T::ALL.iter().copied().collect(), "each variant needs a sample");
}

/// Fails if a field of the sample is empty, zero or false: its member would be missing in the frozen bytes, or say
/// nothing.
pub(crate) fn assert_set(sample: &impl Debug) {
    let text = format!("{sample:?}");
    let nothing = [": None", ": false", ": 0,", ": 0 }", ": \"\"", ": []", ": {}"];
    let found: Vec<&str> = nothing.into_iter().filter(|of| text.contains(of)).collect();
    assert_eq!(found, [""; 0], "{text}");
}

/// Returns every outcome with a name.
pub(crate) fn outcomes() -> Vec<(&'static str, Outcome)> {
    let failed = |why| Outcome::Failed { why };
    let lost = |why| Outcome::Lost { why };
    let resolved = |ok| Outcome::Resolved { ok, reason: "the node was replaced".to_owned(), by: 1001 };
    vec![
        ("ok", Outcome::Ok),
        ("tolerable", Outcome::Tolerable),
        ("failed-exit", failed(Failure::Exit(3))),
        ("failed-signal", failed(Failure::Signal(9))),
        ("failed-oom", failed(Failure::Oom)),
        ("failed-exec", failed(Failure::Exec("10-mount: no such interpreter".to_owned()))),
        ("failed-configuration", failed(Failure::Configuration("no such directory".to_owned()))),
        ("failed-unit", failed(Failure::Unit("start-limit-hit".to_owned()))),
        ("failed-no-result", failed(Failure::NoResult(Some(ExitStatus::Signal(11))))),
        ("failed-no-result-unknown", failed(Failure::NoResult(None))),
        ("failed-reported", failed(Failure::Reported)),
        ("timeout", Outcome::Timeout { status: Some(ExitStatus::Exit(124)) }),
        ("timeout-unknown", Outcome::Timeout { status: None }),
        ("cancelled", Outcome::Cancelled { status: Some(ExitStatus::Signal(15)) }),
        ("cancelled-unknown", Outcome::Cancelled { status: None }),
        ("lost-rebooted", lost(Loss::Rebooted)),
        ("lost-vanished", lost(Loss::Vanished)),
        ("lost-unreachable", lost(Loss::Unreachable)),
        ("lost-offline", lost(Loss::Offline)),
        ("lost-unknown-node", lost(Loss::UnknownNode)),
        ("lost-lease", lost(Loss::Lease)),
        ("refused", Outcome::Refused { why: "no such action".to_owned() }),
        ("resolved-ok", resolved(true)),
        ("resolved-failed", resolved(false)),
    ]
}

/// Fails unless the samples have every outcome, with every failure, loss and status.
pub(crate) fn assert_all_outcomes<'a>(samples: impl IntoIterator<Item = &'a Outcome>) {
    let (mut outcomes, mut failures, mut losses, mut statuses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for outcome in samples {
        outcomes.push(outcome);
        match outcome {
            Outcome::Failed { why } => {
                failures.push(why);
                statuses.extend(if let Failure::NoResult(status) = why { status.as_ref() } else { None });
            }
            Outcome::Timeout { status } | Outcome::Cancelled { status } => statuses.extend(status),
            Outcome::Lost { why } => losses.push(why),
            Outcome::Ok | Outcome::Tolerable | Outcome::Refused { .. } | Outcome::Resolved { .. } => {}
        }
    }
    assert_complete(outcomes);
    assert_complete(failures);
    assert_complete(losses);
    assert_complete(statuses);
}

/// Returns an end in which every field is set.
pub(crate) fn ended(outcome: Outcome) -> Ended {
    Ended {
        outcome,
        began_ms: Some(1_552_593_348_092),
        ended_ms: 1_552_593_349_000,
        elapsed_ms: Some(908),
        steps: vec![Step {
            script: "10-mount".to_owned(),
            digest: "e3b0c442".to_owned(),
            attempt: 2,
            began_ms: 1_552_593_348_100,
            elapsed_ms: 800,
            status: Some(ExitStatus::Exit(3)),
            tolerable: true,
            timed_out: true,
        }],
        checks: vec![Check { check: "lustre".to_owned(), message: "mount missing".to_owned() }],
        milestones: vec!["data-out".to_owned()],
        user_message: Some("your quota is full".to_owned()),
        expect_reboot: true,
        booted: true,
        lingering: vec![Process { pid: 4711, command: "sleep 60".to_owned() }],
        tails: vec![Tail { script: "10-mount".to_owned(), text: "mount: no such device\n".to_owned() }],
        forensics: Some("4711 D wait_on_page_bit".to_owned()),
        cpu_ns: Some(1_000_000),
        memory_peak: Some(1 << 20),
        dropped_env: 4,
        note: Some("unit and result differ".to_owned()),
        skipped: vec!["/etc/perilog/prolog.d/10-hello is skipped: not executable".to_owned()],
        empty: true,
        excused: true,
    }
}
