//! Tests of epilogs that run as Flux's housekeeping.

use super::*;

/// The site's epilogs run as housekeeping: Flux frees the job without a reference of its epilog. Each of the job's
/// nodes waits until the epilog there has ended.
#[test]
fn a_housekeeping_epilog_begins_when_flux_freed_the_job() {
    type Change = fn(&mut View);
    let ran: Change = |view| {
        take(view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
        take(view, 1003.0, "start", json!({}));
        take(view, 1004.0, "finish", json!({"status": 0}));
        take(view, 1005.0, "release", json!({"ranks": "all", "final": true}));
    };
    let never: Change = |view| {
        fatal(view);
        take(view, 1003.0, "prolog-finish", json!({"description": "perilog", "status": 256}));
    };
    let freed: Change = |view| take(view, 1006.0, "free", json!({}));
    let inactive: Change = |view| {
        take(view, 1006.0, "clean", json!({}));
        view.settle(ID);
    };
    let restarted: Change = |view| {
        view.starttime = 1500.0;
        view.jobs.get_mut(&ID).unwrap().before = true;
    };
    let away: Change = |view| view.online = "0,2-3".parse().unwrap();
    let known: Change = |view| knows(view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
    let begun: Change = |view| {
        let actions = vec![action("prolog", Some(Verdict::Ok), false), action("epilog", None, false)];
        knows(view, with(actions));
    };
    let handed_over: Change = |view| {
        let milestones = vec![perilog_core::MilestoneName::new("data-out").unwrap()];
        let actions = vec![action("prolog", Some(Verdict::Ok), false), action("epilog", None, false)];
        knows(view, EdgeAttempt { hold: Default::default(), milestones, ..with(actions) });
    };
    let dirty: Change = |view| knows(view, complete(Verdict::Failed, true));
    let refused: Change = |view| {
        view.refused.insert((job_name(), Attempt::of_alloc(ALLOC).unwrap()), "the job has a newer attempt".to_owned());
    };
    let drained: Change = |view| {
        let drain = FluxDrain { reason: "perilog: no epilog".to_owned() };
        view.flux_drains.extend(["n0", "n1"].map(|name| (host(name), drain.clone())));
    };
    #[rustfmt::skip]
    let table: [(&str, &[Change], &[&str]); 15] = [
        ("the tasks are gone", &[ran, known], &[]),
        ("freed", &[ran, freed, known], &["run epilog"]),
        ("inactive", &[ran, freed, inactive, known], &["run epilog"]),
        ("it runs, and the job holds its ranks", &[ran, freed, begun], &["finish the part"]),
        ("it runs, and its milestone has no use", &[ran, freed, inactive, handed_over], &[]),
        ("the job is active, and its milestone is reported", &[ran, freed, handed_over], &["post data-out"]),
        ("a broker is away", &[ran, freed, inactive, known, away], &["run epilog"]),
        ("its prolog failed", &[never, freed, known], &["run epilog"]),
        // The job's nodes wait for an epilog all the same.
        ("nothing was ever begun", &[never, freed], &["add"]),
        ("it failed", &[ran, freed, dirty], &[]),
        ("it is refused", &[ran, freed, inactive, refused], &["drain n0"]),
        ("it is refused, and drained", &[ran, freed, inactive, refused, drained], &["exception epilog 2"]),
        ("rank 0 was restarted", &[ran, freed, restarted, known], &["run epilog"]),
        ("rank 0 was restarted, a broker has not joined", &[ran, freed, restarted, known, away], &["drain n1"]),
        // A site with `hold`, or an earlier life of the plugin: the reference is held.
        ("the epilog is held", &[ran, |view| take(view, 1005.0, "epilog-start", ours()), freed, known], &[]),
    ];
    for (name, changes, expect) in table {
        let mut view = view();
        changes.iter().for_each(|change| change(&mut view));
        assert_eq!(due(&view), expect, "{name}");
    }
    let mut view = view();
    [ran, freed, handed_over, inactive].iter().for_each(|change| change(&mut view));
    assert!(view.jobs.contains_key(&ID), "its epilog runs");
    dirty(&mut view);
    view.settle(ID);
    assert!(view.jobs.is_empty() && view.attempts.is_empty(), "{view:?}");
}

/// Flux gives the nodes of a job in housekeeping to the next job, one by one. The prolog of the next job waits for the
/// epilog on each of its nodes.
#[test]
fn a_prolog_waits_for_the_housekeeping_of_its_nodes() {
    const NEXT: u64 = 7;
    let r = |hosts: &str, ranks: &str| -> serde_json::Value {
        json!({"version": 1, "execution": {"R_lite": [{"rank": ranks, "children": {}}], "nodelist": [hosts]}})
    };
    let of_next = |view: &View| plan(view, NOW_MS).actions.iter().any(|action| action.id() == Some(NEXT));
    let of_last = |hold: &str, released: &str, complete: bool| {
        let (hold, released) = (hold.parse().unwrap(), released.parse().unwrap());
        EdgeAttempt { hold, released, complete, ..with(vec![action("epilog", None, false)]) }
    };
    let hosts = [("n0", "0"), ("n1", "1"), ("n2", "2")];
    for (last, begins) in [
        (None, [false, false, true]),
        (Some(of_last("0-1", "", false)), [false, false, true]),
        (Some(of_last("", "", false)), [false, false, true]),
        (Some(of_last("", "0", false)), [true, false, true]),
        (Some(of_last("", "0-1", true)), [true, true, true]),
    ] {
        for ((host, rank), begins) in hosts.into_iter().zip(begins) {
            let mut view = view();
            take(&mut view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
            take(&mut view, 1006.0, "free", json!({}));
            view.attempts.clear();
            last.clone().into_iter().for_each(|last| knows(&mut view, last));
            let mut job = Job::new(NEXT);
            job.set_r(&r(host, rank));
            job.take(&event(1010.0, "alloc", &json!({})));
            job.take(&event(1011.0, "prolog-start", &ours()));
            let known = EdgeAttempt {
                job: perilog_core::Fluid(NEXT).job(),
                attempt: Attempt::of_alloc(1010.0).unwrap(),
                ranks: rank.parse().unwrap(),
                hosts: host.parse().unwrap(),
                hold: rank.parse().unwrap(),
                ..attempt()
            };
            view.jobs.insert(NEXT, job);
            knows(&mut view, known);
            assert_eq!(of_next(&view), begins, "{host}: {last:?}");
        }
    }
}

/// Flux returns the nodes of a job in housekeeping one by one, and the job's R still has them all. The list leaves out
/// the nodes that later jobs have: perilog would clean up there beside these jobs.
#[test]
fn a_freed_job_is_listed_without_the_nodes_of_later_jobs() {
    const NEXT: u64 = 7;
    let source = json!({"name": "flux", "instance": "system"});
    for (hosts, ranks, alloc, listed) in [
        ("n0", "0", ALLOC + 9.0, json!([["1", "n1"], ["0", "n0"]])),
        ("n[0-1]", "0-1", ALLOC + 9.0, json!([["0-1", "n[0-1]"]])),
        ("n2", "2", ALLOC + 9.0, json!([["0-1", "n[0-1]"], ["2", "n2"]])),
        // An earlier allocation of the host says nothing: that job has it no more.
        ("n0", "0", ALLOC - 9.0, json!([["0-1", "n[0-1]"], ["0", "n0"]])),
    ] {
        let mut view = view();
        take(&mut view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
        take(&mut view, 1003.0, "free", json!({}));
        let mut next = Job::new(NEXT);
        next.set_r(
            &json!({"version": 1, "execution": {"R_lite": [{"rank": ranks, "children": {}}], "nodelist": [hosts]}}),
        );
        for (at, name, context) in [(999.0, "submit", json!({"userid": 1000})), (alloc, "alloc", json!({}))] {
            next.take(&event(at, name, &context));
        }
        view.jobs.insert(NEXT, next);
        let page = sync::pages(&view, &source).remove(0);
        let attempts = page["attempts"].as_array().unwrap().iter().map(|of| json!([of["ranks"], of["hosts"]]));
        let mut attempts: Vec<serde_json::Value> = attempts.collect();
        let mut listed = listed.as_array().unwrap().clone();
        attempts.sort_by_key(ToString::to_string);
        listed.sort_by_key(ToString::to_string);
        assert_eq!(attempts, listed, "{hosts} at {alloc}");
    }
}
