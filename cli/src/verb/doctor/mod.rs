//! `perilog doctor`: inspects everything that a node or the controller needs, also if the daemon is down, and names the
//! remedy of each problem.
//!
//! Each module inspects and returns [`Finding`]s; no module changes anything. The daemons' own programs read the
//! configuration (`--check-config`, `--print-config`), because only they know its meaning.
//!
//! | module | inspects |
//! |---|---|
//! | `config` | the configuration |
//! | `tls` | certificates: readable, a pair, for this host, how long they last |
//! | `enroll` | enrolment of a node and renewal: port, token, munge |
//! | `authority` | the authority that enrols nodes: its revocation list, its files, the names that munge enrols |
//! | `daemon` | the unit, its log, its program |
//! | `limits` | limits of the daemon on this host: files, processes, memory, inotify instances |
//! | `version` | systemd, agent, controller and this program |
//! | `scripts` | the scripts of each action, as perilog-runner finds them |
//! | `node` | the runner, the bus, /run, the agent, the connection to the controller |
//! | `slurm` | on a node of Slurm: settings that let a job run during an epilog |
//! | `flux` | beside rank 0 of Flux: the edge, its permissions, the plugin, what Flux forgets; on each node: the IMP |
//! | `controller` | the store's disk, the socket, hooks, versions of agents |
//! | `failover` | the controller on two hosts: their differences |
//! | `fleet` | all of this on other nodes, over ssh |
//! | `kernel` | the clock, and settings of the kernel that many nodes need |

mod authority;
pub(super) mod config;
mod controller;
pub(super) mod daemon;
mod drop_ins;
mod enroll;
mod failover;
mod fleet;
mod flux;
mod kernel;
mod limits;
mod node;
mod scripts;
mod slurm;
mod tls;
mod version;

pub(super) use drop_ins::overriding;
pub(super) use scripts::{parked, skipped, wrong as refused};

use std::path::{Path, PathBuf};

use perilog_core::HostList;
use serde_json::{Value, json};

use super::failover::{is_mounted, mount};
use super::shell;
use crate::columns::{Columns, cell, styled};
use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text, values};

/// Find what is wrong on this host, and what to do about it
///
/// Inspects configuration, certificates, bus, directories, scripts, clock, limits, versions and connections of a node
/// or of the controller, also if its daemon is down; changes nothing. Run it as root, because other users cannot read
/// keys. Exits with 0 if nothing is wrong (warnings do not count), 1 otherwise. With --quiet: only what is wrong, and
/// warnings.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// `node` or `controller`; without it, every role configured on this host.
    #[arg(value_enum)]
    role: Option<Role>,
    /// Check this configuration instead of /etc/perilog/agent.toml or controller.toml.
    #[arg(long, value_name = "FILE", requires = "role")]
    config: Option<PathBuf>,
    /// Run `perilog doctor node` on these nodes over ssh, 16 at a time. Root needs ssh keys that work without a
    /// password. Nodes with the same finding share a line. With --quiet: the nodes where something is wrong.
    #[arg(long, value_name = "HOSTLIST", value_parser = values::hosts, conflicts_with = "role")]
    nodes: Option<HostList>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    Node,
    Controller,
}

impl Role {
    const fn program(self) -> &'static str {
        match self {
            Self::Node => "perilog-agent",
            Self::Controller => "perilog-controller",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Controller => "controller",
        }
    }

    pub(super) fn file(self) -> PathBuf {
        PathBuf::from(match self {
            Self::Node => "/etc/perilog/agent.toml",
            Self::Controller => "/etc/perilog/controller.toml",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// The check could not be made. That alone is no fault of the host.
    Skipped,
    Warning,
    Wrong,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Wrong => "wrong",
        }
    }
}

/// The result of one check: its level, its subject, what doctor saw, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    level: Level,
    about: &'static str,
    what: String,
    /// The remedy; empty if no remedy is needed.
    todo: String,
}

impl Finding {
    pub(super) fn ok(about: &'static str, what: impl Into<String>) -> Self {
        Self { level: Level::Ok, about, what: what.into(), todo: String::new() }
    }

    /// Returns level, subject and text of the finding in one line, for tests.
    #[cfg(test)]
    pub(super) fn shown(&self) -> String {
        format!("{} {}: {}", self.level.as_str(), self.about, self.what)
    }

    pub(super) fn skipped(about: &'static str, what: impl Into<String>) -> Self {
        Self { level: Level::Skipped, about, what: what.into(), todo: String::new() }
    }

    pub(super) fn warning(about: &'static str, what: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { level: Level::Warning, about, what: what.into(), todo: todo.into() }
    }

    pub(super) fn wrong(about: &'static str, what: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { level: Level::Wrong, about, what: what.into(), todo: todo.into() }
    }
}

/// Returns the agent's whole configuration; `None`: no agent is installed, or the agent refuses the configuration.
pub(super) fn configuration(file: &Path) -> Option<toml::Table> {
    config::inspect(Role::Node, file, &mut Vec::new())
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    if let Some(nodes) = &args.nodes {
        return fleet::run(nodes, out);
    }
    let roles = match args.role {
        Some(role) => vec![role],
        None => roles_here(),
    };
    if roles.is_empty() {
        let text = "neither a node nor the controller is configured here (/etc/perilog/agent.toml, controller.toml); \
                    name the role: perilog doctor node";
        return Err(Fault::Usage(text.to_owned()));
    }
    let reports: Vec<Report> = roles.into_iter().map(|role| inspect(role, args.config.clone(), endpoint)).collect();
    let report = Reports(reports);
    out.show(&report)?;
    Ok(if report.are_wrong() { Exit::Failed } else { Exit::Ok })
}

/// Returns the roles that this host is configured for.
fn roles_here() -> Vec<Role> {
    let configured = |role: &Role| role.file().exists() || role.file().with_extension("d").is_dir();
    [Role::Controller, Role::Node].into_iter().filter(configured).collect()
}

fn inspect(role: Role, file: Option<PathBuf>, endpoint: &Endpoint) -> Report {
    let mut findings = Vec::new();
    if !rustix::process::geteuid().is_root() {
        findings.push(Finding::warning(
            "you",
            "perilog doctor does not run as root, so it cannot read keys and the limits of daemons",
            "run it as root",
        ));
    }
    let file = file.unwrap_or_else(|| role.file());
    let config = config::inspect(role, &file, &mut findings);
    let mount = config.as_ref().filter(|_| role == Role::Controller).and_then(mount);
    // On the passive host of two, the controller does not run.
    if mount.is_none_or(is_mounted) {
        daemon::inspect(role, mount.is_none(), &mut findings);
    }
    findings.push(version::systemd());
    kernel::clock(&mut findings);
    match role {
        Role::Node => node::inspect(config.as_ref(), &mut findings),
        Role::Controller => controller::inspect(config.as_ref(), endpoint, &mut findings),
    }
    Report::of("role", role.as_str().to_owned(), findings)
}

/// The findings of doctor about a role of this host, or about another subject.
pub(super) struct Report {
    /// The kind of `subject`: `role` for a role of this host, `directory` for a directory of scripts.
    kind: &'static str,
    subject: String,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) const fn of(kind: &'static str, subject: String, findings: Vec<Finding>) -> Self {
        Self { kind, subject, findings }
    }
}

pub(super) struct Reports(pub(super) Vec<Report>);

impl Reports {
    pub(super) fn are_wrong(&self) -> bool {
        self.worst() == Level::Wrong
    }

    fn worst(&self) -> Level {
        let levels = self.0.iter().flat_map(|report| &report.findings).map(|finding| finding.level);
        levels.max().unwrap_or(Level::Ok)
    }
}

impl Render for Reports {
    fn table(&self, page: &mut Page) {
        for report in &self.0 {
            page.line(style::STRONG.style(text::line(&report.subject)));
            let mut columns = Columns::headless();
            for Finding { level, about, what, todo } in &report.findings {
                let style = match level {
                    Level::Ok => style::GOOD,
                    Level::Skipped => style::QUIET,
                    Level::Warning => style::CARE,
                    Level::Wrong => style::BAD,
                };
                columns.row([styled(level.as_str(), style), cell(*about), cell(text::line(what))]);
                if !todo.is_empty() {
                    columns.row([cell(""), cell(""), styled(format!("-> {}", text::line(todo)), style::STRONG)]);
                }
            }
            page.indented(2, columns);
        }
        let count =
            |level| self.0.iter().flat_map(|report| &report.findings).filter(|f| f.level == level).count() as u64;
        let (wrong, warnings) = (count(Level::Wrong), count(Level::Warning));
        page.line(match (wrong, warnings) {
            (0, 0) => "nothing is wrong".to_owned(),
            (0, _) => format!("nothing is wrong, {}", text::count(warnings, "warning")),
            (1, _) => format!("1 thing is wrong, {}", text::count(warnings, "warning")),
            (_, _) => format!("{wrong} things are wrong, {}", text::count(warnings, "warning")),
        });
    }

    fn json(&self) -> Option<Value> {
        let finding = |report: &Report, of: &Finding| {
            json!({(report.kind): report.subject, "level": of.level.as_str(), "about": of.about,
                             "what": of.what, "todo": of.todo})
        };
        let all = self.0.iter().flat_map(|report| report.findings.iter().map(|of| finding(report, of)));
        Some(json!({ "findings": all.collect::<Vec<_>>() }))
    }

    fn quiet(&self, page: &mut Page) {
        let bad = self.0.iter().flat_map(|report| &report.findings).filter(|f| f.level >= Level::Warning);
        bad.for_each(|of| page.line(format_args!("{} {}: {}", of.level.as_str(), of.about, text::line(&of.what))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::render;

    #[test]
    fn each_finding_says_what_to_do() {
        let findings = vec![
            Finding::ok("clock", "the clock is synchronised by NTP"),
            Finding::warning("certificate", "cert.pem ends in 12 days", "issue a new one"),
            Finding::wrong("scripts", "/etc/perilog/prolog.d: others can write it", "chmod go-w /etc/perilog/prolog.d"),
        ];
        let reports = Reports(vec![Report::of("role", "node".to_owned(), findings)]);
        let [table, json, quiet] = render(&reports, 0);
        assert_eq!(
            table,
            "node\n\
             \u{20} ok       clock        the clock is synchronised by NTP\n\
             \u{20} warning  certificate  cert.pem ends in 12 days\n\
             \u{20}                       -> issue a new one\n\
             \u{20} wrong    scripts      /etc/perilog/prolog.d: others can write it\n\
             \u{20}                       -> chmod go-w /etc/perilog/prolog.d\n\
             1 thing is wrong, 1 warning\n"
        );
        assert!(json.contains("\"level\":\"wrong\""));
        assert_eq!(
            quiet,
            "warning certificate: cert.pem ends in 12 days\nwrong scripts: /etc/perilog/prolog.d: others can write it\n"
        );
        assert_eq!(reports.worst(), Level::Wrong);
    }
}
