//! Measures a job's prolog and epilog under a real Flux. The scripts do nothing. The bench compares three ways to run
//! them:
//!
//! * Flux's stock plugin runs `/bin/true`.
//! * The stock plugin runs perilog's hook.
//! * The edge runs them.
//!
//! Each round runs jobs in every way, one way after the other, and then in the first way again. The difference between
//! both results of the first way is noise.
//!
//! After each job of the edge comes a job of *the engine alone*, without Flux. A client of the controller's API, on the
//! controller's host, runs the same scripts on the same nodes. Its time begins when the client connects, and ends when
//! the client reads the verdict.
//!
//! For the edge's jobs, the table also has the controller's own times. Such a time begins with the batch of inputs that
//! begins the action. It ends with the batch that ends the action, before the commit of that batch.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::Samples;
use perilog_host::clock;
use perilog_tests::flux::{self, Flux};
use perilog_tests::{Cluster, Layer};
use serde_json::{Value, json};

use crate::noise::{Noise, machine};

/// Target (docs/performance.md): maximum ratio of a prolog's or epilog's time with the edge, by Flux's events, to its
/// time with the engine alone, a client of the controller's API without Flux.
const MOST_OVER_ENGINE: f64 = 1.1;
const NODES: usize = 4;
const ACTIONS: [&str; 2] = ["prolog", "epilog"];
const SIZES: [usize; 2] = [1, NODES];
const WAYS: [&str; 4] = ["perilog.so, /bin/true", "perilog.so, the hook", "the edge", "perilog.so, /bin/true again"];
const EDGE: usize = 2;
const AGAIN: usize = 3;
/// Shell script: lets the held job `$0` go, and waits until Flux has cleaned up after it. It uses programs of Flux that
/// are not Python and do not poll, so that they take little processor time from the measured programs.
const DROP_HOLD: &str =
    "export FLUX_URI=local:///run/flux/local; flux job urgency $0 default && flux job wait-event --quiet $0 clean";
/// Lines of controller.toml that let the group flux call the controller's API: Flux runs perilog's hooks as user flux.
const HOOKS: &str = "[api]\ngroup = \"flux\"\n";

/// Times in milliseconds of the jobs of one size whose prolog and epilog ran in one of the [`WAYS`], such as the edge.
/// For jobs of the engine alone, `prolog` and `epilog` have the times of [`Engine::until_verdict`]; the rest is empty.
#[derive(Default)]
struct Measured {
    /// Times from the event `prolog-start` to `prolog-finish`.
    prolog: Samples,
    /// Times from the event `epilog-start` to `epilog-finish`. With the edge they begin at the event `release`, because
    /// its epilog begins there.
    epilog: Samples,
    /// Times from the event `alloc` to `clean`.
    job: Samples,
    /// Durations of prolog (index 0) and epilog (index 1) by the controller's own time stamps; empty for all ways but
    /// the edge.
    own: [Samples; 2],
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let (rounds, samples) = (options.number("rounds", 3), options.number("samples", 20));
    let program = std::env::current_exe().context("the path of this program")?;
    let layer = Layer::Built(program.parent().context("a directory of programs")?.to_owned());
    let cluster = Cluster::builder(NODES).layer(layer).agent("env-allow = [\"FLUX_JOB_ID\"]\n").build()?;
    let nothing = std::fs::read("/bin/true").context("reading /bin/true")?;
    for node in cluster.nodes() {
        for action in ACTIONS {
            node.write_file(&format!("/etc/perilog/agent.d/{action}.toml"), format!("[action.{action}]\n"))?;
            node.write_script(&format!("/etc/perilog/{action}.d/10-noop"), &nothing)?;
        }
    }
    cluster.bed().boot()?;
    cluster.wait_online()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let rank_0 = flux.rank_0()?;
    rank_0.write_file("/etc/perilog/controller.d/hooks.toml", HOOKS)?;
    rank_0.systemctl(&["restart", "perilog-controller"])?;
    cluster.wait_online()?;
    flux.wait_edge()?;

    let mut engine = Engine::new(&cluster)?;
    let mut taken: [[Measured; SIZES.len()]; WAYS.len()] = Default::default();
    let mut alone: [Measured; SIZES.len()] = Default::default();
    let mut noise = Noise::begin()?;
    for round in 0..rounds {
        for (way, measured) in taken.iter_mut().enumerate() {
            progress(&format!("{}, round {} of {rounds}", WAYS[way], round + 1));
            set_up(&flux, way)?;
            for ((size, measured), alone) in SIZES.iter().zip(measured).zip(&mut alone) {
                for turn in 0..=samples {
                    noise.calibrate();
                    let job = flux.submit(*size, &["--urgency=hold"], &["true"])?;
                    flux.rank_0()?.run(&["runuser", "-u", "alice", "--", "sh", "-c", DROP_HOLD, &job])?.ok()?;
                    // The first job of a block is not counted: another way has left its caches.
                    let mut first = (Measured::default(), Measured::default());
                    let (measured, alone) =
                        if turn > 0 { (&mut *measured, &mut *alone) } else { (&mut first.0, &mut first.1) };
                    measured.take(&flux, &cluster, &job, way == EDGE)?;
                    if way == EDGE {
                        engine.take(*size, alone)?;
                    }
                }
            }
            tear_down(&flux, way)?;
        }
    }
    report(&taken, &alone, noise)
}

fn report(
    taken: &[[Measured; SIZES.len()]; WAYS.len()],
    alone: &[Measured; SIZES.len()],
    noise: Noise,
) -> Result<Value> {
    let mut table = Table::new(&["", "n", "p50", "p90", "p99"]);
    let mut ways = Vec::new();
    for (at, ranks) in SIZES.iter().enumerate() {
        let named = WAYS.iter().zip(taken).map(|(name, measured)| (*name, &measured[at]));
        for (name, measured) in named.chain([("the engine alone", &alone[at])]) {
            let Measured { prolog, epilog, job, own } = measured;
            table.row(&format!("{name}: prolog of {ranks}, ms"), prolog.cells());
            table.row(&format!("{name}: epilog of {ranks}, ms"), epilog.cells());
            if job.count() > 0 {
                table.row(&format!("{name}: alloc to clean of {ranks}, ms"), job.cells());
            }
            ways.push(json!({"way": name, "ranks": ranks, "prolog_ms": prolog.json(), "epilog_ms": epilog.json(),
                "job_ms": job.json(), "own_prolog_ms": own[0].json(), "own_epilog_ms": own[1].json()}));
        }
        let (edge, engine) = (&taken[EDGE][at], &alone[at]);
        let again = taken[AGAIN][at].prolog.over(&taken[0][at].prolog);
        for (what, edge, engine, own) in [
            ("prolog", &edge.prolog, &engine.prolog, &edge.own[0]),
            ("epilog", &edge.epilog, &engine.epilog, &edge.own[1]),
        ] {
            table.row(&format!("the controller's own times of the edge: {what} of {ranks}, ms"), own.cells());
            let (low, high) = edge.over_in_parts(engine);
            let (ratio, of_own) = (edge.over(engine), edge.over(own));
            let text = format!(
                "{ratio:.2} x the engine alone ({low:.2} to {high:.2} by tenths of the run), {of_own:.2} x the \
                 controller's \
                 own times (A/A of the stock plugin {again:.2})"
            );
            table.target(&format!("the edge's {what} of {ranks}"), &text, "most 1.1 x", ratio <= MOST_OVER_ENGINE);
        }
    }
    let noise = noise.end(&mut table)?;
    Ok(json!({"bench": "flux", "machine": machine(), "ways": ways, "noise": noise, "table": table.text()}))
}

/// Reconfigures Flux so that `WAYS[way]` runs the prologs and epilogs of jobs instead of the edge. Does nothing if
/// `way` is [`EDGE`].
fn set_up(flux: &Flux<'_>, way: usize) -> Result<()> {
    let (prolog, epilog) = match way {
        EDGE => return Ok(()),
        1 => (r#"["/usr/bin/perilog", "hook", "flux-prolog"]"#, r#"["/usr/bin/perilog", "hook", "flux-epilog"]"#),
        _ => (r#"["/bin/true"]"#, r#"["/bin/true"]"#),
    };
    flux.stop_edge()?;
    flux.ask(&["jobtap", "remove", Path::new(flux::PLUGIN).file_name().and_then(|name| name.to_str()).unwrap_or("")])?;
    flux.site(&format!("[job-manager.prolog]\ncommand = {prolog}\n[job-manager.epilog]\ncommand = {epilog}\n"))?;
    flux.ask(&["config", "reload"])?;
    flux.ask(&["jobtap", "load", "perilog.so"]).map(drop)
}

/// Undoes [`set_up`]: reconfigures Flux so that the edge runs the prologs and epilogs of jobs again. Does nothing if
/// `way` is [`EDGE`].
fn tear_down(flux: &Flux<'_>, way: usize) -> Result<()> {
    if way == EDGE {
        return Ok(());
    }
    flux.ask(&["jobtap", "remove", "perilog.so"])?;
    flux.site("")?;
    flux.ask(&["config", "reload"])?;
    flux.ask(&["jobtap", "load", flux::PLUGIN])?;
    flux.start_edge()?;
    flux.wait_edge()
}

impl Measured {
    fn take(&mut self, flux: &Flux<'_>, cluster: &Cluster, job: &str, is_edge: bool) -> Result<()> {
        let events = flux.events(job)?;
        let at = |name: &str| {
            let event = events.iter().rfind(|event| event.name == name);
            event.map(|event| event.timestamp * 1e3).with_context(|| format!("no {name} of {job}: {events:?}"))
        };
        self.prolog.push(at("prolog-finish")? - at("prolog-start")?);
        let begin = if is_edge { "release" } else { "epilog-start" };
        self.epilog.push(at("epilog-finish")? - at(begin)?);
        self.job.push(at("clean")? - at("alloc")?);
        if is_edge {
            let view = cluster.job(&flux::plain(job))?;
            for (name, own) in ACTIONS.iter().zip(&mut self.own) {
                let mut actions = view.attempts.iter().flat_map(|attempt| &attempt.actions);
                let action = actions.find(|action| action.name.as_str() == *name).context("no such action")?;
                let ended_ms = action.ended_ms.context("an action that has not ended")?;
                ensure!(action.ok.len() == action.ranks.len(), "the {name} of {job} did not end well");
                own.push((ended_ms - action.began_ms) as f64);
            }
        }
        Ok(())
    }
}

/// A client that runs jobs by the controller's API alone, without Flux, on the controller's host.
struct Engine {
    socket: PathBuf,
    /// Number of jobs that the client has run so far; the next job's name is one higher.
    jobs: usize,
}

impl Engine {
    fn new(cluster: &Cluster) -> Result<Self> {
        let leader = cluster.controller()?.leader()?;
        Ok(Self { socket: format!("/proc/{leader}/root/run/perilog/controller.sock").into(), jobs: 0 })
    }

    /// Runs prolog and epilog of a new job on the first `nodes` nodes, and adds the times to `measured`.
    fn take(&mut self, nodes: usize, measured: &mut Measured) -> Result<()> {
        self.jobs += 1;
        let job = json!({"job": format!("bench{}", self.jobs)});
        let run = |action: &str| ("Run", merged(&job, &json!({"action": action})));
        let add = ("JobAdd", merged(&job, &json!({"nodes": format!("n[0-{}]", nodes - 1), "userid": 0})));
        let [prolog, epilog] = ACTIONS;
        measured.prolog.push(self.until_verdict(&job, prolog, [add, run(prolog)])?);
        measured.epilog.push(self.until_verdict(&job, epilog, [run(epilog), ("JobFinish", job.clone())])?);
        Ok(())
    }

    /// Connects to the controller, and sends `calls` (each a method and its parameters) without waiting for replies, as
    /// the edge does. Returns the milliseconds from the connect to the verdict of `action`; an error if the verdict is
    /// not `ok`.
    fn until_verdict(&self, job: &Value, action: &str, calls: [(&str, Value); 2]) -> Result<f64> {
        let began_us = clock::mono_us();
        let mut stream = UnixStream::connect(&self.socket)?;
        let events = ("Events", merged(job, &json!({"follow": true})));
        let calls = calls.into_iter().chain([events]).map(|(method, parameters)| {
            let method = format!("io.perilog.Controller.{method}");
            format!("{}\0", json!({"more": method.ends_with("Events"), "method": method, "parameters": parameters}))
        });
        stream.write_all(calls.collect::<String>().as_bytes())?;
        for reply in BufReader::new(stream).split(0) {
            let reply: Value = serde_json::from_slice(&reply?)?;
            ensure!(reply["error"].is_null(), "{reply}");
            let events = reply["parameters"]["events"].as_array().into_iter().flatten();
            let mut verdicts = events.filter(|event| event["name"] == "verdict");
            if let Some(verdict) = verdicts.find(|event| event["context"]["action"] == *action) {
                let elapsed_us = clock::mono_us() - began_us;
                ensure!(verdict["context"]["verdict"] == "ok", "{verdict}");
                return Ok(elapsed_us as f64 / 1e3);
            }
        }
        anyhow::bail!("the events end without a verdict")
    }
}

fn merged(one: &Value, other: &Value) -> Value {
    let members = [one, other].into_iter().filter_map(Value::as_object).flatten();
    Value::Object(members.map(|(key, value)| (key.clone(), value.clone())).collect())
}
