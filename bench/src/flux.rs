//! A job's prolog under a real Flux: the stock plugin with `/bin/true`, the stock plugin with perilog's hook, and the
//! edge, in turns in one run. The scripts do nothing. Of the edge's jobs the controller's own times are the engine
//! alone.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::Samples;
use perilog_tests::flux::{self, Flux};
use perilog_tests::{Cluster, Layer};
use serde_json::{Value, json};

use crate::noise::{Noise, machine};

/// Target of the edge (docs/performance.md): maximum ratio of prolog-start to prolog-finish to the engine alone.
const MOST_OVER_ENGINE: f64 = 1.1;
const NODES: usize = 4;
const SIZES: [usize; 2] = [1, NODES];
const WAYS: [&str; 4] = ["perilog.so, /bin/true", "perilog.so, the hook", "the edge", "perilog.so, /bin/true again"];
const EDGE: usize = 2;
/// Lets the user flux call the hooks as well.
const HOOKS: &str = "[api]\ngroup = \"flux\"\n";

/// The measured values of one way and size, in milliseconds.
#[derive(Default)]
struct Measured {
    /// From `prolog-start` to `prolog-finish`.
    prolog: Samples,
    /// From `submit` to `clean`.
    job: Samples,
    /// From the controller's begin of the prolog to the prolog's verdict.
    engine: Samples,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let (rounds, samples) = (options.number("rounds", 3), options.number("samples", 20));
    let program = std::env::current_exe().context("the path of this program")?;
    let layer = Layer::Built(program.parent().context("a directory of programs")?.to_owned());
    let cluster = Cluster::builder(NODES).layer(layer).agent("env-allow = [\"FLUX_JOB_ID\"]\n").build()?;
    let nothing = std::fs::read("/bin/true").context("reading /bin/true")?;
    for node in cluster.nodes() {
        for action in ["prolog", "epilog"] {
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

    let mut taken: [[Measured; SIZES.len()]; WAYS.len()] = Default::default();
    let mut noise = Noise::begin()?;
    for round in 0..rounds {
        for (way, measured) in taken.iter_mut().enumerate() {
            progress(&format!("{}, round {} of {rounds}", WAYS[way], round + 1));
            set_up(&flux, way)?;
            for (size, measured) in SIZES.iter().zip(measured) {
                for turn in 0..=samples {
                    noise.look();
                    let job = flux.submit(*size, &[], &["true"])?;
                    flux.wait_clean(&job)?;
                    // The first job of a block finds caches that another way has left.
                    if turn > 0 {
                        measured.take(&flux, &cluster, &job, way == EDGE)?;
                    }
                }
            }
            tear_down(&flux, way)?;
        }
    }
    report(&taken, noise)
}

fn report(taken: &[[Measured; SIZES.len()]; WAYS.len()], noise: Noise) -> Result<Value> {
    let mut table = Table::new(&["", "n", "p50", "p90", "p99"]);
    let mut ways = Vec::new();
    for (at, ranks) in SIZES.iter().enumerate() {
        for (name, measured) in WAYS.iter().zip(taken) {
            let measured = &measured[at];
            table.row(&format!("{name}: prolog of {ranks}, ms"), measured.prolog.cells());
            table.row(&format!("{name}: submit to clean of {ranks}, ms"), measured.job.cells());
            ways.push(json!({"way": name, "ranks": ranks, "prolog_ms": measured.prolog.json(),
                "job_ms": measured.job.json(), "engine_ms": measured.engine.json()}));
        }
        let edge = &taken[EDGE][at];
        table.row(&format!("the engine alone: prolog of {ranks}, ms"), edge.engine.cells());
        let ratio = edge.prolog.over(&edge.engine);
        let again = taken[3][at].prolog.over(&taken[0][at].prolog);
        let text = format!("{ratio:.2} x the engine (A/A of the stock plugin {again:.2})");
        table.target(&format!("the edge's prolog of {ranks}"), &text, "most 1.1 x", ratio <= MOST_OVER_ENGINE);
    }
    let noise = noise.end(&mut table)?;
    Ok(json!({"bench": "flux", "machine": machine(), "ways": ways, "noise": noise, "table": table.text()}))
}

/// Changes from the edge to another way; the edge itself is there.
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

/// Changes back to the edge.
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
    fn take(&mut self, flux: &Flux<'_>, cluster: &Cluster, job: &str, with_engine: bool) -> Result<()> {
        let events = flux.events(job)?;
        let at = |name: &str| {
            let event = events.iter().find(|event| event.name == name);
            event.map(|event| event.timestamp * 1e3).with_context(|| format!("no {name} of {job}: {events:?}"))
        };
        self.prolog.push(at("prolog-finish")? - at("prolog-start")?);
        self.job.push(at("clean")? - at("submit")?);
        if with_engine {
            let view = cluster.job(&flux::plain(job))?;
            let mut actions = view.attempts.iter().flat_map(|attempt| &attempt.actions);
            let prolog = actions.find(|action| action.name.as_str() == "prolog").context("no prolog")?;
            let ended_ms = prolog.ended_ms.context("a prolog that has not ended")?;
            ensure!(prolog.ok.len() == prolog.ranks.len(), "the prolog of {job} did not end well");
            self.engine.push((ended_ms - prolog.began_ms) as f64);
        }
        Ok(())
    }
}
