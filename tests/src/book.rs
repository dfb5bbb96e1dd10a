//! Pages of the book (docs/) as executable steps: files to write, commands to type, and expected output.
//!
//! | in the page | meaning |
//! |---|---|
//! | a `console` block: `n0# command` | root types the command on that host |
//! | `n[0-3]# command` | root types the command on each of these hosts |
//! | `# command` | root types the command on the page's one machine |
//! | `\` at the end of a line | the command continues in the next line |
//! | lines below a command | the expected output on both streams; runs of blanks count as one |
//! | `...` in an output line; a line of `...` | any text; any lines |
//! | a `toml`, `ini` or `sh` block with `# /path` | a file of that path, with mode 0644 |
//! | `# /path on n[0-3]`, `# /path, mode 0755` | a file on these hosts; a file of this mode |
//! | `<!-- not run: why -->` before a block | the test leaves the block out and counts the omission |
//! | `<!-- stand-in: name -->` before a block | the test runs the stand-in of that name instead |
//! | a `text` block | an illustration for the reader |
//!
//! The path of a file is in the first two lines of the block. Any other block is an error, so that no block is left out
//! by mistake. A command must exit with 0. The test repeats a read-only command (`perilog ps`) until the output matches
//! the page, as a reader would.

mod fits;
mod read;

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::bed::{Bed, Builder};
use crate::cluster::own_boot_id;
use crate::layer::Layer;
use crate::node::Node;
use crate::{Output, wait_until};

pub use fits::fits;
pub use read::{Page, Step, What, illustrated, row};

/// Time limit for one command of a page.
const COMMAND: Duration = Duration::from_secs(120);
/// Time limit for a read-only command, which a test repeats until the output matches the page.
const SEEN: Duration = Duration::from_secs(120);

/// Commands that change nothing, so that a test may repeat them until the output fits.
const READ_ONLY: [&str; 13] = [
    "perilog ps",
    "perilog show",
    "perilog nodes",
    "perilog status",
    "perilog why",
    "perilog events",
    "perilog logs",
    "perilog failed",
    "perilog drain",
    "systemctl status",
    "systemctl is-active",
    "journalctl",
    "cat",
];

/// Environment variable: if set, the test prints each command's output, for the page's author.
const SHOW: &str = "PERILOG_BOOK_SHOW";

/// Counts of the executed steps of a page.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub commands: usize,
    pub files: usize,
    pub skipped: usize,
}

impl Page {
    /// Runs the steps of the page in order. `machine` is the host of each command and file for which the page names no
    /// host; `None` if the page always names one. Where the page has `<!-- stand-in: NAME -->` before a block,
    /// `stand_in(NAME)` runs instead of the block.
    ///
    /// # Errors
    /// A step failed, or the output differs from the page: the error has the page, the line and the difference.
    pub fn run(&self, bed: &Bed, machine: Option<&str>, stand_in: impl Fn(&str) -> Result<()>) -> Result<Done> {
        let node = |host: &Option<String>| {
            bed.node(host.as_deref().or(machine).context("a prompt without a host, on a page about many")?)
        };
        let mut done = Done::default();
        for step in &self.steps {
            let place = || format!("{}:{}", self.name, step.line);
            match &step.what {
                What::File { path, text, mode, hosts } => {
                    for host in hosts {
                        node(host)?.write_with_mode(path, text, *mode).with_context(place)?;
                        done.files += 1;
                    }
                }
                What::Command { command, expected, hosts } => {
                    for host in hosts {
                        node(host).and_then(|node| typed(node, command, expected)).with_context(place)?;
                        done.commands += 1;
                    }
                }
                What::StandIn(name) => stand_in(name).with_context(place)?,
                What::NotRun(_) => done.skipped += 1,
            }
        }
        Ok(done)
    }
}

/// Boots machines that have the product installed, as packages would install it, but no configuration.
///
/// # Errors
/// A node does not boot.
pub fn machines(names: &[&str]) -> Result<Bed> {
    boot(names, Bed::builder().layer(Layer::find()?))
}

/// Boots machines on which perilog is not installed.
///
/// # Errors
/// A node does not boot.
pub fn bare_machines(names: &[&str]) -> Result<Bed> {
    boot(names, Bed::builder())
}

fn boot(names: &[&str], bed: Builder) -> Result<Bed> {
    let bed = names.iter().fold(bed, |bed, name| bed.node(*name)).build()?;
    for node in bed.nodes() {
        own_boot_id(node)?;
    }
    bed.boot()?;
    Ok(bed)
}

/// Runs a command of a page on a node and compares the output with the page.
fn typed(node: &Node, command: &str, expected: &[String]) -> Result<()> {
    let ask = || node.run_within(COMMAND, &["bash", "-c", &format!("exec 2>&1\n{command}")]);
    let good = |output: &Output| output.success() && fits(expected, &output.stdout);
    let wrong = |output: &Output| anyhow!("{}\n--- the page has\n{}", output, expected.join("\n"));
    if !READ_ONLY.iter().any(|prefix| command.starts_with(prefix)) || changes(command) {
        let output = ask()?;
        show(&output);
        return if good(&output) { Ok(()) } else { Err(wrong(&output)) };
    }
    let mut last = None;
    let seen = wait_until(command, SEEN, || {
        let output = ask()?;
        let is_there = good(&output);
        last = Some(output);
        Ok(is_there)
    });
    last.iter().for_each(show);
    match (seen, last) {
        (Err(_), Some(output)) => Err(wrong(&output)),
        (seen, _) => seen,
    }
}

fn show(output: &Output) {
    if std::env::var_os(SHOW).is_some() {
        eprintln!("{output}\n");
    }
}

/// Returns `true` if the command changes something: `perilog drain` only lists drains, `perilog drain n0 "..."` drains
/// a node.
fn changes(command: &str) -> bool {
    command.strip_prefix("perilog drain").is_some_and(|rest| !rest.trim().is_empty())
}

/// Returns an error: the test has no stand-in of this name.
pub fn unknown(name: &str) -> Result<()> {
    bail!("no stand-in called {name:?}")
}
