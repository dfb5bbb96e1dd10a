//! Tests of which notice a hook's command gets next, and when: a failing notice delays no other notice.

use std::time::Duration;

use perilog_core::controller::Body;
use perilog_core::controller::io::Reader;
use perilog_core::{Attempt, HostName, JobId};

use super::schedule::{FIRST_BACKOFF, LAST_BACKOFF};
use super::*;
use crate::daemon::Entry;

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn row(name: &str, lifted: bool) -> DrainRow {
    let (host, reason) = (host(name), "bad memory".to_owned());
    DrainRow {
        host,
        since_ms: 1,
        reason,
        by: None,
        confirmed: false,
        lifted,
        notified: false,
        stuck: None,
        again: None,
        notice_id: 1,
        asked_ms: 1,
        doubtful: false,
        passing: None,
    }
}

/// Returns the drain notices whose commands would begin at `now`, each as event and hosts, for example `drain n[1-2]`.
fn would_run(rows: &[DrainRow], schedule: &Schedule, now: Instant) -> Vec<String> {
    let tasks = drained(rows.to_vec(), schedule, now);
    tasks.iter().map(|task| format!("{} {}", task.body["event"], task.body["hosts"]).replace('"', "")).collect()
}

#[test]
fn a_host_has_one_drain_call_at_a_time_whichever_way() {
    let now = Instant::now();
    for first in [false, true] {
        let mut schedule = Schedule::default();
        let words = |lifted: bool| if lifted { "undrain" } else { "drain" };
        let task = drained(vec![row("n1", first), row("n2", first)], &schedule, now).remove(0);
        schedule.begin(&task.keys, task.lifts);
        // The opposite notice for one of these hosts, and other hosts with the same reason.
        let later = [row("n1", !first), row("n2", first), row("n3", first)];
        assert_eq!(would_run(&later, &schedule, now), [format!("{} n3", words(first))]);
        schedule.done(&task.keys, now);
        let mut both = [format!("{} n1", words(!first)), format!("{} n[2-3]", words(first))];
        both.sort_by_key(|text| text.starts_with("undrain"));
        assert_eq!(would_run(&later, &schedule, now), both);
    }
}

#[test]
fn a_failing_notice_backs_off_and_delays_no_other() {
    let mut now = Instant::now();
    let mut schedule = Schedule::default();
    let mut backoff = FIRST_BACKOFF;
    for _ in 0..8 {
        let task = drained(vec![row("n1", false)], &schedule, now).remove(0);
        schedule.begin(&task.keys, task.lifts);
        schedule.failed(&task.keys, now);
        assert_eq!(schedule.next(now), Some(now + backoff));
        // A new host with the same reason, and the opposite notice, go out at once.
        assert_eq!(would_run(&[row("n1", false), row("n2", false)], &schedule, now), ["drain n2"]);
        assert_eq!(would_run(&[row("n1", true)], &schedule, now), ["undrain n1"]);
        now += backoff;
        backoff = (backoff * 2).min(LAST_BACKOFF);
        // At this time the notice is due, so the controller does not sleep.
        assert_eq!((schedule.next(now), would_run(&[row("n1", false)], &schedule, now).len()), (None, 1));
    }
    assert_eq!(backoff, LAST_BACKOFF);
    // A removed notice begins anew.
    schedule.keep(|_| false);
    assert_eq!(schedule.turn(&Key::Host(host("n1")), false, now), Some(Turn::Fresh));
}

/// Regression test: one host that the hook rejects kept all other hosts of its command from being drained, and their
/// ranks from being released.
#[test]
fn a_host_that_is_refused_keeps_none_of_its_group_waiting() {
    let began = Instant::now();
    let mut now = began;
    let mut schedule = Schedule::default();
    let names: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
    let mut rows: Vec<DrainRow> = names.iter().map(|name| row(name, false)).collect();
    let refused = [host("n17"), host("n64")];
    let mut commands = 0;
    while rows.len() > refused.len() {
        for task in drained(rows.clone(), &schedule, now) {
            commands += 1;
            schedule.begin(&task.keys, task.lifts);
            if refused.iter().any(|host| task.keys.contains(&Key::Host(host.clone()))) {
                schedule.failed(&task.keys, now);
            } else {
                schedule.done(&task.keys, now);
                rows.retain(|row| !task.keys.contains(&Key::Host(row.host.clone())));
            }
        }
        now = schedule.next(now).expect("a hook is notified again");
        assert!(now - began < Duration::from_secs(10), "{} of {} hosts still wait", rows.len(), names.len());
    }
    assert_eq!(rows.iter().map(|row| row.host.clone()).collect::<Vec<_>>(), refused);
    // Halves of a hundred: seven times for each of the two hosts, and once for all.
    assert!(commands <= 1 + 2 * 2 * 7, "{commands} commands");
    // Each host is alone now, and waits longer each time.
    let alone = drained(rows.clone(), &schedule, now);
    assert_eq!(alone.iter().map(|task| task.keys.len()).collect::<Vec<_>>(), [1, 1]);
    alone.iter().for_each(|task| schedule.begin(&task.keys, task.lifts));
    alone.iter().for_each(|task| schedule.failed(&task.keys, now));
    assert!(schedule.next(now).is_some_and(|at| at - now >= FIRST_BACKOFF));
}

/// Runs the commands of all due notices; a command with a refused host fails. Returns the number of commands.
fn notify(
    rows: &mut Vec<DrainRow>,
    schedule: &mut Schedule,
    now: Instant,
    refuses: impl Fn(&HostName) -> bool,
) -> usize {
    let tasks = drained(rows.clone(), schedule, now);
    tasks.iter().for_each(|task| schedule.begin(&task.keys, task.lifts));
    for task in &tasks {
        let hosts = |row: &DrainRow| task.keys.contains(&Key::Host(row.host.clone()));
        if rows.iter().any(|row| hosts(row) && refuses(&row.host)) {
            schedule.failed(&task.keys, now);
        } else {
            schedule.done(&task.keys, now);
            rows.retain(|row| !hosts(row));
        }
    }
    tasks.len()
}

/// Regression test: when the resource manager was back after an outage, the controller still drained the waiting hosts
/// with one command for each host, four commands at a time, with a minute between the tries of a host.
#[test]
fn after_an_outage_waiting_notices_are_sent_together() {
    let mut now = Instant::now();
    let mut schedule = Schedule::default();
    let mut rows: Vec<DrainRow> = (0..100).map(|n| row(&format!("n{n}"), n % 2 == 1)).collect();
    for _ in 0..20 {
        notify(&mut rows, &mut schedule, now, |_| true);
        now = schedule.next(now).expect("all are reported again");
    }
    now += LAST_BACKOFF;
    assert_eq!(drained(rows.clone(), &schedule, now).len(), 100, "each by itself");
    // After one success the others follow at once, in two commands, drains and lifts, except for a host that the hook
    // still refuses.
    let first = drained(vec![row("n0", false)], &schedule, now).remove(0);
    schedule.begin(&first.keys, first.lifts);
    schedule.done(&first.keys, now);
    rows.remove(0);
    let bad = host("n64");
    assert_eq!(notify(&mut rows, &mut schedule, now, |host| *host == bad), 2);
    assert_eq!(rows.len(), 49, "the drains: one of them is refused");
    let mut commands = 0;
    // A host that failed alone may again be in a group with others. The loop runs until only the refused host waits.
    while rows.len() > 1 || schedule.next(now).is_none() {
        now = schedule.next(now).unwrap_or(now);
        commands += notify(&mut rows, &mut schedule, now, |host| *host == bad);
    }
    assert!(commands <= 2 * 6 + 1, "{commands} commands to find one of 49");
    // The refused host is at fault: other successes do not make its next try earlier.
    for n in 200..210 {
        let next = schedule.next(now).expect("it is reported again");
        rows.push(row(&format!("n{n}"), false));
        assert_eq!(notify(&mut rows, &mut schedule, now, |host| *host == bad), 1);
        assert_eq!((schedule.next(now), rows.len()), (Some(next), 1));
        now = next;
        assert_eq!(notify(&mut rows, &mut schedule, now, |host| *host == bad), 1);
    }
}

/// Regression test: when the hook rejected several hosts for ever, each success of another host put them into one group
/// again. The group was tried a second later, although the hosts had waited for a minute between tries before.
#[test]
fn refused_hosts_keep_their_backoff_when_others_succeed() {
    let began = Instant::now();
    let mut schedule = Schedule::default();
    let bad = ["bad1", "bad2", "bad3"].map(host);
    let refuses = |host: &HostName| bad.contains(host);
    let mut rows: Vec<DrainRow> = bad.iter().map(|host| row(host.as_str(), false)).collect();
    let mut late = 0;
    // Every five minutes for an hour, another host is drained.
    for second in 0..3600u32 {
        let now = began + FIRST_BACKOFF * second;
        if second % 300 == 0 {
            rows.push(row(&format!("n{second}"), false));
        }
        let commands = notify(&mut rows, &mut schedule, now, refuses);
        late += if second >= 900 { commands } else { 0 };
    }
    assert_eq!(rows.len(), bad.len(), "one that is not refused waits");
    // Each bad host once a minute, and the nine others.
    assert_eq!(late, 45 * bad.len() + 9, "commands in the last 45 minutes");
    // A bad host succeeds after all: the others go out once with the new hosts, and then wait as before.
    let now = began + FIRST_BACKOFF * 3600 + LAST_BACKOFF;
    let refuses = |host: &HostName| bad[1..].contains(host);
    assert_eq!(notify(&mut rows, &mut schedule, now, refuses), 3);
    assert_eq!(rows.len(), 2);
    let again: usize =
        (0..60).map(|second| notify(&mut rows, &mut schedule, now + FIRST_BACKOFF * second, refuses)).sum();
    assert!(again <= 4, "{again} commands in a minute");
}

/// A resource manager came back, carried out one notice, and went away again: no host is at fault, and after the next
/// success all waiting notices go out.
#[test]
fn one_success_after_a_second_outage_releases_all() {
    let mut now = Instant::now();
    let mut schedule = Schedule::default();
    let mut rows: Vec<DrainRow> = (0..100).map(|n| row(&format!("n{n}"), false)).collect();
    let away = |rows: &mut Vec<DrainRow>, schedule: &mut Schedule, now: &mut Instant| {
        for _ in 0..20 {
            notify(rows, schedule, *now, |_| true);
            *now = schedule.next(*now).expect("all are reported again");
        }
        *now += LAST_BACKOFF;
    };
    let one = |rows: &mut Vec<DrainRow>, schedule: &mut Schedule, now: Instant| {
        let task = drained(vec![rows.remove(0)], schedule, now).remove(0);
        schedule.begin(&task.keys, task.lifts);
        schedule.done(&task.keys, now);
    };
    away(&mut rows, &mut schedule, &mut now);
    one(&mut rows, &mut schedule, now);
    away(&mut rows, &mut schedule, &mut now);
    one(&mut rows, &mut schedule, now);
    assert_eq!((notify(&mut rows, &mut schedule, now, |_| false), rows.len()), (1, 0));
}

#[test]
fn failed_notices_take_half_the_room_longest_waiting_first() {
    let now = Instant::now();
    let mut task = drained(vec![row("n1", false)], &Schedule::default(), now).remove(0);
    let mut turns = |turns: &[Turn], room: Room| -> Vec<Turn> {
        let tasks = turns.iter().map(|turn| {
            task.turn = *turn;
            task.clone()
        });
        room.chosen(tasks.collect()).iter().map(|task| task.turn).collect()
    };
    let again = |n: u64| Turn::Again(now + Duration::from_secs(n), n);
    let mut many: Vec<Turn> = (0..20).rev().map(again).collect();
    let room = |all, again| Room { all, again };
    assert_eq!(turns(&many, room(8, 4)), [again(0), again(1), again(2), again(3)]);
    many.extend([Turn::Fresh; 20]);
    let schedule = turns(&many, room(8, 4));
    assert_eq!(
        (&schedule[..4], &schedule[4..]),
        (&[again(0), again(1), again(2), again(3)][..], &[Turn::Fresh; 4][..])
    );
    assert_eq!(turns(&many, room(3, 0)), [Turn::Fresh; 3]);
    assert_eq!(turns(&many, room(1, 4)), [again(0)]);
}

/// Regression test: the controller looked only at the pending releases with the lowest sequence numbers. When all of
/// these had failed and waited for their next try, no release of another job began.
#[tokio::test]
async fn jobs_whose_release_fails_keep_no_other_job_waiting() {
    const BAD: u64 = 40;
    let entry = |sequence: u64| OutboxEntry {
        sequence,
        epoch: 1,
        reader: Reader::ReleaseHook,
        job: JobId::new(&if sequence > BAD { "good".to_owned() } else { format!("bad{sequence}") }).unwrap(),
        attempt: Attempt::default(),
        body: Body::from(&json!({"event": "release"})),
    };
    let (inlet, mut queue) = Inlet::new();
    let argv = ["sh", "-c", "grep -q '\"job\":\"good\"'"].map(str::to_owned).to_vec();
    let (_command, configured) = watch::channel(Some(Command { argv, limit: Duration::from_secs(60) }));
    let (_grew, grew) = watch::channel(());
    let mut hook = JoinSet::new();
    hook.spawn(run(Kind::Release, inlet, configured, grew, None));
    let mut failures = 0;
    while let Some(Entry::Request { request, answer, .. }) = queue.recv().await {
        let reply = match request {
            Request::Releases { first, except, limit } => {
                let of_first = |entry: &OutboxEntry| first.contains(&entry.job);
                let (mut entries, others): (Vec<_>, Vec<_>) = (1..=BAD + 1).map(entry).partition(of_first);
                entries.extend(others.into_iter().filter(|entry| !except.contains(&entry.job)));
                entries.truncate(limit);
                Reply::Outbox(entries)
            }
            Request::OutboxDone { sequence } => {
                assert_eq!(sequence, BAD + 1);
                break;
            }
            Request::HookFailed { .. } => {
                failures += 1;
                Reply::Done
            }
            other => panic!("{other:?}"),
        };
        // Each of the others twice: more would never end.
        assert!(failures <= 2 * BAD, "a job waits for those that fail");
        answer.send(Ok(reply)).unwrap();
    }
}

#[tokio::test]
async fn a_commands_output_is_bounded_and_its_last_line_is_why() {
    let notify = async |script: &str, limit: Duration| {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        Command { argv, limit }.notify(&json!({})).await.expect_err("it fails")
    };
    let long = Duration::from_secs(600);
    let error =
        |why: &str, printed: Option<&str>| NotifyError { why: why.to_owned(), printed: printed.map(str::to_owned) };
    assert_eq!(notify("echo aside; exit 3", long).await, error("/bin/sh: exit status: 3", None));
    assert_eq!(notify("echo one >&2; exit 3", long).await, error("/bin/sh: exit status: 3: one", None));
    let two = "echo one >&2; echo two >&2; echo >&2; exit 3";
    assert_eq!(notify(two, long).await, error("/bin/sh: exit status: 3: two", Some("one\ntwo")));
    let flood = notify("seq 1 100000 >&2; exit 3", long).await;
    assert!(flood.why.ends_with(": 100000") && flood.printed.is_some_and(|printed| printed.len() <= 4096));
    // A command that is killed at its limit, or outlived by a child with the pipe, keeps its output.
    let late = notify("echo stuck >&2; sleep 1000", Duration::from_secs(5)).await;
    assert_eq!(late, error("/bin/sh: killed, because it did not end within 5s: stuck", None));
    let held = notify("echo held >&2; sleep 5 & exit 3", long).await;
    assert_eq!(held, error("/bin/sh: exit status: 3: held", None));
}
