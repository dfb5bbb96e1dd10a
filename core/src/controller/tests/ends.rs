//! Ends of a job's ranks in `perilog show`: equal ends share a row, and the reply is bounded.

use crate::controller::view::ActionView;
use crate::job::Terms;
use crate::targets::Targets;
use crate::task::Tail;

use super::release::{add, bench};
use super::*;

fn show(b: &mut Bench, targets: Option<&str>) -> Result<(ActionView, usize), Refusal> {
    let targets = targets.map(|text| text.parse::<Targets>().unwrap());
    let Reply::Show(view) = b.ask(Request::Show { job: JobId::new("j").unwrap(), targets }).0? else {
        panic!("no show")
    };
    let size = serde_json::to_vec(&view).unwrap().len();
    Ok((view.attempts[0].actions[0].clone(), size))
}

/// Runs a prolog on so many nodes; it fails everywhere. `text`: the output of a rank's script.
fn failed(nodes: u32, text: impl Fn(u32) -> String) -> Bench {
    let (mut b, n) = bench(nodes, |_| {});
    b.ask(add("j", &format!("n[0-{}]", nodes - 1), Terms::default())).0.unwrap();
    b.run("prolog", "j", &format!("n[0-{}]", nodes - 1));
    for rank in 0..nodes {
        let tails = vec![Tail { script: "10-mount".into(), text: text(rank) }];
        let ended = Ended { tails, ended_ms: u64::from(rank), elapsed_ms: Some(u64::from(rank)), ..ended(exit(1)) };
        let task = task("prolog", "j", rank);
        b.receives(n[rank as usize], FromAgent::Finished { task, ended: Box::new(ended) });
    }
    b
}

#[test]
fn ends_that_are_alike_share_a_row() {
    let mut b = failed(100, |rank| format!("pid {rank}\nmount: no such device\n"));
    let (action, size) = show(&mut b, None).unwrap();
    assert_eq!((action.ended.len(), action.more), (1, None));
    let row = &action.ended[0];
    assert_eq!((row.ranks.to_string(), row.hosts.to_string()), ("0-99".to_owned(), "n[0-99]".to_owned()));
    assert_eq!((row.rank, row.host.as_str(), row.ended.ended_ms), (Rank(0), "n0", 0));
    assert!(size < 2_048, "{size}");
}

#[test]
fn other_ends_have_rows_as_far_as_there_is_room() {
    for (text, rows) in [("", 32), ("x".repeat(4_000).as_str(), 12)] {
        let mut b = failed(40, |rank| format!("{text}\nmount: no such device {rank}\n"));
        let (action, size) = show(&mut b, None).unwrap();
        assert_eq!(action.ended.len(), rows);
        let left = action.more.unwrap();
        assert_eq!((left.ranks.to_string(), left.hosts.to_string()), (format!("{rows}-39"), format!("n[{rows}-39]")));
        assert!(size <= 65_536, "{size}");
        // A client that asks for them gets them.
        let (action, _) = show(&mut b, Some("38-39")).unwrap();
        let of: Vec<(u32, u64)> = action.ended.iter().map(|row| (row.rank.0, row.ended.ended_ms)).collect();
        assert_eq!((of, action.more), (vec![(38, 38), (39, 39)], None));
        let (action, _) = show(&mut b, Some("n38")).unwrap();
        assert_eq!(action.ended.len(), 1);
    }
}

#[test]
fn ends_of_ranks_that_are_asked_for_have_a_row_each() {
    let mut b = failed(4, |_| "mount: no such device\n".to_owned());
    let (action, _) = show(&mut b, Some("1-2")).unwrap();
    let ranks: Vec<String> = action.ended.iter().map(|row| row.ranks.to_string()).collect();
    assert_eq!(ranks, ["1", "2"]);
    assert!(matches!(show(&mut b, Some("7")), Err(Refusal::Conflict(text)) if text.contains("rank 7 is not one of")));
}

/// The newest attempt of a job has the room that it needs before older ones.
#[test]
fn ends_of_the_newest_attempt_come_first() {
    let mut b = failed(20, |rank| format!("{}\nmount {rank}\n", "x".repeat(4_000)));
    let again = request("prolog", "j", Some("n[0-19]"), Some(1));
    b.ask(Request::Run(again)).0.unwrap();
    let job = JobId::new("j").unwrap();
    b.ask(Request::JobCancel { job, attempt: None, why: "asked".to_owned() }).0.unwrap();
    let view = b.ask(Request::Show { job: JobId::new("j").unwrap(), targets: None }).0.unwrap();
    let Reply::Show(view) = view else { panic!("no show") };
    let rows = |at: usize| view.attempts[at].actions[0].ended.len();
    assert_eq!((rows(1), rows(0)), (1, 12), "{view:?}");
}
