use std::path::Path;

use tokio::sync::mpsc;

use super::*;

#[test]
fn who_may_call_what() {
    let peer = |uid, gid, groups: &[u32]| PeerCred { uid, gid, pid: 1, groups: groups.to_vec() };
    let (root, member, also, other) = (peer(0, 0, &[]), peer(7, 50, &[]), peer(8, 8, &[4, 50]), peer(9, 9, &[9]));
    let access = |group, read| Access { group, edges: None, read };
    #[rustfmt::skip]
    let table = [
        (access(None, Read::Group), [true, false, false, false], [true, false, false, false], 0o600),
        (access(Some(50), Read::Group), [true, true, true, false], [true, true, true, false], 0o660),
        (access(None, Read::Anyone), [true, false, false, false], [true, true, true, true], 0o666),
        (access(Some(50), Read::Anyone), [true, true, true, false], [true, true, true, true], 0o666),
    ];
    for (access, change, reads, mode) in table {
        let allowed = |kind| [&root, &member, &also, &other].map(|peer| access.allows(kind, peer));
        assert_eq!((allowed(Kind::Change), allowed(Kind::OverviewRequest)), (change, reads), "{access:?}");
        assert_eq!(socket_mode(access), mode);
    }
}

/// An edge may call its own methods, and cannot make tokens, copy the store or resolve a task.
#[test]
fn an_edge_may_do_what_an_edge_does() {
    let edge = PeerCred { uid: 7, gid: 60, pid: 1, groups: vec![] };
    let access = Access { group: Some(50), edges: Some(60), read: Read::Group };
    let methods = INTERFACE.text.lines().filter_map(|line| line.strip_prefix("method ")?.split('(').next());
    let may: Vec<&str> =
        methods.filter(|method| access.allows(kind(method), &edge) && kind(method) != Kind::OverviewRequest).collect();
    assert_eq!(
        may,
        ["Run", "ActionStart", "JobAdd", "JobFinish", "Undrain", "Cancel", "Sync", "Attempts", "DrainDone"]
    );
    assert!(
        access.allows(Kind::OverviewRequest, &edge)
            && access.may_use_reserved_connection(&edge)
            && !access.trusts(&edge)
    );
    assert_eq!(socket_mode(access), 0o666);
    let stranger = PeerCred { gid: 61, ..edge };
    assert!(!access.allows(Kind::OverviewRequest, &stranger) && !access.may_use_reserved_connection(&stranger));
}

/// Only the methods in the test's list count as reading. A new or unknown method counts as a change, so that by mistake
/// no user who may only read can call it.
#[test]
fn what_is_not_known_to_read_only_is_a_change() {
    let methods = INTERFACE.text.lines().filter_map(|line| line.strip_prefix("method ")?.split('(').next());
    let reads: Vec<&str> = methods.filter(|method| kind(method) == Kind::OverviewRequest).collect();
    assert_eq!(
        reads,
        [
            "Failed",
            "Drains",
            "Events",
            "EventsOfAll",
            "Ps",
            "Show",
            "Nodes",
            "Why",
            "Status",
            "Jobs",
            "Timeline",
            "Stats",
            "Skew"
        ]
    );
    assert_eq!(kind("Frob"), Kind::Change);
}

/// Regression test: the controller accepted hosts and ranks that do not fit into a Start, and sent them as empty
/// texts.
#[test]
fn what_no_start_has_room_for_is_refused_when_it_is_asked_for() {
    use perilog_proto::MAX_LAYOUT_TEXT;

    // Names of which no two neighbours fold, nine bytes each with the comma.
    let names =
        |count: u32| (0..count).map(|n| format!("{}{n:06}x", char::from(b'a' + (n % 26) as u8))).collect::<Vec<_>>();
    let seconds = |count: u32| (0..count).map(|n| (2 * n).to_string()).collect::<Vec<_>>().join(",");
    let r = |ranks: String, hosts: &[String]| {
        let lite = json!([{"rank": ranks, "children": {}}]);
        json!({"version": 1, "execution": {"R_lite": lite, "nodelist": [hosts.join(",")]}})
    };
    let fits = |method: &str, parameters: Value| {
        let request: Request = serde_json::from_value(json!({ method: parameters })).unwrap();
        request::check_fit(&request).map_err(|refusal| to_json(&refusal)["text"].clone())
    };
    let (add, run) = (|parameters| fits("JobAdd", parameters), |parameters| fits("Run", parameters));
    let (few, many) = (names(65_536), names(150_000));
    let too_many = |bytes: u32| {
        let list = "bytes in the list of ranks and the list of hosts";
        Err(json!(format!("{bytes} {list}, at most {MAX_LAYOUT_TEXT} are taken")))
    };
    assert_eq!(add(json!({"job": "f1", "nodes": few.join(",")})), Ok(()));
    assert_eq!(add(json!({"job": "f1", "R": r("0-65535".into(), &few)})), Ok(()));
    assert_eq!(add(json!({"job": "f1", "nodes": many.join(",")})), too_many(1_350_007));
    assert_eq!(add(json!({"job": "f1", "R": r("0-149999".into(), &many)})), too_many(1_350_007));
    // Each text alone would fit.
    assert_eq!(add(json!({"job": "f1", "R": r(seconds(65_536), &few)})), too_many(993_019));
    assert_eq!(run(json!({"job": "f1", "action": "prolog", "nodes": many.join(",")})), too_many(1_350_007));
    assert_eq!(run(json!({"job": "f1", "action": "prolog", "targets": many.join(",")})), too_many(1_349_999));
    assert_eq!(run(json!({"job": "f1", "action": "prolog", "targets": seconds(65_536)})), Ok(()));
}

/// Regression test: `perilog kill -s CONT` printed "sent", and each node refused the signal in its own journal.
#[test]
fn a_signal_that_no_node_sends_is_refused_when_it_is_asked_for() {
    let signal = |signal: &str| {
        let parsed: Result<Request, _> = serde_json::from_value(json!({"Signal": {"job": "f1", "signal": signal}}));
        parsed.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!((signal("KILL"), signal("SIGTERM"), signal("10")), (Ok(()), Ok(()), Ok(())));
    for name in ["CONT", "QUIT", "ALRM", "STOP", "64"] {
        let refused = signal(name).unwrap_err();
        assert!(refused.contains("HUP, INT, USR1, USR2, TERM and KILL"), "{refused}");
    }
}

#[test]
fn an_operators_reason_has_no_controls() {
    let resolve = json!({"Resolve": {"job": "f1", "ok": true, "reason": "fixed\u{1b}[2J\nby\u{9b}me"}});
    let Ok(Request::Resolve { reason, .. }) = serde_json::from_value(resolve) else { panic!("refused") };
    assert_eq!(reason, "fixed [2J by me");
}

fn api(inlet: Inlet, store: &std::path::Path) -> Api {
    Api {
        inlet,
        reader: EventReader::open(store).unwrap(),
        steps: StepReader::open(store).unwrap(),
        max_hosts: MaxHosts(65_536),
        access: Access { group: None, edges: None, read: Read::Anyone },
        outbox: watch::channel(()).1,
        logged: watch::channel(()).1,
        calls: Calls::new(),
        cluster: "test".to_owned(),
        store: "/none".into(),
        backup: tokio::sync::Mutex::default(),
        enrolment: None,
        expiries: crate::listener::Expiries::default(),
        remark: watch::channel(None).1,
        following: super::attempts::Following::default(),
    }
}

/// Serves the API of a new store below `dir` to a follower of the attempts of a Flux. Returns the entries for the
/// writer, which the test plays, and the result of `read` for the follower's replies.
fn follow<T: Send + 'static>(
    dir: &Path,
    read: impl FnOnce(Box<dyn Iterator<Item = Value> + '_>) -> T + Send + 'static,
) -> (mpsc::Receiver<crate::daemon::Entry>, tokio::task::JoinHandle<T>) {
    use crate::store::{Durable, Store};

    let path = dir.join("controller.db");
    Store::open(&path).unwrap().commit(&[]).unwrap();
    let (inlet, entries) = Inlet::new();
    let socket = dir.join("socket");
    tokio::spawn(serve(perilog_host::varlink::bind(&socket, 0o600, None).unwrap(), api(inlet, &path)));
    let reading = tokio::task::spawn_blocking(move || {
        let mut client = perilog_host::varlink::Client::connect(&socket).unwrap();
        client.set_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let follow = json!({"source": {"name": "flux", "instance": "i"}, "follow": true});
        let replies = client.call_more("io.perilog.Controller.Attempts", follow).unwrap();
        read(Box::new(replies.map(Result::unwrap)))
    });
    (entries, reading)
}

/// A follower that sees a new verdict also sees the drain that the verdict made. The test plays the writer: it reports
/// a changed job, and commits verdict and drain before the API reads the job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_comes_with_the_drain_that_it_made() {
    use crate::daemon::{Changes, Entry};
    use perilog_core::JobId;
    use perilog_core::controller::io::{DrainRow, Reply};
    use perilog_core::controller::view::DrainView;

    let dir = tempfile::tempdir().unwrap();
    let (mut entries, reading) =
        follow(dir.path(), |mut replies| replies.find(|reply| reply["attempts"][0]["job"] == "f1").unwrap());
    let Some(Entry::FollowAll { mut feed, ready }) = entries.recv().await else { panic!("no follower") };
    ready.send(()).unwrap();
    let attempt = json!({"job": "f1", "attempt": "0", "ranks": "0", "hosts": "n0", "open": true, "hold": "0",
        "released": "", "complete": false, "abandoned": false, "actions": [], "milestones": []});
    let drain = DrainRow::new("n0".parse().unwrap(), "prolog: failed".to_owned(), None, 1);
    let mut is_changed = false;
    let writer = async {
        while let Some(Entry::Request { request, answer, .. }) = entries.recv().await {
            let reply = match request {
                Request::Attempts(of) if of.jobs.as_ref().is_some_and(|jobs| !jobs.is_empty()) => {
                    Reply::Attempts(vec![serde_json::from_value(attempt.clone()).unwrap()])
                }
                Request::Attempts(_) => Reply::Attempts(Vec::new()),
                Request::Drains { .. } if is_changed => {
                    let hosts = "n0".parse().unwrap();
                    Reply::Drains { drains: vec![DrainView::new(&drain, hosts)], next: None, revision: 1 }
                }
                Request::Drains { .. } => {
                    let jobs = [JobId::new("f1").unwrap()].into();
                    assert!(feed.put(&Changes { jobs, ..Changes::default() }, |_, _| None));
                    is_changed = true;
                    Reply::Drains { drains: Vec::new(), next: None, revision: 0 }
                }
                other => panic!("{other:?}"),
            };
            drop(answer.send(Ok(reply)));
        }
    };
    let reported = tokio::select! {
        reported = reading => reported.unwrap(),
        () = writer => panic!("the API has ended"),
    };
    assert_eq!(reported["drains"][0]["hosts"], "n0");
}

/// Regression test: of a change of many jobs only some of which are the follower's, the follower got a page that was
/// not the last one, and waited for the last one. The test plays the writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_many_jobs_ends_with_a_last_page() {
    use crate::daemon::{Changes, Entry};
    use perilog_core::JobId;
    use perilog_core::controller::io::Reply;

    let dir = tempfile::tempdir().unwrap();
    let (mut entries, reading) = follow(dir.path(), |replies| {
        let mut replies = replies.skip_while(|reply| reply["attempts"] == json!([]));
        [replies.next().unwrap(), replies.next().unwrap()]
    });
    let Some(Entry::FollowAll { mut feed, ready }) = entries.recv().await else { panic!("no follower") };
    ready.send(()).unwrap();
    let attempt = json!({"job": "f000", "attempt": "0", "ranks": "0", "hosts": "n0", "open": true, "hold": "0",
        "released": "", "complete": false, "abandoned": false, "actions": [], "milestones": []});
    let mut is_changed = false;
    let writer = async {
        while let Some(Entry::Request { request, answer, .. }) = entries.recv().await {
            let reply = match request {
                Request::Attempts(of) => {
                    let is_first = of.jobs.is_some_and(|jobs| jobs.iter().any(|job| job.as_str() == "f000"));
                    let attempts = is_first.then(|| serde_json::from_value(attempt.clone()).unwrap());
                    Reply::Attempts(attempts.into_iter().collect())
                }
                Request::Drains { .. } => {
                    if !is_changed {
                        let jobs = (0..=200).map(|n| JobId::new(&format!("f{n:03}")).unwrap()).collect();
                        assert!(feed.put(&Changes { jobs, ..Changes::default() }, |_, _| None));
                        is_changed = true;
                    }
                    Reply::Drains { drains: Vec::new(), next: None, revision: 0 }
                }
                other => panic!("{other:?}"),
            };
            drop(answer.send(Ok(reply)));
        }
    };
    let [page, last] = tokio::select! {
        replies = reading => replies.unwrap(),
        () = writer => panic!("the API has ended"),
    };
    assert_eq!((&page["attempts"][0]["job"], &page["current"]), (&json!("f000"), &json!(false)));
    assert_eq!((&last["attempts"], &last["current"]), (&json!([]), &json!(true)));
}

/// A follower gets each event once, whether the commit comes just before or just after its registration, and also after
/// the writer has disconnected it. The test plays the writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_sees_a_concurrent_commit_exactly_once() {
    use crate::daemon::Entry;
    use crate::store::{Durable, Store};
    use perilog_core::controller::Record;
    use perilog_core::{Event, JobId};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller.db");
    let mut store = Store::open(&path).unwrap();
    let event = |_| Event::at_millis(1, "finish", None);
    let mut commit = |sequence| {
        let job = JobId::new("f1").unwrap();
        store.commit(&[Record::Event { job, sequence, event: event(sequence) }]).unwrap();
    };
    (1..=3).for_each(&mut commit);

    let (inlet, mut entries) = Inlet::new();
    let api = api(inlet, &path);
    let socket = dir.path().join("socket");
    tokio::spawn(serve(perilog_host::varlink::bind(&socket, 0o600, None).unwrap(), api));
    let reading = tokio::task::spawn_blocking(move || {
        let mut client = perilog_host::varlink::Client::connect(&socket).unwrap();
        client.set_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let replies = client.call_more("io.perilog.Controller.Events", json!({"job": "f1", "follow": true})).unwrap();
        let events = replies.flat_map(|reply| reply.unwrap()["events"].as_array().unwrap().clone());
        events.map(|event| event["sequence"].as_u64().unwrap()).take(6).collect::<Vec<_>>()
    });
    // Committed before the registration: only the store has the event.
    let Some(Entry::Follow { events, ready, .. }) = entries.recv().await else { panic!("no follower") };
    commit(4);
    ready.send(()).unwrap();
    // Committed after the registration: in the queue, and perhaps in the store, too.
    commit(5);
    events.put(Arc::new((5, event(5)))).unwrap();
    // The writer disconnects the follower, which continues from the store.
    drop(events);
    let Some(Entry::Follow { events, ready, .. }) = entries.recv().await else { panic!("it did not come again") };
    ready.send(()).unwrap();
    commit(6);
    events.put(Arc::new((6, event(6)))).unwrap();
    assert_eq!(reading.await.unwrap(), [1, 2, 3, 4, 5, 6]);
}
