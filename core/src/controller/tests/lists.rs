//! Lists of a large cluster: equal entries share a row, a page has a bounded size, and page after page has each host
//! once. Drains share an event and a line of the journal.

use std::collections::BTreeSet;

use crate::controller::state::quota::RANKS;
use crate::controller::view::DrainView;
use crate::hostlist::HostList;
use crate::job::Terms;

use super::release::{add, bench};
use super::*;

/// The largest cluster, and the longest reply.
const HOSTS: u32 = 65_536;
const LONGEST: usize = 65_536;

/// Lets the machine handle one input beside the bench's store, whose tables of the bench are slow for so many hosts.
fn handle(b: &mut Bench, input: Input, ms: u64) -> Output {
    (b.now.mono_ms, b.now.wall_ms) = (b.now.mono_ms + ms, b.now.wall_ms + ms);
    b.m.handle(vec![input], b.now)
}

fn ask(b: &mut Bench, request: Request) -> Reply {
    let output = handle(b, Input::Request { client: 1, uid: 0, request }, 1);
    let reply = output.effects.into_iter().find_map(|effect| match effect {
        Effect::Reply { reply, .. } => Some(reply),
        _ => None,
    });
    reply.expect("a request is answered").expect("it is not refused")
}

/// Returns the pages of the list of drains.
fn drains(b: &mut Bench, targets: Option<&str>) -> Vec<Vec<DrainView>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let targets = targets.map(|text| text.parse().unwrap());
        let request = Request::Drains { targets, after, known: None };
        let Reply::Drains { drains, next, .. } = ask(b, request) else { panic!("no drains") };
        let size = serde_json::to_vec(&drains).unwrap().len();
        assert!(size < LONGEST, "{size}");
        pages.push(drains);
        let Some(next) = next else { return pages };
        after = Some(next);
    }
}

fn hosts(pages: &[Vec<DrainView>]) -> Vec<&str> {
    pages.iter().flatten().flat_map(|row| row.hosts.iter()).collect()
}

/// Runs a prolog on so many hosts that never connect: all are lost and drained. Returns the outputs of these batches.
fn all_lost(hosts: u32) -> (Bench, Vec<Output>) {
    let mut b = Bench::new();
    let nodes = format!("n[0-{}]", hosts - 1);
    ask(&mut b, add("j", &nodes, Terms::default()));
    ask(&mut b, Request::Run(request("prolog", "j", None, None)));
    let mut outputs = vec![handle(&mut b, Input::Tick, 60_000)];
    while b.m.drains.len() < hosts as usize {
        outputs.push(handle(&mut b, Input::Tick, 1));
    }
    assert_eq!(outputs.len() as u64, u64::from(hosts).div_ceil(RANKS));
    (b, outputs)
}

#[test]
fn lists_of_a_cluster_that_failed_in_one_way_are_short() {
    let (mut b, outputs) = all_lost(HOSTS);
    let events = |output: &Output| -> Vec<(String, HostList)> {
        let events = output.records.iter().filter_map(|record| match record {
            Record::Event { event, .. } => Some(event),
            _ => None,
        });
        let hosts = |event: &Event| event.context().unwrap()["hosts"].as_str().unwrap().parse().unwrap();
        events.map(|event| (event.name().to_owned(), hosts(event))).collect()
    };
    // A batch has one event of each kind, and the last one has the verdict.
    let all: Vec<Vec<(String, HostList)>> = outputs.iter().map(events).collect();
    let (last, before) = all.split_last().unwrap();
    let of = |batch: &[(String, HostList)]| -> Vec<(String, usize)> {
        batch.iter().map(|(name, hosts)| (name.clone(), hosts.len())).collect()
    };
    let each = |names: &[(&str, u64)]| -> Vec<(String, usize)> {
        names.iter().map(|(name, count)| ((*name).to_owned(), usize::try_from(*count).unwrap())).collect()
    };
    for batch in before {
        assert_eq!(of(batch), each(&[("drain", RANKS), ("finish", RANKS)]));
    }
    assert_eq!(of(last), each(&[("drain", RANKS), ("finish", RANKS), ("verdict", HOSTS.into())]));
    let drained: BTreeSet<&str> = all.iter().flat_map(|batch| batch[0].1.iter()).collect();
    assert_eq!(drained.len(), HOSTS as usize);
    let lines = |output: &Output| output.effects.iter().filter(|effect| matches!(effect, Effect::Note { .. })).count();
    assert!(outputs.iter().all(|output| lines(output) == 1), "lines of the journal");

    let pages = drains(&mut b, None);
    // Hosts that one batch drained share a row.
    let rows = pages.iter().map(Vec::len).sum::<usize>();
    assert!(pages.len() <= 10 && rows <= 2 * outputs.len(), "{rows} rows, {} pages", pages.len());
    let each: BTreeSet<&str> = hosts(&pages).into_iter().collect();
    assert_eq!((each.len(), hosts(&pages).len()), (HOSTS as usize, HOSTS as usize));
    let rows: Vec<DrainRow> = pages.concat().into_iter().flat_map(DrainView::rows).collect();
    assert!(rows.iter().all(|row| b.m.drains.get(&row.host) == Some(row)), "a row says all of each drain");

    let Reply::Show(view) = ask(&mut b, Request::Show { job: "j".parse().unwrap(), targets: None }) else { panic!() };
    assert!(serde_json::to_vec(&view).unwrap().len() < LONGEST);
}

#[test]
fn lists_of_unlike_drains_have_pages() {
    let mut b = Bench::new();
    for n in 0..1_500 {
        let reason = format!("{n}: {}", "\"x\" ".repeat(40));
        ask(&mut b, Request::Drain { hosts: format!("n{n}").parse().unwrap(), reason, force: true });
    }
    let pages = drains(&mut b, None);
    assert!(pages.len() > 5, "{}", pages.len());
    let each: BTreeSet<&str> = hosts(&pages).into_iter().collect();
    assert_eq!((each.len(), hosts(&pages).len()), (1_500, 1_500));
    // Named hosts: those that are drained, each once.
    let pages = drains(&mut b, Some("n[1490-1600],n1499,x"));
    assert_eq!(hosts(&pages), (1_490..1_500).map(|n| format!("n{n}")).collect::<Vec<_>>());
}

#[test]
fn lists_that_have_not_changed_are_not_read_again() {
    let (mut b, _) = all_lost(8);
    let page = |b: &mut Bench, known| {
        let request = Request::Drains { targets: None, after: None, known };
        let Reply::Drains { drains, revision, .. } = ask(b, request) else { panic!("no drains") };
        (drains.len(), revision)
    };
    let (rows, revision) = page(&mut b, None);
    assert_eq!((rows, page(&mut b, Some(revision))), (1, (0, revision)));
    ask(&mut b, Request::Undrain { hosts: "n0".parse().unwrap(), forget: true, notice_id: None });
    let (rows, newer) = page(&mut b, Some(revision));
    assert!(rows == 1 && newer > revision, "{rows} {newer}");
}

#[test]
fn lists_of_nodes_have_pages() {
    let (mut b, _) = bench(700, |_| {});
    b.ask(add("j", "n[3,600]", Terms::default())).0.unwrap();
    let mut pages = |targets: Option<&str>| {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let targets = targets.map(|text| text.parse::<HostList>().unwrap());
            let request = Request::Nodes { targets, after };
            let Reply::Nodes { nodes, next } = ask(&mut b, request) else { panic!("no nodes") };
            assert!(serde_json::to_vec(&nodes).unwrap().len() < LONGEST);
            pages.push(nodes);
            let Some(next) = next else { return pages };
            after = Some(next);
        }
    };
    let all = pages(None);
    assert!(all.len() > 1, "{}", all.len());
    let each: BTreeSet<&str> = all.iter().flatten().map(|node| node.host.as_str()).collect();
    assert_eq!((each.len(), all.concat().len()), (700, 700));
    let held: Vec<&str> = all.iter().flatten().filter(|node| node.held).map(|node| node.host.as_str()).collect();
    assert_eq!(held, ["n3", "n600"]);
    assert_eq!(pages(Some("n[0-599]")).concat().len(), 600);
    assert!(matches!(
        b.ask(Request::Nodes { targets: Some("n1,x".parse().unwrap()), after: None }).0,
        Err(Refusal::NoSuchNode(_))
    ));
}

#[test]
fn lists_of_unknown_tasks_are_folded() {
    let mut b = Bench::new();
    for rank in 0..300 {
        b.up(&format!("n{rank}"), "b", vec![held("prolog", "one", rank, live())]);
    }
    let Ok(Reply::Recovery(view)) = b.ask(Request::Recover { take_over: false }).0 else { panic!("no list") };
    let rows: Vec<_> = view.unknown.iter().map(|of| (of.hosts.to_string(), of.ranks.to_string())).collect();
    assert_eq!(rows, [("n[0-299]".to_owned(), "0-299".to_owned())]);
}

/// A restored store has the same to say of each node, in one line.
#[test]
fn lists_of_hosts_in_the_journal_are_folded() {
    let (mut b, _) = bench(300, |settings| settings.drain_hook = true);
    b.ask(Request::Drain { hosts: "n[0-299]".parse().unwrap(), reason: "fan".into(), force: false }).0.unwrap();
    let drains = b.store.drains.iter().map(|row| (row.host.clone(), row.notice_id)).collect();
    b.ask(Request::DrainsDone { drains, lifted: false }).0.unwrap();
    b.ask(Request::Undrain { hosts: "n[0-299]".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    let copy = b.store.clone();
    let b = b.restored(&copy);
    let lines: Vec<&String> =
        b.notes.iter().filter(|line| line.contains("an undrain of this host was under way")).collect();
    assert!(
        matches!(lines[..], [line] if line.starts_with("n[0-299]: ")),
        "{} lines: {:?}",
        lines.len(),
        lines.first()
    );
}

#[test]
fn lists_of_releases_that_wait_are_folded() {
    let (mut b, n) = bench(200, |settings| {
        (settings.drain_hook, settings.release_hook) = (true, true);
        settings.release.insert(ActionName::new("epilog").unwrap(), ReleasePolicy::Each);
    });
    b.ask(add("j", "n[0-199]", Terms::default())).0.unwrap();
    b.ask(super::release::finish("j", None)).0.unwrap();
    for rank in 0..200 {
        let outcome = if rank < 100 { Outcome::Ok } else { exit(1) };
        b.receives(n[rank as usize], finished(task("epilog", "j", rank), outcome));
    }
    let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!("no ps") };
    let rows: BTreeSet<_> =
        rows.iter().map(|row| (row.state.as_str(), row.ranks.to_string(), row.hosts.to_string())).collect();
    let row = |state, ranks: &str, hosts: &str| (state, ranks.to_owned(), hosts.to_owned());
    assert_eq!(rows, [row("draining", "100-199", "n[100-199]"), row("notifying", "0-99", "n[0-99]")].into());
}

/// The drain hook asks only for pending drains: a cluster may have had drained hosts for months.
#[test]
fn lists_for_the_drain_hook_have_only_what_is_pending() {
    let (mut b, _) = bench(5, |settings| settings.drain_hook = true);
    let pending = |b: &mut Bench| {
        let Reply::PendingDrains(drains) = ask(b, Request::PendingDrains) else { panic!("no drains") };
        let expected: Vec<_> = b.m.drains.values().filter(|drain| drain.is_pending()).cloned().collect();
        assert_eq!(drains, expected, "the index of pending notices");
        drains
    };
    b.ask(Request::Drain { hosts: "n[0-3]".parse().unwrap(), reason: "dimm".into(), force: false }).0.unwrap();
    let reported = pending(&mut b);
    assert_eq!(reported.len(), 4);
    let drains = reported.iter().take(3).map(|row| (row.host.clone(), row.notice_id)).collect();
    b.ask(Request::DrainsDone { drains, lifted: false }).0.unwrap();
    let left = pending(&mut b);
    assert_eq!(left.iter().map(|row| row.host.as_str()).collect::<Vec<_>>(), ["n3"]);
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false, notice_id: None }).0.unwrap();
    assert_eq!(pending(&mut b).len(), 2);
    b.ask(Request::Undrain { hosts: "n3".parse().unwrap(), forget: true, notice_id: None }).0.unwrap();
    let lifts = pending(&mut b);
    let mut b = b.restart();
    assert_eq!(pending(&mut b), lifts);
    let drains = lifts.iter().map(|row| (row.host.clone(), row.notice_id)).collect();
    b.ask(Request::DrainsDone { drains, lifted: true }).0.unwrap();
    assert_eq!((pending(&mut b).len(), b.store.drains.len()), (0, 2));
}
