//! Many jobs and many hosts: the list of an edge comes in pages, and a list of hosts has a bound.

use perilog_host::varlink::Client;
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::python::{call, refused};

fn source() -> Value {
    json!({"name": "flux", "instance": "i1"})
}

fn connect(bed: &Bed) -> Client {
    Client::connect(&bed.socket()).unwrap()
}

/// Sends the pages of a list of `jobs` jobs, each on a host of its own, up to page `until`. Returns the sums of
/// `known` and `added`, and the size of the largest page.
fn list(client: &mut Client, jobs: u64, until: u64) -> (u64, u64, usize) {
    const PAGE: u64 = 1_000;
    let (mut sync, mut sums, last) = (Value::Null, (0, 0, 0), jobs / PAGE - 1);
    for page in 0..=last.min(until) {
        let one = |of: u64| {
            json!({
                "job": format!("f{of}"), "attempt": "1795683000.5", "userid": 1000, "ranks": of.to_string(),
                "hosts": format!("n{of}"), "phase": "running", "tolerate": "0",
            })
        };
        let attempts: Vec<Value> = (page * PAGE..(page + 1) * PAGE).map(one).collect();
        let mut parameters = json!({"source": source(), "attempts": attempts, "continues": page < last});
        if !sync.is_null() {
            parameters["sync"] = sync;
        }
        sums.2 = sums.2.max(parameters.to_string().len());
        let reported = client.call("io.perilog.Controller.Sync", parameters).unwrap();
        assert_eq!((&reported["over"], &reported["refused"]), (&json!([]), &json!([])), "{reported}");
        sums.0 += reported["known"].as_u64().unwrap();
        sums.1 += reported["added"].as_u64().unwrap();
        sync = reported["sync"].clone();
    }
    sums
}

/// Regression test: an edge lists all jobs at each connect. One request could hold some 8,000 jobs, and an edge with
/// more could never connect again.
#[test]
fn an_edge_with_20000_jobs_comes_back() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let (_, added, largest) = list(&mut connect(&bed), 20_000, u64::MAX);
    assert_eq!(added, 20_000);
    assert!(largest < 256 * 1024, "{largest}");
    // The connection is cut in the middle of the pages, once by the edge and once by a crash of the controller.
    assert_eq!(list(&mut connect(&bed), 20_000, 9).0, 10_000);
    assert_eq!(list(&mut connect(&bed), 20_000, 4).0, 5_000);
    controller.kill();
    let _controller = bed.start();
    let (known, added, _) = list(&mut connect(&bed), 20_000, u64::MAX);
    assert_eq!((known, added), (20_000, 0), "nothing was lost or closed by half a list");
    let mut client = connect(&bed);
    let replies = client.call_more("io.perilog.Controller.Attempts", json!({"source": source()})).unwrap();
    let seen: usize = replies.map(|reply| reply.unwrap()["attempts"].as_array().unwrap().len()).sum();
    assert_eq!(seen, 20_000);
}

/// Returns the rows of a list in pages, none of which is too long. Checks that a call without `more` has the first
/// page.
fn pages(bed: &Bed, method: &str, list: &str, parameters: &Value) -> Vec<Vec<Value>> {
    let (mut client, method) = (connect(bed), format!("io.perilog.Controller.{method}"));
    let first = client.call(&method, parameters.clone()).unwrap();
    let replies: Vec<Value> = client.call_more(&method, parameters.clone()).unwrap().map(Result::unwrap).collect();
    let sizes: Vec<usize> = replies.iter().map(|reply| reply.to_string().len()).collect();
    assert!(sizes.iter().all(|size| *size < 64 * 1024), "{method}: {sizes:?}");
    let last = replies.last().unwrap();
    assert_eq!((&last["truncated"], &first["truncated"]), (&json!(false), &json!(replies.len() > 1)), "{method}");
    let [first, again] = [&first, &replies[0]].map(|page| page[list].as_array().unwrap().iter().map(without_ages));
    // Ages grow between the two calls, and a row whose age has one digit more takes the room of others.
    let least = first.len().min(again.len());
    assert!(least * 10 >= first.len().max(again.len()) * 9, "{method}: {} rows, {}", first.len(), again.len());
    assert!(first.zip(again).all(|(first, again)| first == again), "{method}");
    replies.iter().map(|reply| reply[list].as_array().unwrap().clone()).collect()
}

/// Returns the row of a list without the members that grow with time.
fn without_ages(row: &Value) -> Value {
    let mut row = row.clone();
    row.as_object_mut().unwrap().retain(|name, _| !name.ends_with("age_ms"));
    row
}

#[test]
fn lists_of_many_hosts_and_jobs_come_in_pages() {
    let mut bed = Bed::new();
    let _controller = bed.start();
    call(&bed, "Drain", json!({"nodes": "n[0-29999]", "reason": "no power", "force": true}));
    let drains = pages(&bed, "Drains", "drains", &json!({}));
    assert!(drains.len() > 1 && drains.iter().all(|page| page.len() == 1), "{}", drains.len());
    let hosts = |row: &Value| row["hosts"].as_str().unwrap().parse::<perilog_core::HostList>().unwrap();
    let mut names: Vec<String> =
        drains.iter().flatten().flat_map(|row| hosts(row).iter().map(str::to_owned).collect::<Vec<_>>()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 30_000);
    let some = pages(&bed, "Drains", "drains", &json!({"nodes": "n[29999-30005],n7"}));
    assert_eq!(some.iter().flatten().map(hosts).map(|hosts| hosts.to_string()).collect::<Vec<_>>(), ["n[7,29999]"]);

    list(&mut connect(&bed), 2_000, u64::MAX);
    let rows = pages(&bed, "Ps", "rows", &json!({"held": true}));
    assert!(rows.len() > 1 && rows.concat().len() >= 2_000, "{} {}", rows.len(), rows.concat().len());
    let mut client = connect(&bed);
    let replies = client.call_more("io.perilog.Controller.Attempts", json!({"source": source()})).unwrap();
    let replies: Vec<Value> = replies.map(Result::unwrap).collect();
    assert!(replies.iter().all(|reply| reply.to_string().len() < 64 * 1024));
    let drained = replies.iter().filter_map(|reply| reply["drains"].as_array()).flatten().map(|row| hosts(row).len());
    assert_eq!(drained.sum::<usize>(), 30_000);
}

#[test]
fn more_hosts_than_the_site_allows_are_refused_before_they_are_expanded() {
    let mut bed = Bed::new();
    bed.extra = "max-hosts = 100\n".to_owned();
    let _controller = bed.start();
    let r = |nodes: &str| {
        json!({"version": 1, "execution": {
            "R_lite": [{"rank": "0-100", "children": {"core": "0"}}], "nodelist": [nodes, "m0"],
        }})
    };
    let list = "n[0-1048575],m[0-18446744073709551615]";
    #[rustfmt::skip]
    let table = [
        ("JobAdd", json!({"job": "a", "nodes": "n[0-100]"})), ("JobAdd", json!({"job": "a", "nodes": list})),
        ("JobAdd", json!({"job": "a", "R": r("n[0-99]")})), ("JobAdd", json!({"job": "a", "R": r(list)})),
        ("Run", json!({"job": "a", "action": "prolog", "nodes": list})),
        ("Run", json!({"job": "a", "action": "prolog", "nodes": "n0", "targets": list})),
        ("ActionStart", json!({"job": "a", "action": "copy", "nodes": list, "lease": "1m"})),
        ("ActionReport", json!({"job": "a", "action": "copy", "outcome": "ok", "targets": list})),
        ("ActionMilestone", json!({"job": "a", "action": "copy", "milestone": "x", "targets": list})),
        ("JobFinish", json!({"job": "a", "targets": list})),
        ("Milestone", json!({"job": "a", "name": "x", "targets": list})),
        ("Cancel", json!({"job": "a", "targets": list})),
        ("Signal", json!({"job": "a", "targets": list, "signal": "TERM"})),
        ("Resolve", json!({"job": "a", "targets": list, "ok": true, "reason": "x"})),
        ("Drain", json!({"nodes": list, "reason": "x", "force": true})), ("Undrain", json!({"nodes": list})),
        ("Nodes", json!({"nodes": list})), ("Drains", json!({"nodes": list})), ("NodeForget", json!({"nodes": list})),
        ("TokenMake", json!({"nodes": list})), ("TokenTakeBack", json!({"nodes": list})),
    ];
    for (method, parameters) in table {
        let (error, reported) = refused(&bed, method, parameters.clone(), &[]);
        assert_eq!(
            (error.as_str(), &reported["code"]),
            ("io.perilog.Controller.Refused", &json!("invalid")),
            "{method}"
        );
        let text = reported["text"].as_str().unwrap();
        assert!(text.ends_with("hosts, and the limit is 100 (max-hosts in controller.toml)"), "{method}: {text}");
    }
    let (_, reported) = refused(&bed, "Logs", json!({"job": "a", "targets": list}), &["more"]);
    assert!(reported["text"].as_str().unwrap().contains("max-hosts"), "{reported}");
    call(&bed, "JobAdd", json!({"job": "a", "nodes": "n[0-99]"}));
    // Ranks are a range, however many.
    let (_, reported) = refused(&bed, "JobFinish", json!({"job": "a", "targets": "[0-1048575]"}), &[]);
    assert!(reported["text"].as_str().unwrap().contains("is not one of ranks 0-99"), "{reported}");
    // An attempt with too many hosts keeps no other out of an edge's list.
    let one = |job: &str, ranks: &str, hosts: &str| {
        let phase = "running";
        json!({"job": job, "attempt": "0", "userid": 1000, "ranks": ranks, "hosts": hosts, "phase": phase})
    };
    let attempts = [one("big", "0-1048575", "n[0-1048575]"), one("small", "0", "n0")];
    let reported = call(&bed, "Sync", json!({"source": source(), "attempts": attempts}));
    assert_eq!((&reported["added"], &reported["refused"][0]["job"]), (&json!(1), &json!("big")), "{reported}");
    assert!(reported["refused"][0]["why"].as_str().unwrap().contains("max-hosts"), "{reported}");
}

/// A job in the store stays if the site lowers `max-hosts`, and in a store that is older than this key.
#[test]
fn a_store_with_a_larger_job_is_loaded() {
    let mut bed = Bed::new();
    let controller = bed.start();
    call(&bed, "JobAdd", json!({"job": "a", "nodes": "n[0-299]"}));
    controller.kill();
    bed.extra = "max-hosts = 100\n".to_owned();
    let _controller = bed.start();
    let job = call(&bed, "Show", json!({"job": "a"}))["job"].clone();
    assert_eq!(job["attempts"][0]["hosts"], "n[0-299]", "{job}");
    call(&bed, "JobFinish", json!({"job": "a"}));
}
