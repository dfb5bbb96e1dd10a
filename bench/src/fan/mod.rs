//! Bench of the fan-out. The controller starts one action on thousands of agents and collects all completions. Each
//! round is timed until all completions are durable and the caller knows. For comparison, a bare server sends the same
//! frames over the same wire.
//!
//! The bench also measures the controller's memory per agent, and the time after a kill -9 of the controller until all
//! agents are connected again.
//!
//! ```text
//!            Varlink          mutual TLS
//!   this ──▶ perilog-controller ◀────────── swarm: N agents, one process
//!    └─────▶ echo (the bare wire) ◀──────── swarm: N agents, one process
//!     lines                   mutual TLS
//! ```
//!
//! Both servers keep all their connections during the rounds. Rounds take turns: through the controller, through the
//! bare server, and through the bare server again, which shows the difference between equal measurements. Their order
//! changes with each turn. A round ends when its caller has the result; the next one begins when every agent has its
//! acknowledgement.

pub(crate) mod echo;
mod rounds;
pub(crate) mod swarm;

use anyhow::{Context, Result, ensure};
use perilog_host::clock;
use perilog_host::varlink::Client;
use serde_json::{Value, json};

use crate::authority;
use crate::controller::Controller;
use crate::noise::{Noise, machine};
use crate::part::{self, Part};
use crate::process::{Memory, cpu_ms};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::{Samples, figure};

/// Target (docs/performance.md): maximum ratio of the time of a round through the controller to that of a round through
/// the bare server ([`echo`]).
const MOST_OVER_BARE: f64 = 5.0;
/// Target: maximum ratio of the controller's CPU time to that of the bare server.
const MOST_CPU_OVER_BARE: f64 = 3.0;
/// Target: maximum memory of the controller per agent, in KiB.
const MOST_KIB: f64 = 24.0;
/// Number of rounds at the begin that the bench does not count, because buffers and files still grow then.
const WARM_UP: usize = 3;

pub(crate) fn run(options: &Options) -> Result<Value> {
    part::raise_nofile()?;
    let mut table = Table::new(&["", "n", "p50", "p90", "p99"]);
    let mut sizes = Vec::new();
    for agents in options.list("agents", &[1_000, 10_000]) {
        ensure!(agents > 0, "no agents, no figures");
        sizes.push(Bench::new(agents)?.measure(options.number("rounds", 300), &mut table)?);
    }
    Ok(json!({"bench": "fan", "machine": machine(), "sizes": sizes, "table": table.text()}))
}

struct Bench {
    agents: usize,
    // Dropped in this order: clients, their servers, then the files.
    real: Part,
    bare: Part,
    echo: Part,
    controller: Controller,
    _directory: tempfile::TempDir,
    client: Client,
    events: Client,
    attempt: usize,
    memory: [Memory; 2],
}

impl Bench {
    fn new(agents: usize) -> Result<Self> {
        // On a disk, as a store is: /tmp may be memory.
        let directory = tempfile::Builder::new().prefix("perilog-bench-").tempdir_in("/var/tmp")?;
        progress(&format!("{agents} agents: certificates and first connections"));
        authority::make(directory.path(), (0..agents).map(swarm::host))?;
        let controller = Controller::start(directory.path())?;
        let (mut real, mut bare) = (Part::start("swarm", directory.path())?, Part::start("swarm", directory.path())?);
        let mut echo = Part::start("echo", directory.path())?;
        let before = Memory::of(controller.pid())?;
        real.ask(&format!("join {} {agents}", controller.port))?;
        let after = Memory::of(controller.pid())?;
        let port = echo.ask(&format!("listen {agents}"))?;
        bare.ask(&format!("join {port} {agents}"))?;
        let (client, events) = (controller.client()?, controller.client()?);
        let memory = [before, after];
        Ok(Self { agents, real, bare, echo, controller, _directory: directory, client, events, attempt: 0, memory })
    }

    fn measure(mut self, rounds: usize, table: &mut Table) -> Result<Value> {
        for _ in 0..WARM_UP {
            self.real()?;
            self.bare(self.attempt)?;
        }
        progress(&format!("{} agents: {rounds} rounds", self.agents));
        let mut noise = Noise::begin()?;
        let (mut real, mut bare, mut again) = (Samples::default(), Samples::default(), Samples::default());
        let cpu = [cpu_ms(self.controller.pid())?, cpu_ms(self.echo.pid())?];
        for round in 0..rounds {
            noise.look();
            let turns = WARM_UP + 2 * round;
            if round % 2 == 0 {
                real.push(self.real()?);
                bare.push(self.bare(turns + 1)?);
                again.push(self.bare(turns + 2)?);
            } else {
                bare.push(self.bare(turns + 1)?);
                again.push(self.bare(turns + 2)?);
                real.push(self.real()?);
            }
        }
        let per = |total: f64, turns: usize| total * 1000.0 / (turns.max(1) * self.agents) as f64;
        let cpu =
            [per(cpu_ms(self.controller.pid())? - cpu[0], rounds), per(cpu_ms(self.echo.pid())? - cpu[1], 2 * rounds)];
        let settled = Memory::of(self.controller.pid())?;

        let label = |what: &str| format!("{what}, {} agents", self.agents);
        for (what, samples) in
            [("action out, all durable and back", &real), ("bare wire", &bare), ("bare wire again", &again)]
        {
            table.row(&label(what), samples.cells());
        }
        let ratio = real.over(&bare);
        table.target(
            &format!("{} agents, out and back", self.agents),
            &real.beside(&bare, &again, "the bare wire"),
            "most 5 x",
            ratio <= MOST_OVER_BARE,
        );
        table.target(
            &format!("{} agents, controller CPU per start and completion", self.agents),
            &format!("{} us, bare {} us: {} x", figure(cpu[0]), figure(cpu[1]), figure(cpu[0] / cpu[1])),
            "most 3 x",
            cpu[0] <= MOST_CPU_OVER_BARE * cpu[1],
        );
        let [empty, connected] = self.memory;
        let kib = connected.rss.saturating_sub(empty.rss) as f64 / self.agents as f64;
        table.target(
            &format!("{} agents, controller memory per agent", self.agents),
            &format!(
                "{} KiB ({} KiB without agents, {} with, {} after the rounds)",
                figure(kib),
                empty.rss,
                connected.rss,
                settled.rss
            ),
            "most 24 KiB",
            kib <= MOST_KIB,
        );
        let noise = noise.end(table)?;
        let herds = [self.herd(false, table)?, self.herd(true, table)?];
        let owed = self.owed(table)?;
        self.account(rounds)?;
        Ok(json!({
            "agents": self.agents, "real_ms": real.json(), "bare_ms": bare.json(), "bare_again_ms": again.json(),
            "real_over_bare": ratio, "again_over_bare": again.over(&bare),
            "cpu_us_per_completion": cpu[0], "bare_cpu_us_per_completion": cpu[1],
            "memory": {"empty": empty.json(), "connected": connected.json(), "after_rounds": settled.json(),
                       "kib_per_agent": kib},
            "herds": herds, "owed": owed, "noise": noise,
        }))
    }

    /// Runs one action through the controller. Returns the milliseconds until the caller has the verdict, by when all
    /// ends are durable.
    fn real(&mut self) -> Result<f64> {
        self.attempt += 1;
        let began = clock::mono_us();
        let after = rounds::begin(&mut self.client, self.agents, self.attempt)?;
        rounds::verdict(&self.controller, &mut self.events, self.agents, self.attempt, after)?;
        let took = ms(began);
        // The event stream was left before its end, so its connection cannot be used again.
        self.events = self.controller.client()?;
        settle(&mut self.real, self.attempt * self.agents)?;
        Ok(took)
    }

    /// Runs one round through the bare server ([`echo`]), which sends every agent the frames that a controller would
    /// send. Returns the milliseconds until every agent has answered.
    fn bare(&mut self, round: usize) -> Result<f64> {
        let began = clock::mono_us();
        self.echo.ask("go")?;
        let took = ms(began);
        settle(&mut self.bare, round * self.agents)?;
        Ok(took)
    }

    /// Kills the controller with -9 and starts a new one. Measures the time until every agent is welcomed again. With
    /// `live`, each agent runs a task meanwhile, and all tasks have to end well afterwards. Adds rows to the table;
    /// returns the figures as JSON.
    fn herd(&mut self, live: bool, table: &mut Table) -> Result<Value> {
        progress(&format!("{} agents: kill -9{}", self.agents, if live { ", each with a task that runs" } else { "" }));
        let mut after = 0;
        if live {
            self.attempt += 1;
            self.real.ask("hold 1")?;
            after = rounds::begin(&mut self.client, self.agents, self.attempt)?;
            self.real.ask(&format!("await starts {}", self.attempt * self.agents))?;
        }
        let welcomes: usize = self.real.ask("count welcomes")?.parse()?;
        let window: f64 = self.real.ask("window")?.parse()?;
        let began = clock::mono_us();
        self.controller.kill_and_restart()?;
        let ready = ms(began);
        self.real.ask(&format!("await welcomes {}", welcomes + self.agents))?;
        self.real.ask(&format!("await connected {}", self.agents))?;
        let all = ms(began);
        let cpu = cpu_ms(self.controller.pid())?;
        (self.client, self.events) = (self.controller.client()?, self.controller.client()?);
        if live {
            self.real.ask("hold 0")?;
            self.real.ask("release")?;
            let verdict = rounds::verdict(&self.controller, &mut self.events, self.agents, self.attempt, after);
            verdict.with_context(|| "after the kill")?;
            self.events = self.controller.client()?;
            settle(&mut self.real, self.attempt * self.agents)?;
        }
        let what = if live { "all back with a live task each" } else { "all back" };
        let per = cpu * 1000.0 / self.agents as f64;
        table.note(&format!(
            "{} agents, kill -9: new controller answers after {} ms, {what} after {} ms (redial window {} ms), {} us \
             of its CPU for each",
            self.agents,
            figure(ready),
            figure(all),
            figure(window),
            figure(per)
        ));
        Ok(json!({"live": live, "ready_ms": ready, "all_ms": all, "window_ms": window, "cpu_us_per_agent": per}))
    }

    /// Kills the controller with -9 while an action runs, and starts a new one. The agents report the ends of their
    /// tasks as soon as they have connected again. Measures the time from the kill to the verdict of the new
    /// controller.
    fn owed(&mut self, table: &mut Table) -> Result<Value> {
        progress(&format!("{} agents: kill -9, and a verdict is owed", self.agents));
        self.attempt += 1;
        self.real.ask("hold 1")?;
        let after = rounds::begin(&mut self.client, self.agents, self.attempt)?;
        self.real.ask(&format!("await starts {}", self.attempt * self.agents))?;
        let welcomes: usize = self.real.ask("count welcomes")?.parse()?;
        self.real.ask("hold 0")?;
        let began = clock::mono_us();
        self.controller.kill_and_restart()?;
        self.real.ask(&format!("await welcomes {}", welcomes + self.agents))?;
        let all = ms(began);
        (self.client, self.events) = (self.controller.client()?, self.controller.client()?);
        rounds::verdict(&self.controller, &mut self.events, self.agents, self.attempt, after)
            .context("after the kill")?;
        let verdict = ms(began);
        self.events = self.controller.client()?;
        settle(&mut self.real, self.attempt * self.agents)?;
        table.note(&format!(
            "{} agents, kill -9 under an action whose tasks end meanwhile: all back after {} ms, its verdict after {} \
             ms",
            self.agents,
            figure(all),
            figure(verdict)
        ));
        Ok(json!({"all_ms": all, "verdict_ms": verdict}))
    }

    /// Returns an error unless each swarm (the controller's and the bare server's) counted exactly one Start and one
    /// acknowledgement for each agent and round; the rounds of the warm-up count, and so do actions during which the
    /// controller was killed.
    fn account(&mut self, rounds: usize) -> Result<()> {
        let expected = [("real", &mut self.real, rounds + WARM_UP + 2), ("bare", &mut self.bare, 2 * rounds + WARM_UP)];
        for (which, swarm, times) in expected {
            for what in ["starts", "acks"] {
                let count: usize = swarm.ask(&format!("count {what}"))?.parse()?;
                ensure!(count == times * self.agents, "{which}: {count} {what} in {times} rounds of {}", self.agents);
            }
        }
        Ok(())
    }
}

/// Waits until the agents of the swarm together have got `times` acknowledgements since the swarm's start.
fn settle(swarm: &mut Part, times: usize) -> Result<()> {
    swarm.ask(&format!("await acks {times}")).map(drop)
}

fn ms(began_us: u64) -> f64 {
    (clock::mono_us() - began_us) as f64 / 1000.0
}
