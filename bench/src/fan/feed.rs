//! Bench of an edge's feed: the time until an edge that follows its attempts knows a verdict, beside the time until a
//! follower of the job's events knows it. Both follow the same jobs of a real controller with simulated agents, and
//! both times begin with the request that begins the prolog.
//!
//! The writer sends an event to its follower right after the commit. What the edge gets later is the feed's own share.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::{Samples, figure};
use perilog_host::clock;
use perilog_host::varlink::Client;
use serde_json::{Value, json};

use super::swarm;
use super::swarms::Swarm;
use crate::authority;
use crate::controller::Controller;
use crate::noise::{Noise, machine};

/// Numbers of ranks of the measured jobs.
const SIZES: [usize; 2] = [1, 4];
/// Number of jobs at the begin that the bench does not count.
const WARM_UP: usize = 20;
/// Time limit for a verdict.
const LIMIT: Duration = Duration::from_secs(60);

/// Times in milliseconds of the jobs of one size.
#[derive(Default)]
struct Measured {
    feed: Samples,
    events: Samples,
    /// Time of the feed minus time of the events, job by job.
    share: Samples,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let samples = options.number("samples", 500);
    let directory = tempfile::Builder::new().prefix("perilog-bench-").tempdir_in("/var/tmp")?;
    let most = SIZES.into_iter().max().unwrap_or(1);
    authority::make(directory.path(), (0..most).map(swarm::host))?;
    let controller = Controller::start(directory.path())?;
    let mut agents = Swarm::start(directory.path(), most)?;
    agents.join(&controller.port.to_string())?;
    let verdicts = follow(&controller)?;
    let mut client = controller.client()?;
    let mut taken: [Measured; SIZES.len()] = Default::default();
    progress(&format!("{samples} jobs of each size"));
    let mut noise = Noise::begin()?;
    for turn in 0..WARM_UP + samples {
        for (size, measured) in SIZES.into_iter().zip(&mut taken) {
            noise.calibrate();
            let [events, feed] = one(&controller, &mut client, &verdicts, size, &format!("f{size}-{turn}"))?;
            if turn >= WARM_UP {
                measured.events.push(events);
                measured.feed.push(feed);
                measured.share.push(feed - events);
            }
        }
    }
    report(&taken, noise)
}

/// Follows the attempts of the bench's source in a thread. Returns the receiver of each job with a verdict, and of the
/// time (microseconds) at which the thread has read it.
fn follow(controller: &Controller) -> Result<Receiver<(String, u64)>> {
    let mut client = controller.client()?;
    client.set_timeout(None)?;
    let (sender, verdicts) = sync_channel(64);
    let (ready, begun) = sync_channel(1);
    std::thread::spawn(move || {
        let follow = json!({"source": source(), "follow": true});
        let Ok(replies) = client.call_more("io.perilog.Controller.Attempts", follow) else { return };
        for reply in replies.map_while(Result::ok) {
            let read_us = clock::mono_us();
            let _ = ready.try_send(());
            for attempt in reply["attempts"].as_array().into_iter().flatten() {
                let job = attempt["job"].as_str().unwrap_or_default().to_owned();
                if attempt["actions"][0]["verdict"].is_string() && sender.send((job, read_us)).is_err() {
                    return;
                }
            }
        }
    });
    begun.recv_timeout(LIMIT).context("the feed does not begin")?;
    Ok(verdicts)
}

fn source() -> Value {
    json!({"name": "bench", "instance": "feed"})
}

/// Runs the prolog of a new job on `size` ranks, and releases the job. Returns the milliseconds until the verdict was
/// read from the job's events, and from the feed.
fn one(
    controller: &Controller,
    client: &mut Client,
    verdicts: &Receiver<(String, u64)>,
    size: usize,
    job: &str,
) -> Result<[f64; 2]> {
    client.call(
        "io.perilog.Controller.JobAdd",
        json!({"job": job, "attempt": "0", "nodes": swarm::hosts(size), "source": source()}),
    )?;
    let mut events = controller.client()?;
    let mut replies = events.call_more("io.perilog.Controller.Events", json!({"job": job, "follow": true}))?.peekable();
    // The follower is registered when the events so far have come.
    replies.peek();
    let began_us = clock::mono_us();
    client.call("io.perilog.Controller.Run", json!({"job": job, "attempt": "0", "action": "prolog"}))?;
    let by_events = loop {
        let reply = replies.next().context("the events end without a verdict")??;
        let mut all = reply["events"].as_array().into_iter().flatten();
        if let Some(verdict) = all.find(|event| event["name"] == "verdict") {
            ensure!(verdict["context"]["verdict"] == "ok", "{verdict}");
            break clock::mono_us();
        }
    };
    let by_feed = loop {
        match verdicts.recv_timeout(LIMIT) {
            Ok((of, at)) if of == job => break at,
            // The release of an earlier job shows its verdict again.
            Ok(_) => {}
            Err(_) => bail!("the feed shows no verdict of {job}"),
        }
    };
    client.call("io.perilog.Controller.JobFinish", json!({"job": job, "attempt": "0"}))?;
    Ok([by_events, by_feed].map(|at| at.saturating_sub(began_us) as f64 / 1000.0))
}

fn report(taken: &[Measured], noise: Noise) -> Result<Value> {
    let mut table = Table::new(&["", "n", "p50", "p90", "p99"]);
    let mut sizes = Vec::new();
    for (ranks, Measured { feed, events, share }) in SIZES.iter().zip(taken) {
        table.row(&format!("verdict of {ranks} by the feed, ms"), feed.cells());
        table.row(&format!("verdict of {ranks} by the events, ms"), events.cells());
        table.row(&format!("what the feed adds, {ranks}, ms"), share.cells());
        table.note(&format!("{ranks}: the feed is {} x the events", figure(feed.over(events))));
        sizes.push(json!({"ranks": ranks, "feed_ms": feed.json(), "events_ms": events.json(),
            "share_ms": share.json()}));
    }
    let noise = noise.end(&mut table)?;
    Ok(json!({"bench": "feed", "machine": machine(), "sizes": sizes, "noise": noise, "table": table.text()}))
}
