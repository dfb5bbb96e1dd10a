//! Tests of the judge: tables with a row for each kind of evidence of a task.

use super::*;
use crate::agent::tests::values::{intent, invocation};
use crate::outcome::{ExitStatus::*, Failure as F};
use crate::task::{Check, Report};

const CLAIMED: u8 = 1;
const OTHER: u8 = 2;

/// Returns the facts of a loaded unit that has ended, with the claim's invocation.
fn unit(result: &str, main_code: i32, main_status: i32) -> UnitFacts {
    UnitFacts {
        loaded: true,
        active: if result == "success" { "active" } else { "failed" }.to_owned(),
        result: result.to_owned(),
        main_code,
        main_status,
        invocation: Some(invocation(CLAIMED)),
        ..UnitFacts::default()
    }
}

fn exited(code: u8) -> UnitFacts {
    unit(if code == 0 { "success" } else { "exit-code" }, 1, i32::from(code))
}

/// Returns a complete result with the claim's invocation and this exit status.
fn result(status: u8) -> RunResult {
    RunResult {
        invocation: invocation(CLAIMED),
        began_ms: 10,
        ended_ms: 30,
        elapsed_ms: 20,
        ran: 2,
        of: 2,
        status,
        worst: (status != 0).then_some(Exit(status)),
        timed_out: false,
        cancelled: false,
        configuration: None,
        exec: None,
        skipped: Vec::new(),
    }
}

fn evidence<'a>(unit: Option<&'a UnitFacts>, claim: Option<&'a Claim>, result: Option<&'a RunResult>) -> Evidence<'a> {
    Evidence { unit, claim, result, steps: &[], tails: &[], lingering: &[], cancelled: false }
}

fn ended(evidence: &Evidence<'_>) -> Ended {
    judge(evidence, &intent("j", 1, "prolog", 0), 99)
}

fn failed(why: F) -> Outcome {
    Outcome::Failed { why }
}

const LOST: Outcome = Outcome::Lost { why: Loss::Vanished };

#[test]
fn ok_needs_everything_and_anything_missing_is_something_else() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let fine = (exited(0), result(0));
    let with_unit = |change: fn(&mut UnitFacts)| {
        let mut changed = fine.clone();
        change(&mut changed.0);
        changed
    };
    let with_result = |change: fn(&mut RunResult)| {
        let mut changed = fine.clone();
        change(&mut changed.1);
        changed
    };
    #[rustfmt::skip]
    let table = [
        ("all of it", fine.clone(), Outcome::Ok),
        // If the judge does not believe the unit, the runner's result counts.
        ("a unit that is not loaded", with_unit(|u| u.loaded = false), Outcome::Ok),
        ("a unit whose start is pending", with_unit(|u| { u.job_pending = true; u.main_code = 0 }), Outcome::Ok),
        ("a unit of another invocation", with_unit(|u| u.invocation = Some(invocation(OTHER))), Outcome::Ok),
        // If the judge believes the unit, unit and result must agree.
        ("no main process", with_unit(|u| u.main_code = 0), failed(F::NoResult(None))),
        ("killed after its result", with_unit(|u| { u.main_code = 2; u.main_status = 9; u.result = "signal".into() }),
         failed(F::NoResult(Some(Signal(9))))),
        ("dumped after its result",
         with_unit(|u| { u.main_code = 3; u.main_status = 11; u.result = "core-dump".into() }),
         failed(F::NoResult(Some(Signal(11))))),
        ("a unit whose stop waits for its turn",
         with_unit(|u| { u.job_pending = true; u.main_status = 5; u.result = "exit-code".into() }), failed(F::Exit(5))),
        ("another status than its result", with_unit(|u| { u.main_status = 5; u.result = "exit-code".into() }),
         failed(F::Exit(5))),
        ("out of memory with status 0", with_unit(|u| u.result = "oom-kill".into()), failed(F::Oom)),
        ("a time-out of systemd's with status 0", with_unit(|u| u.result = "timeout".into()),
         failed(F::Unit("timeout".into()))),
        ("a status beyond a byte", with_unit(|u| { u.main_status = 256; u.result = "exit-code".into() }),
         failed(F::Exit(255))),
        // Errors in the runner's result.
        ("a result of another invocation", with_result(|r| r.invocation = invocation(OTHER)),
         failed(F::NoResult(Some(Exit(0))))),
        ("not every script ran", with_result(|r| r.ran = 1), failed(F::Exec("only 1 of 2 scripts ran".into()))),
        ("past its limit", with_result(|r| r.timed_out = true), Outcome::Timeout { status: None }),
        ("a configuration that is none", with_result(|r| r.configuration = Some("no directory".into())),
         failed(F::Configuration("no directory".into()))),
        ("a script that cannot be executed", with_result(|r| r.exec = Some("10-x".into())),
         failed(F::Exec("10-x".into()))),
        ("status 0 beside a worst script", with_result(|r| r.worst = Some(Signal(6))), failed(F::Signal(6))),
        ("cancelled after the last script", with_result(|r| r.cancelled = true), Outcome::Ok),
        ("stopped before the last script", with_result(|r| { r.cancelled = true; r.ran = 1 }), failed(F::Signal(15))),
    ];
    for (what, (unit, result), expect) in table {
        assert_eq!(ended(&evidence(Some(&unit), Some(&runner), Some(&result))).outcome, expect, "{what}");
    }
}

#[test]
fn without_a_result_the_unit_speaks_and_never_says_ok() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let no_claim = |code| Outcome::Refused {
        why: format!(
            "its runner stopped before it ran any script (exit {code}): see journalctl -u 'perilog-task-prolog-j-*' on \
             that node"
        ),
    };
    let why = "its runner could not write to /run/perilog, and ran no script (exit 73): is /run full (df /run; df -i \
               /run)?";
    let no_room = Outcome::Refused { why: why.to_owned() };
    let before = "systemd failed before the runner began";
    #[rustfmt::skip]
    let table = [
        // No claim: no script ran.
        (None, exited(66), no_claim(66)),
        (None, exited(73), no_room),
        (None, exited(75), no_claim(75)),
        // No readable claim: another program removed the claim.
        (None, exited(0), failed(F::NoResult(Some(Exit(0))))),
        (None, exited(3), failed(F::NoResult(Some(Exit(3))))),
        (None, exited(203), failed(F::Exec(
            "systemd cannot execute /usr/libexec/perilog/perilog-runner (exit 203): is it installed?".to_owned()
        ))),
        (None, exited(226), failed(F::Exec(format!("{before} (exit 226, see systemd.exec(5)): {DROP_INS}")))),
        (None, unit("signal", 2, 9), failed(F::NoResult(Some(Signal(9))))),
        (None, unit("oom-kill", 2, 9), failed(F::Oom)),
        (
            None,
            unit("resources", 0, 0),
            failed(F::Unit(format!("systemd never started its runner (result resources): {DROP_INS}"))),
        ),
        // Claimed: scripts may have run.
        (Some(&runner), exited(0), failed(F::NoResult(Some(Exit(0))))),
        (Some(&runner), exited(74), failed(F::NoResult(Some(Exit(74))))),
        (Some(&runner), exited(203), failed(F::NoResult(Some(Exit(203))))),
        (Some(&runner), unit("signal", 2, 9), failed(F::NoResult(Some(Signal(9))))),
        (Some(&runner), unit("oom-kill", 2, 9), failed(F::Oom)),
        (Some(&runner), unit("watchdog", 3, 6), failed(F::NoResult(Some(Signal(6))))),
    ];
    for (claim, unit, expect) in table {
        assert_eq!(ended(&evidence(Some(&unit), claim, None)).outcome, expect, "{claim:?} {unit:?}");
    }
}

#[test]
fn a_unit_that_is_gone_reads_success_and_is_not_believed() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let gone = UnitFacts { result: "success".to_owned(), ..UnitFacts::default() };
    let queued = UnitFacts { loaded: true, job_pending: true, active: "inactive".to_owned(), ..gone.clone() };
    for unit in [None, Some(&gone), Some(&queued)] {
        for claim in [None, Some(&runner)] {
            assert_eq!(ended(&evidence(unit, claim, None)).outcome, LOST, "{unit:?} {claim:?}");
        }
        let kept = ended(&evidence(unit, Some(&runner), Some(&result(3))));
        assert_eq!(kept.outcome, failed(F::Exit(3)));
        assert!(kept.note.unwrap().contains("the outcome is the runner's result"));
        // Without a claim, a result proves nothing.
        assert_eq!(ended(&evidence(unit, None, Some(&result(0)))).outcome, LOST);
    }
}

#[test]
fn an_agents_claim_decides_the_end_and_never_a_success() {
    let refused = Outcome::Refused { why: "late".to_owned() };
    for (claim, expect) in [
        (Claim::Cancelled, Outcome::Cancelled { status: None }),
        (Claim::Withdrawn(refused.clone()), refused),
        (Claim::Withdrawn(failed(F::Unit("no".to_owned()))), failed(F::Unit("no".to_owned()))),
        (Claim::Withdrawn(Outcome::Ok), LOST),
        (Claim::Withdrawn(Outcome::Tolerable), LOST),
        (Claim::Withdrawn(Outcome::Resolved { ok: true, reason: String::new(), by: 0 }), LOST),
    ] {
        // Neither unit nor result can contradict the claim: nothing of this task ran.
        let (unit, result) = (exited(0), result(0));
        let evidence = evidence(Some(&unit), Some(&claim), Some(&result));
        assert_eq!(ended(&evidence).outcome, expect, "{claim:?}");
        // Nor can what is left of a damaged record of steps: this one made a success of a cancelled task.
        let steps = [reported_step(Report::ExpectReboot)];
        assert_eq!(ended(&Evidence { steps: &steps, ..evidence }).outcome, expect, "{claim:?}");
    }
}

#[test]
fn the_worse_of_unit_and_result_wins_and_both_are_shown() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let cancelled = RunResult { cancelled: true, worst: Some(Signal(15)), ..result(143) };
    let timed_out = RunResult { timed_out: true, ..result(3) };
    #[rustfmt::skip]
    let table = [
        (unit("success", 1, 0), result(3), failed(F::Exit(3)), "success (exit 0), the runner with failed (exit 3)"),
        (exited(9), result(3), failed(F::Exit(9)), "exit-code (exit 9), the runner with failed (exit 3)"),
        (exited(2), result(3), failed(F::Exit(3)), "exit-code (exit 2), the runner with failed (exit 3)"),
        (unit("signal", 2, 9), result(0), failed(F::NoResult(Some(Signal(9)))), "signal (signal KILL), the runner with \
                                                                                 ok"),
        (unit("signal", 2, 9), timed_out, failed(F::NoResult(Some(Signal(9)))),
         "signal (signal KILL), the runner with timeout (exit 3)"),
        // The kernel killed a process for lack of memory. systemd then sent TERM to all processes, and the runner
        // recorded a cancel.
        (unit("oom-kill", 1, 143), cancelled, failed(F::Oom),
         "oom-kill (exit 143), the runner with cancelled (signal TERM)"),
    ];
    for (unit, result, expect, note) in table {
        let ended = ended(&evidence(Some(&unit), Some(&runner), Some(&result)));
        assert_eq!(ended.outcome, expect, "{note}");
        assert_eq!(ended.note.unwrap(), format!("unit and result differ: the unit ended with {note}"));
    }
    assert_eq!(ended(&evidence(Some(&exited(3)), Some(&runner), Some(&result(3)))).note, None);
}

#[test]
fn only_the_runner_knows_whether_a_cancel_reached_the_scripts() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let asked = |unit: Option<UnitFacts>, result: Option<RunResult>| {
        ended(&Evidence { cancelled: true, ..evidence(unit.as_ref(), Some(&runner), result.as_ref()) }).outcome
    };
    // The task ended by itself; the cancel came too late.
    assert_eq!(asked(Some(exited(3)), Some(result(3))), failed(F::Exit(3)));
    assert_eq!(asked(Some(exited(0)), Some(result(0))), Outcome::Ok);
    let stopped = RunResult { cancelled: true, worst: Some(Signal(15)), ..result(143) };
    assert_eq!(asked(Some(exited(143)), Some(stopped)), Outcome::Cancelled { status: Some(Signal(15)) });
    // Without a result, the request to cancel is the best evidence.
    assert_eq!(asked(Some(unit("signal", 2, 15)), None), Outcome::Cancelled { status: Some(Signal(15)) });
    assert_eq!(asked(None, None), LOST);
}

/// Regression test: a script sent TERM to its own runner, or a person ran `systemctl stop` on the unit, and a script
/// ended with 37. perilog reported the task as cancelled and not as failed, so the node was not drained.
#[test]
fn a_term_that_nobody_asked_perilog_for_is_a_failure() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let steps = [StepRecord::Cancelled { at_ms: 1 }];
    let reported = |worst, status| RunResult { cancelled: true, worst, ran: 1, of: 2, ..result(status) };
    for (unit, result, expect, by_us) in [
        (exited(37), Some(reported(Some(Exit(37)), 37)), failed(F::Exit(37)), Some(Exit(37))),
        (exited(143), Some(reported(Some(Signal(15)), 143)), failed(F::Signal(15)), Some(Signal(15))),
        (exited(143), Some(reported(None, 143)), failed(F::Signal(15)), None),
        (unit("signal", 2, 9), None, failed(F::Signal(9)), Some(Signal(9))),
    ] {
        let uncancelled = Evidence { steps: &steps, ..evidence(Some(&unit), Some(&runner), result.as_ref()) };
        let stopped = ended(&uncancelled);
        assert_eq!(stopped.outcome, expect);
        assert!(stopped.note.is_some_and(|note| note.contains("but not by perilog")), "{unit:?}");
        let asked = ended(&Evidence { cancelled: true, ..uncancelled });
        assert_eq!((asked.outcome, asked.note), (Outcome::Cancelled { status: by_us }, None));
    }
}

fn begin(seq: u32, script: &str, attempt: u32) -> StepRecord {
    let (script, digest, user) = (script.to_owned(), "d".to_owned(), "root".to_owned());
    StepRecord::Begin { seq, script, digest, user, attempt, at_ms: 5, of: 2 }
}

fn end(seq: u32, code: u8, tolerable: bool) -> StepRecord {
    StepRecord::End {
        seq,
        script: "s".to_owned(),
        at_ms: 6,
        elapsed_ms: 1,
        status: Exit(code),
        tolerable,
        timed_out: false,
    }
}

fn reported_step(report: Report) -> StepRecord {
    StepRecord::Report { seq: 0, script: "a".to_owned(), at_ms: 5, report }
}

fn check(message: &str) -> StepRecord {
    reported_step(Report::Tolerable { check: "lustre".to_owned(), message: message.to_owned() })
}

#[test]
fn tolerable_is_ok_with_a_failed_check_and_nothing_else() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let many: Vec<StepRecord> =
        (0..400).flat_map(|i| [begin(i, "s", 1), end(i, u8::from(i == 399), i == 399)]).collect();
    #[rustfmt::skip]
    let table: [(&str, &[StepRecord], u8, Outcome); 7] = [
        ("nothing said", &[begin(0, "a", 1), end(0, 0, false)], 0, Outcome::Ok),
        ("a check", &[begin(0, "a", 1), check("no mount"), end(0, 0, false)], 0, Outcome::Tolerable),
        ("a check and a failure", &[begin(0, "a", 1), check("no mount"), end(0, 3, false)], 3, failed(F::Exit(3))),
        ("a script that may fail", &[begin(0, "a", 1), end(0, 3, true)], 0, Outcome::Tolerable),
        ("one that may fail, and then did not",
         &[begin(0, "a", 1), end(0, 3, true), begin(1, "a", 2), end(1, 0, false)], 0, Outcome::Ok),
        ("one of the same name in another directory",
         &[begin(0, "a", 1), end(0, 3, true), begin(1, "a", 1), end(1, 0, false)], 0, Outcome::Tolerable),
        ("one that no list has room for", &many, 0, Outcome::Tolerable),
    ];
    for (what, steps, status, expect) in table {
        let (unit, result) = (exited(status), result(status));
        let evidence = Evidence { steps, ..evidence(Some(&unit), Some(&runner), Some(&result)) };
        assert_eq!(ended(&evidence).outcome, expect, "{what}");
    }
}

#[test]
fn everything_that_was_recorded_is_reported() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let steps = [
        begin(0, "a", 1),
        check("no mount"),
        reported_step(Report::Milestone { name: "data-out".to_owned() }),
        reported_step(Report::User { message: "first".to_owned() }),
        reported_step(Report::User { message: "sorry".to_owned() }),
        reported_step(Report::ExpectReboot),
        StepRecord::Overdue {
            seq: 0,
            script: "a".to_owned(),
            at_ms: 6,
            limit_ms: 50,
            forensics: "state D".to_owned(),
            doing: String::new(),
        },
        end(0, 0, false),
        begin(1, "b", 1),
    ];
    let tails = [Tail { script: "b".to_owned(), text: "oops".to_owned() }];
    let lingering = [Process { pid: 7, command: "sleep".to_owned() }];
    let unit = UnitFacts { cpu_ns: Some(1), memory_peak: Some(2), ..exited(0) };
    let ran = result(0);
    let evidence = Evidence {
        steps: &steps,
        tails: &tails,
        lingering: &lingering,
        ..evidence(Some(&unit), Some(&runner), Some(&ran))
    };
    let ended = ended(&evidence);
    assert_eq!((ended.began_ms, ended.ended_ms, ended.elapsed_ms), (Some(10), 30, Some(20)));
    assert_eq!((ended.cpu_ns, ended.memory_peak), (Some(1), Some(2)));
    let step = |i: usize| (ended.steps[i].script.as_str(), ended.steps[i].status, ended.steps[i].elapsed_ms);
    assert_eq!((step(0), step(1)), (("a", Some(Exit(0)), 1), ("b", None, 0)));
    assert_eq!(ended.checks, [Check { check: "lustre".to_owned(), message: "no mount".to_owned() }]);
    assert_eq!(
        (ended.milestones.as_slice(), ended.user_message.as_deref()),
        (["data-out".to_owned()].as_slice(), Some("sorry"))
    );
    assert!(ended.expect_reboot);
    assert_eq!(ended.forensics.as_deref(), Some("a past its limit of 50ms:\nstate D\n"));
    assert_eq!((ended.tails.as_slice(), ended.lingering.as_slice()), (tails.as_slice(), lingering.as_slice()));
    assert_eq!(ended.note, None);
}

#[test]
fn numbers_of_a_result_that_is_not_believed_are_not_reported() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let steps = [begin(0, "a", 1)];
    let stale = RunResult { invocation: invocation(OTHER), ..result(0) };
    let unit = UnitFacts { invocation: Some(invocation(OTHER)), cpu_ns: Some(1), ..exited(0) };
    let evidence = Evidence { steps: &steps, ..evidence(Some(&unit), Some(&runner), Some(&stale)) };
    let ended = ended(&evidence);
    assert_eq!(
        (ended.outcome, ended.began_ms, ended.ended_ms, ended.elapsed_ms, ended.cpu_ns),
        (LOST, Some(5), 99, None, None)
    );
}

#[test]
fn what_is_reported_fits_a_frame_and_says_what_it_left_out() {
    let runner = Claim::Runner(invocation(CLAIMED));
    let long = "x".repeat(4096);
    let mut steps: Vec<StepRecord> = (0..500).flat_map(|i| [begin(i, &"n".repeat(255), 1), end(i, 0, false)]).collect();
    for _ in 0..256 {
        steps.push(check(&long));
        steps.push(reported_step(Report::Milestone { name: long.clone() }));
    }
    for i in 0..40 {
        steps.push(StepRecord::Overdue {
            seq: i,
            script: "a".to_owned(),
            at_ms: 0,
            limit_ms: 0,
            forensics: long.clone(),
            doing: String::new(),
        });
    }
    steps.push(reported_step(Report::User { message: "é".repeat(4096) }));
    let tails: Vec<Tail> = (0..300).map(|_| Tail { script: "s".to_owned(), text: long.clone() }).collect();
    let lingering: Vec<Process> = (0..3000).map(|pid| Process { pid, command: long.clone() }).collect();
    let (unit, ran) = (exited(0), result(0));
    let evidence = Evidence {
        steps: &steps,
        tails: &tails,
        lingering: &lingering,
        ..evidence(Some(&unit), Some(&runner), Some(&ran))
    };
    let ended = ended(&evidence);
    let bytes = serde_json::to_vec(&ended).unwrap().len();
    assert!(bytes < 600 * 1024, "{bytes}");
    let note = ended.note.unwrap();
    for part in ["of 500 steps", "of 256 checks", "of 256 milestones", "of 3000 processes", "of 300 tails", "forensics"]
    {
        assert!(note.contains(part), "{note}");
    }
    assert!(
        !ended.steps.is_empty() && !ended.checks.is_empty() && !ended.tails.is_empty() && !ended.lingering.is_empty()
    );
}

#[test]
fn an_announced_boot_ends_the_task_as_its_scripts_ended() {
    let announced = || reported_step(Report::ExpectReboot);
    let of = |of: u32, step| match step {
        StepRecord::Begin { seq, script, digest, user, attempt, at_ms, .. } => {
            StepRecord::Begin { seq, script, digest, user, attempt, at_ms, of }
        }
        other => other,
    };
    // The last of `seq + 1` scripts.
    let last = |seq: u32, script: &str, attempt| of(seq + 1, begin(seq, script, attempt));
    let cancelled = || StepRecord::Cancelled { at_ms: 9 };
    let overdue = StepRecord::Overdue {
        seq: 0,
        script: "a".to_owned(),
        at_ms: 6,
        limit_ms: 50,
        forensics: String::new(),
        doing: String::new(),
    };
    let termed = |seq| StepRecord::End {
        seq,
        script: "s".to_owned(),
        at_ms: 9,
        elapsed_ms: 1,
        status: Signal(15),
        tolerable: false,
        timed_out: false,
    };
    let not_run = StepRecord::NotRun { seq: 0, script: "a".to_owned(), at_ms: 5, why: "no such file".to_owned() };
    let timeout = |status| Outcome::Timeout { status };
    #[rustfmt::skip]
    let table = [
        ("it runs", vec![last(0, "a", 1), announced()], Outcome::Ok),
        ("it ended", vec![begin(0, "a", 1), announced(), end(0, 0, false), last(1, "b", 1)], Outcome::Ok),
        ("the shutdown ended it", vec![last(0, "a", 1), announced(), cancelled(), termed(0)], Outcome::Ok),
        ("others had not begun", vec![begin(0, "a", 1), announced()], Outcome::Lost { why: Loss::Rebooted }),
        ("it had failed, and others had not begun", vec![begin(0, "a", 1), announced(), end(0, 7, false)],
         failed(F::Exit(7))),
        ("it was not announced", vec![last(0, "a", 1), end(0, 0, false)], Outcome::Lost { why: Loss::Rebooted }),
        ("a check failed", vec![last(0, "a", 1), check("no mount"), announced()], Outcome::Tolerable),
        ("one before it failed", vec![begin(0, "a", 1), end(0, 3, false), last(1, "b", 1), announced()],
         failed(F::Exit(3))),
        ("one after it failed",
         vec![begin(0, "a", 1), announced(), end(0, 0, false), begin(1, "b", 1), end(1, 4, false), last(2, "c", 1)],
         failed(F::Exit(4))),
        ("one failed that may", vec![begin(0, "a", 1), end(0, 3, true), last(1, "b", 1), announced()],
         Outcome::Tolerable),
        ("the only one failed and was tried again",
         vec![of(1, begin(0, "a", 1)), end(0, 3, false), of(1, begin(1, "a", 2)), announced()], Outcome::Ok),
        ("one was tried again, and the other had not begun",
         vec![begin(0, "a", 1), end(0, 3, false), begin(1, "a", 2), announced()],
         Outcome::Lost { why: Loss::Rebooted }),
        ("one was tried again, and the other runs",
         vec![begin(0, "a", 1), end(0, 3, false), begin(1, "a", 2), end(1, 0, false), begin(2, "b", 1), announced()],
         Outcome::Ok),
        ("it failed itself", vec![begin(0, "a", 1), announced(), end(0, 7, false), last(1, "b", 1)],
         failed(F::Exit(7))),
        ("it was killed", vec![last(0, "a", 1), announced(), termed(0)], failed(F::Signal(15))),
        ("past a limit", vec![last(0, "a", 1), announced(), overdue.clone()], timeout(None)),
        ("past a limit, then shut down", vec![last(0, "a", 1), announced(), overdue, cancelled(), termed(0)],
         timeout(None)),
        ("one could not be executed", vec![not_run, last(1, "b", 1), announced()],
         failed(F::Exec("a: no such file".to_owned()))),
    ];
    let runner = Claim::Runner(invocation(CLAIMED));
    for (what, steps, expect) in &table {
        let evidence = Evidence { steps, ..evidence(None, Some(&runner), None) };
        let ended = if_it_boots(&evidence, &intent("j", 1, "prolog", 0), 99);
        assert_eq!(&ended.outcome, expect, "{what}");
        assert_eq!(ended.steps.len(), steps.iter().filter(|s| matches!(s, StepRecord::Begin { .. })).count(), "{what}");
    }
    // The host's shutdown stopped the runner: the boot ends the task, unless perilog had been asked to stop it.
    let shut_down = RunResult { cancelled: true, worst: Some(Signal(15)), status: 143, ..result(143) };
    let failed_unit = exited(143);
    for (cancelled, steps, expect) in [
        (false, &table[2].1, Outcome::Ok),
        (true, &table[2].1, Outcome::Cancelled { status: Some(Signal(15)) }),
        (false, &vec![last(0, "a", 1), cancelled(), termed(0)], failed(F::Signal(15))),
    ] {
        for unit in [None, Some(&failed_unit)] {
            let evidence = Evidence { steps, cancelled, ..evidence(unit, Some(&runner), Some(&shut_down)) };
            assert_eq!(ended(&evidence).outcome, expect, "{cancelled}");
            // No resource manager waits for the boot of a local task (`Exec`).
            let own = Intent { local: true, ..intent("j", 1, "prolog", 0) };
            let alone = if cancelled { Outcome::Cancelled { status: Some(Signal(15)) } } else { failed(F::Signal(15)) };
            assert_eq!(judge(&evidence, &own, 99).outcome, alone);
        }
    }
}

#[test]
fn what_had_no_script_to_run_is_ok_and_says_so() {
    let (skipped, runner) = (vec!["/x/10-a is skipped: not executable".to_owned()], Claim::Runner(invocation(CLAIMED)));
    for (of, status, empty, expect) in [
        (0, 0, true, "ok (no script ran; /x/10-a is skipped: not executable)"),
        (1, 0, false, "ok (/x/10-a is skipped: not executable)"),
        (1, 3, false, "failed (exit 3)"),
    ] {
        let result = RunResult { of, ran: of, skipped: skipped.clone(), ..result(status) };
        let ended = ended(&evidence(Some(&exited(status)), Some(&runner), Some(&result)));
        assert_eq!((ended.result().as_str(), ended.empty, &ended.skipped), (expect, empty, &skipped));
    }
}
