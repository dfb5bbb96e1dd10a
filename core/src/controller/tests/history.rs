//! History: what has ended costs nothing but its place, in a batch, at a start and when retention forgets it.

use super::release::{add, bench, finish};
use super::*;
use crate::job::Terms;

/// Adds and finishes the jobs `j0`, `j1` and so on, one after the other on n0: a prolog, an epilog, and the release.
fn over(b: &mut Bench, session: SessionId, jobs: u32) {
    for job in (0..jobs).map(|n| format!("j{n}")) {
        b.ask(add(&job, "n0", Terms::default())).0.unwrap();
        b.run("prolog", &job, "n0");
        b.says(session, finished(task("prolog", &job, 0), Outcome::Ok));
        b.ask(finish(&job, None)).0.unwrap();
        b.says(session, finished(task("epilog", &job, 0), Outcome::Ok));
    }
}

/// Returns the numbers of live actions, live attempts and deadlines.
fn live(b: &Bench) -> [usize; 3] {
    let sizes = b.m.sizes();
    ["live actions", "live attempts", "deadlines"].map(|name| sizes.iter().find(|(of, _)| *of == name).unwrap().1)
}

#[test]
fn what_has_ended_is_live_no_more() {
    let (mut b, n) = bench(1, |_| {});
    over(&mut b, n[0], 20);
    assert_eq!(live(&b), [0, 0, 0]);
    b.ask(add("k", "n0", Terms::default())).0.unwrap();
    assert_eq!(live(&b), [0, 1, 0]);
    b.run("prolog", "k", "n0");
    assert_eq!(live(&b), [1, 1, 1], "its start-grace runs");
    b.says(n[0], finished(task("prolog", "k", 0), Outcome::Ok));
    assert_eq!(live(&b), [0, 1, 0], "the job holds its rank");
    b.ask(finish("k", None)).0.unwrap();
    assert_eq!(live(&b), [1, 1, 1]);
    b.says(n[0], finished(task("epilog", "k", 0), Outcome::Ok));
    assert_eq!(live(&b), [0, 0, 0]);
}
