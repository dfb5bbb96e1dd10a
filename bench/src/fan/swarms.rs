//! A swarm of agents in several processes ([`super::swarm`]), as one: a process has its limit of descriptors.

use std::path::Path;

use anyhow::{Context, Result};

use crate::part::Part;

/// Maximum number of agents in one process.
const OF_ONE: usize = 10_000;

/// The processes of a swarm, each with its number of agents.
pub(crate) struct Swarm(Vec<(Part, usize)>);

impl Swarm {
    /// Starts the processes for so many agents. No agent dials yet.
    pub(super) fn start(directory: &Path, agents: usize) -> Result<Self> {
        let part = |count| Ok((Part::start("swarm", directory)?, count));
        shares(agents).into_iter().map(part).collect::<Result<_>>().map(Self)
    }

    /// Starts the processes as [`start`](Self::start) does, in the network namespace of the process `pid`.
    pub(crate) fn start_in(pid: u32, directory: &Path, agents: usize) -> Result<Self> {
        let part = |count| Ok((Part::start_in(pid, "swarm", directory)?, count));
        shares(agents).into_iter().map(part).collect::<Result<_>>().map(Self)
    }

    /// Makes every agent, of the ranks from `first`, dial an address whose certificate is of `name`; waits until all
    /// are welcomed.
    pub(crate) fn join_at(&mut self, name: &str, address: &str, mut first: usize) -> Result<()> {
        let join = |count| {
            first += count;
            format!("join-at {name} {address} {} {count}", first - count)
        };
        self.ask_each(join).map(drop)
    }

    /// Makes every agent dial `port`, and waits until all are welcomed.
    pub(super) fn join(&mut self, port: &str) -> Result<()> {
        let mut first = 0;
        let join = |count| {
            first += count;
            format!("join {port} {} {count}", first - count)
        };
        self.ask_each(join).map(drop)
    }

    /// Sends a command to all processes, and waits until all have answered.
    pub(super) fn ask(&mut self, line: &str) -> Result<Vec<String>> {
        self.ask_each(|_| line.to_owned())
    }

    /// Waits until each process has counted `what` so many times for each of its agents ([`super::swarm`] has the list
    /// of what is counted).
    pub(super) fn await_times(&mut self, what: &str, times: usize) -> Result<()> {
        self.ask_each(|count| format!("await {what} {}", times * count)).map(drop)
    }

    /// Returns the numbers of `what` that the processes have counted.
    pub(crate) fn counts(&mut self, what: &str) -> Result<Vec<usize>> {
        let counts = self.ask(&format!("count {what}"))?;
        counts.iter().map(|count| count.parse().context("a number")).collect()
    }

    /// Waits until every agent is welcomed once more than at the time of `before`, the numbers of welcomes then.
    pub(crate) fn await_welcomes(&mut self, before: &[usize]) -> Result<()> {
        let mut before = before.iter();
        self.ask_each(|count| format!("await welcomes {}", before.next().unwrap_or(&0) + count))?;
        self.await_times("connected", 1)
    }

    /// Returns the longest redial window that a last Welcome named, in milliseconds.
    pub(super) fn window_ms(&mut self) -> Result<f64> {
        let windows = self.ask("window")?;
        windows.iter().try_fold(0.0, |most, window| Ok(window.parse::<f64>().context("a window")?.max(most)))
    }

    /// Sends each process the command that `line` makes of its number of agents; waits until all have answered.
    fn ask_each(&mut self, mut line: impl FnMut(usize) -> String) -> Result<Vec<String>> {
        let lines: Vec<String> = self.0.iter().map(|(_, count)| line(*count)).collect();
        for ((part, _), line) in self.0.iter_mut().zip(&lines) {
            part.send(line)?;
        }
        self.0.iter_mut().zip(&lines).map(|((part, _), line)| part.answer(line)).collect()
    }
}

/// Returns the numbers of agents of the processes that share `agents` agents: as few processes as possible, with nearly
/// equal numbers.
pub(super) fn shares(agents: usize) -> Vec<usize> {
    let processes = agents.div_ceil(OF_ONE).max(1);
    (0..processes).map(|number| agents * (number + 1) / processes - agents * number / processes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_the_agents() {
        assert_eq!(shares(20), [20]);
        assert_eq!(shares(OF_ONE), [OF_ONE]);
        assert_eq!(shares(19_901), [9_950, 9_951]);
        assert_eq!(shares(3 * OF_ONE), [OF_ONE; 3]);
    }
}
