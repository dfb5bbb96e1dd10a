//! A fault while prologs and epilogs run, the time until the controller starts something new, and the comparison of the
//! ledgers.

use std::fmt;

use anyhow::{Context, Result};

use super::{Failover, now};
use crate::command::Running;
use crate::node::Node;

/// Time from a fault until scripts of a request made after the fault begin, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// On the first node.
    pub first: f64,
    /// On the last node.
    pub all: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} s to the next Start, {:.2} s to that of the last node", self.first, self.all)
    }
}

impl Failover {
    /// Strikes while a prolog and an epilog wait at their gate ([`AT_GATE`](crate::AT_GATE)) on every node.
    /// Requests a prolog of another job as a resource manager would, again and again until it begins. Then lets all
    /// scripts end, and asserts that the controller's view of the three jobs agrees with the ledgers. `name` is unique
    /// among the calls. `strike` gets the active host.
    pub fn under_load(&self, name: &str, strike: impl FnOnce(&Node) -> Result<()>) -> Result<Measured> {
        let cluster = self.cluster();
        let ranks: Vec<u32> = (0..).zip(cluster.nodes()).map(|(rank, _)| rank).collect();
        let jobs = [("prolog", format!("p-{name}")), ("epilog", format!("e-{name}")), ("prolog", format!("m-{name}"))];
        let [(_, prolog), (_, epilog), (_, probe)] = &jobs;
        cluster.close_gates()?;
        let clients = [self.request("prolog", prolog)?, self.request("epilog", epilog)?];
        cluster.wait_begun(prolog, &ranks)?;
        cluster.wait_begun(epilog, &ranks)?;

        let from = now()?;
        strike(self.active()?).with_context(|| format!("the fault {name}"))?;
        let measured = self.measure(from, probe)?;
        cluster.open_gates()?;
        for (action, job) in &jobs {
            cluster.wait_scripts_ended(job, &ranks)?;
            self.wait(&format!("a verdict of {job}"), || {
                // The controller may just move.
                let Ok(Some(view)) = cluster.known_job(job) else { return Ok(false) };
                let mut actions = view.attempts.iter().flat_map(|attempt| &attempt.actions);
                Ok(actions.next().is_some_and(|action| action.verdict.is_some()))
            })?;
            cluster.assert_ran(job, &[action])?;
        }
        drop(clients);
        Ok(measured)
    }

    /// Requests a prolog of `job` until it has begun on every node; returns the times since `from`.
    pub(super) fn measure(&self, from: f64, job: &str) -> Result<Measured> {
        let mut client: Option<Running> = None;
        let mut begun = Vec::new();
        self.wait(&format!("the prolog of {job} begins"), || {
            let ended = match &mut client {
                Some(client) => client.has_ended()?,
                None => true,
            };
            if ended {
                client = self.request("prolog", job).ok();
            }
            begun = self.cluster().runs(job)?.iter().map(|(_, run)| run.started - from).collect();
            Ok(begun.len() >= self.cluster().nodes().len())
        })?;
        let (first, all) = (begun.iter().copied().fold(f64::MAX, f64::min), begun.iter().copied().fold(0.0, f64::max));
        Ok(Measured { first, all })
    }

    /// Requests an action of a job on every node, from the active host.
    pub(super) fn request(&self, action: &str, job: &str) -> Result<Running> {
        let nodes = format!("n[0-{}]", self.cluster().nodes().len() - 1);
        self.cluster().start_perilog(&["run", action, "--job", job, "--nodes", &nodes])
    }
}
