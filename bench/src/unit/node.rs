//! Measurement on the node: one process makes units in the five ways of [`WAYS`], which take turns, and times each
//! unit.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use perilog_host::clock;
use serde_json::{Value, json};
use tokio::process::Command;

use super::bare::{Bare, Executes};
use super::link::{AgentLink, listen};
use super::wait::unloaded;
use crate::noise::{Noise, machine};
use perilog_bench::options::Options;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::{Samples, figure};

/// Path on the node of this program. `CERTIFICATES`: the directory of its certificates there.
pub(crate) const PROGRAM: &str = "/usr/local/bin/perilog-bench";
pub(crate) const CERTIFICATES: &str = "/etc/perilog/bench";

/// Target (docs/performance.md): maximum ratio of a task's time to that of a bare unit.
const MOST_OVER_BARE: f64 = 1.5;
/// Target: minimum ratio of the agent's units per second to those over a bare D-Bus connection, without an agent.
const LEAST_THROUGHPUT: f64 = 0.85;
/// Target: maximum ratio of a task's time to that of `systemd-run --wait`.
const MOST_OVER_SYSTEMD_RUN: f64 = 0.5;
/// Number of units of a burst that run at the same time.
const IN_FLIGHT: u64 = 16;
/// Number of units in one burst: so many that the beginning and the end, with fewer in flight, weigh little.
const BURST: u64 = 96;
/// Number of turns at the begin that the bench does not count. In a turn, each of the [`WAYS`] makes one unit.
const WARM_UP: usize = 5;

/// Ways to make a unit. In each turn, the bench makes one unit in every way. The first measured turn has this order.
/// Each later turn begins one way further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Agent,
    Bare,
    BareAgain,
    Runner,
    SystemdRun,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Agent, "agent: Start to unloaded and acknowledged"),
    (Way::Bare, "bare connection, /bin/true"),
    (Way::BareAgain, "bare connection again"),
    (Way::Runner, "bare connection, runner with a no-op script"),
    (Way::SystemdRun, "systemd-run --wait /bin/true"),
];

struct Ways {
    agent: AgentLink,
    bare: Bare,
    /// Number of the next unit; each unit has a job of its own.
    next: u64,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(options.number("samples", 300), options.number("bursts", 20)))
}

/// Waits until this node's agent has connected; returns the connection.
pub(crate) async fn agent() -> Result<AgentLink> {
    // The agent has dialled in vain so far, and its redial window has grown: a restart makes it dial at once. It is
    // stopped before there is a listener, or a last connection of its could be the first that is accepted.
    run_systemctl(&["stop", "perilog-agent.service"]).await?;
    let listener = listen(CERTIFICATES)?;
    let unloaded = unloaded()?;
    run_systemctl(&["--no-block", "start", "perilog-agent.service"]).await?;
    AgentLink::accept(&listener, unloaded).await
}

pub(crate) async fn run_systemctl(arguments: &[&str]) -> Result<String> {
    let output = Command::new("systemctl").args(arguments).output().await.context("running systemctl")?;
    ensure!(output.status.success(), "systemctl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

async fn measure(samples: usize, bursts: usize) -> Result<Value> {
    let agent = agent().await?;
    let bare = Bare::new(agent.boot.clone(), unloaded()?).await?;
    let mut ways = Ways { agent, bare, next: 1 };
    let mut table = Table::new(&["", "n", "p50", "p90", "p99"]);
    for _ in 0..WARM_UP {
        for (way, _) in WAYS {
            ways.one(way).await?;
        }
    }
    progress(&format!("{samples} turns"));
    let mut noise = Noise::begin()?;
    let mut taken: [Samples; WAYS.len()] = Default::default();
    for turn in 0..samples {
        // Each way comes as often in each place.
        for place in 0..WAYS.len() {
            let which = (turn + place) % WAYS.len();
            noise.calibrate();
            taken[which].push(ways.one(WAYS[which].0).await?);
        }
    }
    for ((_, name), samples) in WAYS.iter().zip(&taken) {
        table.row(&format!("{name}, ms"), samples.cells());
    }
    let [agent, bare, again, runner, systemd_run] = &taken;
    table.target(
        "one task's p50",
        &agent.beside(bare, again, "the bare connection"),
        "most 1.5 x",
        agent.over(bare) <= MOST_OVER_BARE,
    );
    let over_run = agent.over(systemd_run);
    table.target(
        "one task's p50",
        &format!("{} x systemd-run --wait", figure(over_run)),
        "most 0.5 x",
        over_run <= MOST_OVER_SYSTEMD_RUN,
    );
    let (added, by_runner) = (agent.median() - bare.median(), runner.median() - bare.median());
    table.note(&format!(
        "of the {} ms that the agent's task takes beyond the bare unit, {} ms are the runner and its script, {} ms \
         everything else",
        figure(added),
        figure(by_runner),
        figure(added - by_runner)
    ));
    let noise = noise.end(&mut table)?;
    let bursts = ways.bursts(bursts, &mut table).await?;
    let raw: Vec<Value> =
        WAYS.iter().zip(&taken).map(|((_, name), samples)| json!({"way": name, "ms": samples.json()})).collect();
    Ok(json!({
        "bench": "unit", "machine": machine(), "ways": raw, "agent_over_bare": agent.over(bare),
        "again_over_bare": again.over(bare),
        "agent_over_systemd_run": over_run, "in_flight": bursts, "noise": noise, "table": table.text(),
    }))
}

impl Ways {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Makes one unit in one of the [`WAYS`], such as through the agent, and waits for its end. Returns the duration in
    /// milliseconds.
    async fn one(&mut self, way: Way) -> Result<f64> {
        let number = self.number();
        let executes = if way == Way::Runner { Executes::Runner } else { Executes::True };
        self.bare.prepare(number, executes)?;
        let began = clock::mono_us();
        match way {
            Way::Agent => drop(self.agent.task(number).await?),
            Way::Bare | Way::BareAgain | Way::Runner => self.bare.unit(number, executes).await?,
            Way::SystemdRun => {
                let mut command = Command::new("systemd-run");
                command.args(["--wait", "--quiet", "/bin/true"]).stdin(Stdio::null());
                ensure!(command.status().await.context("running systemd-run")?.success(), "systemd-run failed");
            }
        }
        let elapsed = clock::mono_us() - began;
        if way == Way::Agent {
            self.agent.forget(number..number + 1).await?;
        }
        Ok(elapsed as f64 / 1000.0)
    }

    /// Measures units per second: makes `bursts` bursts through the agent, over the bare connection, and over it again,
    /// in turns. Adds rows to the table, and returns the figures as JSON.
    async fn bursts(&mut self, bursts: usize, table: &mut Table) -> Result<Value> {
        progress(&format!("{bursts} bursts of {BURST}, {IN_FLIGHT} in flight"));
        let mut noise = Noise::begin()?;
        let (mut agent, mut bare, mut again) = (Samples::default(), Samples::default(), Samples::default());
        for burst in 0..bursts {
            noise.calibrate();
            let mut order = [(Way::Agent, &mut agent), (Way::Bare, &mut bare), (Way::BareAgain, &mut again)];
            order.rotate_left(burst % 3);
            for (way, samples) in order {
                samples.push(self.burst(way).await?);
            }
        }
        for (name, samples) in [("agent", &agent), ("bare connection", &bare), ("bare connection again", &again)] {
            table.row(&format!("{name}, {IN_FLIGHT} in flight, units/s"), samples.cells());
        }
        let ratio = agent.over(&bare);
        table.target(
            &format!("throughput with {IN_FLIGHT} in flight"),
            &agent.beside(&bare, &again, "the bare connection"),
            "least 0.85 x",
            ratio >= LEAST_THROUGHPUT,
        );
        let noise = noise.end(table)?;
        Ok(json!({
            "burst": BURST, "in_flight": IN_FLIGHT, "agent_per_s": agent.json(), "bare_per_s": bare.json(),
            "bare_again_per_s": again.json(),
            "agent_over_bare": ratio, "noise": noise,
        }))
    }

    /// Makes [`BURST`] units through the agent, or over the bare connection for any other `way`, and waits until all
    /// have ended. Returns the number of units per second.
    async fn burst(&mut self, way: Way) -> Result<f64> {
        let first = self.next;
        self.next += BURST;
        let (agent, bare) = (&self.agent, &self.bare);
        let one = async |number: u64| match way {
            Way::Agent => agent.task(number).await.map(drop),
            _ => bare.unit(number, Executes::True).await,
        };
        let began = clock::mono_us();
        let mut flying = FuturesUnordered::new();
        for number in first..first + BURST {
            if flying.len() as u64 == IN_FLIGHT
                && let Some(landed) = flying.next().await
            {
                let () = landed?;
            }
            flying.push(one(number));
        }
        while let Some(landed) = flying.next().await {
            let () = landed?;
        }
        drop(flying);
        let elapsed = clock::mono_us() - began;
        if way == Way::Agent {
            self.agent.forget(first..first + BURST).await?;
        }
        Ok(BURST as f64 / (elapsed as f64 / 1e6))
    }
}
