//! Scale: the cost of one completion does not grow with the job. No record, event or effect of one rank contains all
//! ranks. These tests count bytes and measure no time.

use crate::idset::IdSet;

use super::*;

/// Returns all ranks below `count` in a scattered order: a set to which they are added one by one has at times more
/// than `count / 3` separate ranges. `count` is a power of two.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    // The stride is odd, so it shares no divisor with `count`.
    let stride = count * 5 / 8 + 1;
    (0..count).map(move |n| (n * stride) % count)
}

/// Returns the total size, as debug text in bytes, of the records that the machine makes when the `count` ranks of an
/// action end. The ranks end in scattered order, one in each batch, and each is released when it ends.
fn record_bytes(count: u32) -> usize {
    let mut bench = Bench::load_with(
        Snapshot::default(),
        Settings { release: [(ActionName::new("epilog").unwrap(), ReleasePolicy::Each)].into(), ..settings() },
        Holding::NONE,
        Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 },
    );
    let hosts = format!("n[0-{}]", count - 1);
    let sessions: Vec<SessionId> = (0..count).map(|n| bench.up(&format!("n{n}"), "b1", vec![]).0).collect();
    bench.run("epilog", "f2", &hosts);
    let finish = Request::JobFinish { job: JobId::new("f2").unwrap(), attempt: None, targets: None, resources: None };
    bench.ask(finish).0.unwrap();
    let at = |rank: u32| (sessions[rank as usize], task("epilog", "f2", rank));
    for (session, task) in scattered(count).map(at) {
        bench.receives(session, FromAgent::Accepted { task, limit_ms: None });
    }
    let mut bytes = 0;
    for (session, task) in scattered(count).map(at) {
        let output = bench.m.handle(vec![from(session, finished(task, Outcome::Ok))], bench.now);
        bytes += output.records.iter().map(|record| format!("{record:?}").len()).sum::<usize>();
        bench.commit(output);
    }
    let released = &bench.store.attempts[0].released.ranks;
    assert_eq!((released, bench.store.attempts[0].complete), (&IdSet::from(0..=count - 1), true));
    bytes
}

#[test]
fn the_records_of_one_completion_do_not_grow_with_the_job() {
    let (few, many) = (record_bytes(64) / 64, record_bytes(512) / 512);
    // An action's row in each batch would double the figure; an attempt's row would add a third.
    assert!(many < few + few / 8, "{few} bytes per rank of 64, {many} of 512");
}

#[test]
fn a_restart_between_two_completions_loses_nothing_of_them() {
    let mut bench = Bench::new();
    let sessions: Vec<SessionId> = (0..64).map(|n| bench.up(&format!("n{n}"), "b1", vec![]).0).collect();
    bench.run("prolog", "f2", "n[0-63]");
    for rank in scattered(64).step_by(2) {
        bench.receives(sessions[rank as usize], finished(task("prolog", "f2", rank), Outcome::Ok));
    }
    let before = bench.action("prolog", "f2", 0).clone();
    let bench = bench.restart();
    assert_eq!(*bench.action("prolog", "f2", 0), before);
    assert_eq!(before.ok.len(), 32);
}
