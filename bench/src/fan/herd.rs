//! All agents at once: how long they take to be back after a kill -9 of the controller, beside bare TLS handshakes of
//! the same number with the same certificates ([`super::handshakes`]).

use anyhow::{Context, Result};
use perilog_host::clock;
use serde_json::{Value, json};

use super::swarms::{self, Swarm};
use super::{Bench, ms, rounds};
use crate::part::Part;
use crate::process::cpu_ms;
use perilog_bench::report::{Table, progress};
use perilog_bench::stats::figure;

/// Target (docs/performance.md): maximum ratio of the time until all agents are back to that of bare handshakes.
const MOST_OVER_HANDSHAKES: f64 = 1.5;

/// Time and the server's processor time of all agents' dials.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dials {
    pub(super) all_ms: f64,
    /// Processor time of the server, in microseconds for each agent.
    pub(super) cpu_us: f64,
}

impl Dials {
    fn json(self) -> Value {
        json!({"all_ms": self.all_ms, "cpu_us_per_agent": self.cpu_us})
    }
}

/// The processes of the bare handshakes.
struct Handshakes {
    agents: usize,
    acceptor: Part,
    diallers: Vec<Part>,
}

impl Handshakes {
    fn start(directory: &std::path::Path, agents: usize) -> Result<Self> {
        let acceptor = Part::start("acceptor", directory)?;
        let (mut diallers, mut first) = (Vec::new(), 0);
        for count in swarms::shares(agents) {
            let mut dialler = Part::start("dialler", directory)?;
            dialler.ask(&format!("ready {first} {count}"))?;
            diallers.push(dialler);
            first += count;
        }
        Ok(Self { agents, acceptor, diallers })
    }

    /// Makes every agent dial once, measures that, and closes the connections.
    fn dial(&mut self, port: &str) -> Result<Dials> {
        let (began, cpu) = (clock::mono_us(), cpu_ms(self.acceptor.pid())?);
        self.ask_all(&format!("dial {port}"))?;
        let all_ms = ms(began);
        let cpu_us = (cpu_ms(self.acceptor.pid())? - cpu) * 1000.0 / self.agents as f64;
        self.ask_all("leave")?;
        Ok(Dials { all_ms, cpu_us })
    }

    fn ask_all(&mut self, line: &str) -> Result<()> {
        self.diallers.iter_mut().try_for_each(|dialler| dialler.send(line))?;
        self.diallers.iter_mut().try_for_each(|dialler| dialler.answer(line).map(drop))
    }
}

impl Bench {
    /// Kills the controller several times, with bare handshakes between. Adds rows to the table. Returns the figures as
    /// JSON, and those of a kill under idle agents.
    pub(super) fn herds(&mut self, table: &mut Table) -> Result<(Value, Dials)> {
        let mut handshakes = Handshakes::start(self.directory.path(), self.agents)?;
        let (full, resumed) = (handshakes.acceptor.ask("listen full")?, handshakes.acceptor.ask("listen resumed")?);
        progress(&format!("{} agents: bare handshakes", self.agents));
        let bare = handshakes.dial(&full)?;
        let idle = self.herd(false, table)?;
        let again = handshakes.dial(&full)?;
        let live = self.herd(true, table)?;
        // The first connection brings each client its ticket.
        handshakes.dial(&resumed)?;
        let resumed = handshakes.dial(&resumed)?;
        let least = bare.all_ms.min(again.all_ms);
        let ratio = idle.all_ms / least;
        table.note(&format!(
            "{} agents, bare TLS handshakes: {} and (A/A) {} ms, {} and {} us of the server's CPU for each; resumed {} \
             ms, {} us",
            self.agents,
            figure(bare.all_ms),
            figure(again.all_ms),
            figure(bare.cpu_us),
            figure(again.cpu_us),
            figure(resumed.all_ms),
            figure(resumed.cpu_us)
        ));
        table.target(
            &format!("{} agents, reconnect", self.agents),
            &format!(
                "{} x the time of bare handshakes, {} x their CPU",
                figure(ratio),
                figure(idle.cpu_us / bare.cpu_us.min(again.cpu_us))
            ),
            "most 1.5 x",
            ratio <= MOST_OVER_HANDSHAKES,
        );
        let document = json!({
            "idle": idle.json(), "live": live.json(), "bare": bare.json(), "bare_again": again.json(),
            "resumed": resumed.json(), "over_bare": ratio,
        });
        Ok((document, idle))
    }

    /// Kills the controller with -9 and starts a new one. Measures the time until every agent is welcomed again. With
    /// `live`, each agent runs a task meanwhile, and all tasks have to end well afterwards. Adds a note to the table.
    fn herd(&mut self, live: bool, table: &mut Table) -> Result<Dials> {
        progress(&format!("{} agents: kill -9{}", self.agents, if live { ", each with a task that runs" } else { "" }));
        let mut after = 0;
        if live {
            self.attempt += 1;
            self.real.ask("hold 1")?;
            after = rounds::begin(&mut self.client, self.agents, self.attempt)?;
            self.real.await_times("starts", self.attempt)?;
        }
        let welcomes = self.real.counts("welcomes")?;
        let window = self.real.window_ms()?;
        let began = clock::mono_us();
        self.controller.kill_and_restart()?;
        let ready = ms(began);
        self.real.await_welcomes(&welcomes)?;
        let all_ms = ms(began);
        let cpu_us = cpu_ms(self.controller.pid())? * 1000.0 / self.agents as f64;
        (self.client, self.events) = (self.controller.client()?, self.controller.client()?);
        if live {
            self.real.ask("hold 0")?;
            self.real.ask("release")?;
            let verdict = rounds::verdict(&self.controller, &mut self.events, self.agents, self.attempt, after);
            verdict.with_context(|| "after the kill")?;
            self.events = self.controller.client()?;
            settle(&mut self.real, self.attempt)?;
        }
        let what = if live { "all back with a live task each" } else { "all back" };
        table.note(&format!(
            "{} agents, kill -9: new controller answers after {} ms, {what} after {} ms (redial window {} ms), {} us \
             of its CPU for each",
            self.agents,
            figure(ready),
            figure(all_ms),
            figure(window),
            figure(cpu_us)
        ));
        Ok(Dials { all_ms, cpu_us })
    }

    /// Kills the controller with -9 while an action runs, and starts a new one. The agents report the ends of their
    /// tasks as soon as they have connected again. Measures the time from the kill to the verdict of the new
    /// controller.
    pub(super) fn pending_verdict(&mut self, table: &mut Table) -> Result<Value> {
        progress(&format!("{} agents: kill -9, and a verdict is pending", self.agents));
        self.attempt += 1;
        self.real.ask("hold 1")?;
        let after = rounds::begin(&mut self.client, self.agents, self.attempt)?;
        self.real.await_times("starts", self.attempt)?;
        let welcomes = self.real.counts("welcomes")?;
        self.real.ask("hold 0")?;
        let began = clock::mono_us();
        self.controller.kill_and_restart()?;
        self.real.await_welcomes(&welcomes)?;
        let all = ms(began);
        (self.client, self.events) = (self.controller.client()?, self.controller.client()?);
        rounds::verdict(&self.controller, &mut self.events, self.agents, self.attempt, after)
            .context("after the kill")?;
        let verdict = ms(began);
        self.events = self.controller.client()?;
        settle(&mut self.real, self.attempt)?;
        table.note(&format!(
            "{} agents, kill -9 under an action whose tasks end meanwhile: all back after {} ms, its verdict after {} \
             ms",
            self.agents,
            figure(all),
            figure(verdict)
        ));
        Ok(json!({"all_ms": all, "verdict_ms": verdict}))
    }
}

/// Waits until every agent of the swarm has got so many acknowledgements since the swarm's start.
pub(super) fn settle(swarm: &mut Swarm, times: usize) -> Result<()> {
    swarm.await_times("acks", times)
}
