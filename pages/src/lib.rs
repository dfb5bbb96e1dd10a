//! Manual pages and shell completions, from the same sources as `--help` and the configuration's examples. Text that
//! only a person can write (examples, files, advice) is in `text/`, one file for each page.
//!
//! | module | makes |
//! |---|---|
//! | [`cli`] | perilog(1) and a page for each verb, of the command line |
//! | [`completions`] | names of jobs, nodes and actions in the completions of shells |
//! | [`usage`] | pages of the daemons and of perilog-report, of their `--help` |
//! | [`keys`] | pages of the configuration files, of their examples and the programs' own defaults |
//! | [`journal`] | the fields of the journal on the daemons' pages, of docs/operate.md |
//! | [`text`] | handwritten text, added to these pages, and perilog-events(7) |
//! | [`guides`] | the guides of the book, as packages install them |
//! | [`roff`] | man(7) macros of a [`page::Page`] |
//!
//! Only the build uses this crate: it is in no package.

pub mod cli;
pub mod completions;
pub mod guides;
pub mod journal;
pub mod keys;
pub mod page;
pub mod roff;
pub mod text;
pub mod usage;

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use clap_complete::Shell;

use crate::keys::Example;
use crate::page::Page;

/// Handwritten texts, each after the file name of the page to which it belongs.
const TEXTS: &[(&str, &str)] = &[
    ("perilog.1", include_str!("../text/perilog.1.md")),
    ("perilog-agent.8", include_str!("../text/perilog-agent.8.md")),
    ("perilog-agent.toml.5", include_str!("../text/perilog-agent.toml.5.md")),
    ("perilog-controller.8", include_str!("../text/perilog-controller.8.md")),
    ("perilog-controller.toml.5", include_str!("../text/perilog-controller.toml.5.md")),
    ("perilog-edge.toml.5", include_str!("../text/perilog-edge.toml.5.md")),
    ("perilog-events.7", include_str!("../text/perilog-events.7.md")),
    ("perilog-flux.8", include_str!("../text/perilog-flux.8.md")),
    ("perilog-report.1", include_str!("../text/perilog-report.1.md")),
    ("perilog-runner.8", include_str!("../text/perilog-runner.8.md")),
    // Text for verbs, one page after the other.
    ("verbs", include_str!("../text/verbs.md")),
];

/// Returns every manual page, with its handwritten text.
///
/// # Errors
/// An unreadable example, or a text without a page.
pub fn pages() -> Result<Vec<Page>> {
    let mut pages = cli::pages(perilog::command());
    pages.push(usage::page(
        "perilog-agent",
        8,
        "runs prologs, epilogs and housekeeping on a node",
        perilog_agent::arguments::USAGE,
    ));
    pages.push(usage::page(
        "perilog-controller",
        8,
        "has the agents of a cluster run what a job needs, and keeps what became of it",
        perilog_controller::arguments::USAGE,
    ));
    pages.push(usage::page(
        "perilog-flux",
        8,
        "has the controller run prologs and epilogs of a Flux instance",
        perilog_flux::arguments::USAGE,
    ));
    pages.push(usage::page(
        "perilog-runner",
        8,
        "runs the scripts of one task, inside its unit",
        include_str!("../../agent/src/runner/usage.txt"),
    ));
    pages.push(usage::page(
        "perilog-report",
        1,
        "what a script says of itself",
        include_str!("../../agent/src/report/usage.txt"),
    ));
    pages.push(Page::new("perilog-agent.toml", 5, "configuration of perilog-agent"));
    pages.push(Page::new("perilog-controller.toml", 5, "configuration of perilog-controller"));
    pages.push(Page::new("perilog-edge.toml", 5, "configuration of perilog-flux"));
    pages.push(Page::new("perilog-events", 7, "the event log of a job"));
    for (file, text) in TEXTS.iter().copied().flat_map(written) {
        let page = pages.iter_mut().find(|page| page.file() == file);
        text::add(page.with_context(|| format!("pages/text: there is no page {file}"))?, text);
    }
    for page in &mut pages {
        match page.name.as_str() {
            "perilog-agent.toml" => agent_toml(page)?,
            "perilog-controller.toml" => controller_toml(page)?,
            "perilog-edge.toml" => edge_toml(page)?,
            "perilog-agent" => journal::add(page, &["scripts", "agent"])?,
            "perilog-controller" => journal::add(page, &["controller"])?,
            "perilog-flux" => journal::add(page, &["edge"])?,
            _ => {}
        }
        page.sort();
    }
    Ok(pages)
}

/// Splits a file of handwritten text into pages and their texts.
/// `verbs.md` has many texts, each below a line such as `=== perilog-run.1`; any other file is one text.
fn written((file, text): (&'static str, &'static str)) -> Vec<(&'static str, &'static str)> {
    if file != "verbs" {
        return vec![(file, text)];
    }
    text.split("=== ").skip(1).filter_map(|part| part.split_once('\n')).collect()
}

/// Paths of the tables in agent.toml whose keys a site chooses. `CONTROLLER_MAPS`: the same for controller.toml.
const AGENT_MAPS: [&str; 2] = ["action", "action.NAME.script"];
const CONTROLLER_MAPS: [&str; 1] = ["action"];

/// Parses the example of agent.toml.
pub fn agent_example() -> Result<Example> {
    let text = include_str!("../../agent/agent.toml.example");
    Example::read(text, &AGENT_MAPS).map_err(|error| anyhow!("agent.toml.example: {error}"))
}

/// Parses the example of controller.toml.
pub fn controller_example() -> Result<Example> {
    let text = include_str!("../../controller/controller.toml.example");
    Example::read(text, &CONTROLLER_MAPS).map_err(|error| anyhow!("controller.toml.example: {error}"))
}

/// Parses the example of edge.toml.
pub fn edge_example() -> Result<Example> {
    let text = include_str!("../../flux/edge/edge.toml.example");
    Example::read(text, &["external"]).map_err(|error| anyhow!("edge.toml.example: {error}"))
}

fn agent_toml(page: &mut Page) -> Result<()> {
    let config =
        perilog_agent::config::Config::parse("defaults", "[action.prolog]\n").context("an action without keys")?;
    let defaults = config.print().map_err(|error| anyhow!("the agent's defaults: {error}"))?;
    agent_example()?.add(page, &defaults.parse().context("the agent's defaults")?);
    Ok(())
}

fn controller_toml(page: &mut Page) -> Result<()> {
    let text = "cluster = \"tiny\"\n[action.prolog]\n[action.epilog]\n";
    let config: perilog_controller::config::Config =
        perilog_host::config::parse("defaults", text).context("a cluster's name alone")?;
    let mut defaults: toml::Table = config.to_toml().parse().context("the controller's defaults")?;
    defaults.remove("cluster");
    controller_example()?.add(page, &defaults);
    Ok(())
}

fn edge_toml(page: &mut Page) -> Result<()> {
    let defaults = perilog_flux::config::Config::default().to_toml().parse().context("the edge's defaults")?;
    edge_example()?.add(page, &defaults);
    Ok(())
}

/// Writes `man`, `completions` and `guides` below the directory; returns the number of manual pages. `date` appears in
/// the pages, such as 2026-11-21; empty if unknown.
///
/// # Errors
/// A file that cannot be written.
pub fn write(directory: &Path, date: &str) -> Result<usize> {
    let man = directory.join("man");
    let completions = directory.join("completions");
    let guides = directory.join("guides");
    for directory in [&man, &completions, &guides] {
        std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    let pages = pages()?;
    for page in &pages {
        let path = man.join(page.file());
        let text = roff::render(page, date, env!("CARGO_PKG_VERSION"));
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for (name, text) in guides::guides() {
        let path = guides.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for (shell, file) in [(Shell::Bash, "perilog.bash"), (Shell::Zsh, "_perilog"), (Shell::Fish, "perilog.fish")] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut perilog::command(), "perilog", &mut text);
        ensure!(!text.is_empty(), "no completion for {shell}");
        let text = String::from_utf8(text).with_context(|| format!("the completion for {shell}"))?;
        let mut root = perilog::command();
        root.build();
        let text = match shell {
            Shell::Bash => completions::bash(&root, &text),
            Shell::Zsh => completions::zsh(&text),
            _ => completions::fish(&root, &text),
        };
        let path = completions.join(file);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(pages.len())
}
