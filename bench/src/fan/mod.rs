//! Bench of the fan-out. The controller starts one action on thousands of agents and collects all completions. Each
//! round is timed until all completions are durable and the caller knows. For comparison, a bare server sends the same
//! frames over the same wire.
//!
//! The bench also measures the controller's memory per agent, and the time after a kill -9 of the controller until all
//! agents are connected again.
//!
//! ```text
//!            Varlink          mutual TLS
//!   this ──▶ perilog-controller ◀────────── swarm: N agents, at most 10,000 a process
//!    ├─────▶ echo (the bare wire) ◀──────── swarm: N agents, the same
//!    └─────▶ acceptor (bare handshakes) ◀── dialler: N certificates, the same
//!     lines                   mutual TLS
//! ```
//!
//! Both servers keep all their connections during the rounds. Rounds take turns: through the controller, through the
//! bare server, and through the bare server again, which shows the difference between equal measurements. Their order
//! changes with each turn. A round ends when its caller has the result; the next one begins when every agent has its
//! acknowledgement.

pub(crate) mod echo;
pub(crate) mod feed;
mod growth;
pub(crate) mod handshakes;
mod herd;
mod rounds;
pub(crate) mod swarm;
pub(crate) mod swarms;

use anyhow::{Result, ensure};
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

use growth::Size;
use herd::settle;
use swarms::Swarm;

/// Target (docs/performance.md): maximum ratio of the time of a round through the controller to that of a round through
/// the bare server ([`echo`]).
const MOST_OVER_BARE: f64 = 5.0;
/// Target: maximum ratio of the controller's CPU time to that of the bare server.
const MOST_CPU_OVER_BARE: f64 = 3.0;
/// Target: maximum memory of the controller per agent, in KiB.
const MOST_KIB: f64 = 24.0;
/// Number of rounds at the begin that the bench does not count, because buffers and files still grow then.
const WARM_UP: usize = 3;
/// Number of agents up to which the bench takes all rounds.
const FULL_ROUNDS: usize = 10_000;

pub(crate) fn run(options: &Options) -> Result<Value> {
    part::raise_nofile()?;
    let mut table = Table::new(&["", "n", "p50", "p90", "p99"]);
    let (mut sizes, mut growth) = (Vec::new(), Vec::new());
    for agents in options.list("agents", &[1_000, 10_000, 20_000]) {
        ensure!(agents > 0, "no agents, no figures");
        let agents = as_many(agents, part::descriptors(), &mut table);
        // A round of more agents takes longer, and its noise is less.
        let rounds = options.number("rounds", (300 * FULL_ROUNDS / agents).min(300));
        let (document, size) = Bench::new(agents)?.measure(rounds, &mut table)?;
        sizes.push(document);
        growth.push(size);
    }
    let growth = growth::report(&growth, &mut table);
    Ok(json!({"bench": "fan", "machine": machine(), "sizes": sizes, "growth": growth, "table": table.text()}))
}

/// Returns the number of agents to measure: `agents`, or as many as the limit of descriptors allows to the one process
/// of the controller, which is then said in the table.
fn as_many(agents: usize, descriptors: u64, table: &mut Table) -> usize {
    let most = part::connections(descriptors).max(1);
    if agents > most {
        table
            .note(&format!("{agents} agents: {most} are measured, since a process may open {descriptors} descriptors"));
    }
    agents.min(most)
}

struct Bench {
    agents: usize,
    // Dropped in this order: clients, their servers, then the files.
    real: Swarm,
    bare: Swarm,
    echo: Part,
    controller: Controller,
    directory: tempfile::TempDir,
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
        let mut real = Swarm::start(directory.path(), agents)?;
        let mut bare = Swarm::start(directory.path(), agents)?;
        let mut echo = Part::start("echo", directory.path())?;
        let before = Memory::of(controller.pid())?;
        real.join(&controller.port.to_string())?;
        let after = Memory::of(controller.pid())?;
        let port = echo.ask(&format!("listen {agents}"))?;
        bare.join(&port)?;
        let (client, events) = (controller.client()?, controller.client()?);
        let memory = [before, after];
        Ok(Self { agents, real, bare, echo, controller, directory, client, events, attempt: 0, memory })
    }

    fn measure(mut self, rounds: usize, table: &mut Table) -> Result<(Value, Size)> {
        for _ in 0..WARM_UP {
            self.real()?;
            self.bare(self.attempt)?;
        }
        progress(&format!("{} agents: {rounds} rounds", self.agents));
        let mut noise = Noise::begin()?;
        let (mut real, mut bare, mut again) = (Samples::default(), Samples::default(), Samples::default());
        let cpu = [cpu_ms(self.controller.pid())?, cpu_ms(self.echo.pid())?];
        for round in 0..rounds {
            noise.calibrate();
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
        let (herds, reconnect) = self.herds(table)?;
        let pending = self.pending_verdict(table)?;
        self.account(rounds)?;
        let all = self.agents as f64;
        let size = Size {
            agents: self.agents,
            round_ms: real.median(),
            bare_ms: [bare.median(), again.median()],
            cpu_us: cpu[0] * all,
            bare_cpu_us: cpu[1] * all,
            memory_kib: kib * all,
            reconnect_cpu_us: reconnect.cpu_us * all,
        };
        let document = json!({
            "agents": self.agents, "real_ms": real.json(), "bare_ms": bare.json(), "bare_again_ms": again.json(),
            "real_over_bare": ratio, "again_over_bare": again.over(&bare),
            "cpu_us_per_completion": cpu[0], "bare_cpu_us_per_completion": cpu[1],
            "memory": {"empty": empty.json(), "connected": connected.json(), "after_rounds": settled.json(),
                       "kib_per_agent": kib},
            "herds": herds, "pending": pending, "noise": noise,
        });
        Ok((document, size))
    }

    /// Runs one action through the controller. Returns the milliseconds until the caller has the verdict, by when all
    /// ends are durable.
    fn real(&mut self) -> Result<f64> {
        self.attempt += 1;
        let began = clock::mono_us();
        let after = rounds::begin(&mut self.client, self.agents, self.attempt)?;
        rounds::verdict(&self.controller, &mut self.events, self.agents, self.attempt, after)?;
        let elapsed = ms(began);
        // The event stream was left before its end, so its connection cannot be used again.
        self.events = self.controller.client()?;
        settle(&mut self.real, self.attempt)?;
        Ok(elapsed)
    }

    /// Runs one round through the bare server ([`echo`]), which sends every agent the frames that a controller would
    /// send. Returns the milliseconds until every agent has answered.
    fn bare(&mut self, round: usize) -> Result<f64> {
        let began = clock::mono_us();
        self.echo.ask("go")?;
        let elapsed = ms(began);
        settle(&mut self.bare, round)?;
        Ok(elapsed)
    }

    /// Returns an error unless each swarm (the controller's and the bare server's) counted exactly one Start and one
    /// acknowledgement for each agent and round; the rounds of the warm-up count, and so do actions during which the
    /// controller was killed.
    fn account(&mut self, rounds: usize) -> Result<()> {
        let expected = [("real", &mut self.real, rounds + WARM_UP + 2), ("bare", &mut self.bare, 2 * rounds + WARM_UP)];
        for (which, swarm, times) in expected {
            for what in ["starts", "acks"] {
                let count: usize = swarm.counts(what)?.iter().sum();
                ensure!(count == times * self.agents, "{which}: {count} {what} in {times} rounds of {}", self.agents);
            }
        }
        Ok(())
    }
}

fn ms(began_us: u64) -> f64 {
    (clock::mono_us() - began_us) as f64 / 1000.0
}
