//! Texts of the drop-ins, and the configuration that results from a drop-in before `init` writes it. The daemon's own
//! program reads a copy of the configuration, because only that program knows what the keys mean.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use perilog_core::HostList;
use toml::Table;

use super::Role;
use crate::fault::Fault;
use crate::text;
use crate::verb::shell;

/// Returns the comment at the head of a drop-in.
fn head(role: Role) -> String {
    let (word, site) = (role.as_str(), role.dropin().with_file_name("site.toml"));
    format!(
        "# Written by `perilog init {word}`, removed by `perilog init undo`. Write your own settings to {}, which is \
         read after this file.\n",
        site.display()
    )
}

/// Returns `text` as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The settings in the controller's drop-in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OfController {
    pub(super) cluster: Option<String>,
    /// The hosts that munge enrols, as a hostlist; `None`: munge enrols no host.
    pub(super) munge_hosts: Option<String>,
}

impl OfController {
    /// Reads the settings from the text of a drop-in that `init` wrote before. Malformed text has no settings.
    pub(super) fn of(text: &str) -> Self {
        let table: Table = text.parse().unwrap_or_default();
        let own = |table: &Table, key: &str| table.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        let munge_hosts =
            table.get("enroll").and_then(toml::Value::as_table).and_then(|enroll| own(enroll, "munge-hosts"));
        Self { cluster: own(&table, "cluster"), munge_hosts }
    }

    /// Adds hosts to those that munge enrols.
    pub(super) fn enrol_by_munge(&mut self, hosts: &HostList) {
        let before: HostList = self.munge_hosts.as_ref().and_then(|text| text.parse().ok()).unwrap_or_default();
        let new = hosts.iter().filter(|host| !before.contains(host));
        self.munge_hosts = HostList::from_names(before.iter().chain(new)).ok().map(|list| list.to_string());
    }

    pub(super) fn text(&self) -> String {
        let mut text = head(Role::Controller);
        if let Some(cluster) = &self.cluster {
            text.push_str(&format!("cluster = {}\n", quoted(cluster)));
        }
        text.push_str("\n# Nodes get their certificates here.\n[enroll]\nlisten = \"[::]:5117\"\n");
        if let Some(hosts) = &self.munge_hosts {
            text.push_str(&format!("munge = true\nmunge-hosts = {}\n", quoted(hosts)));
        }
        text
    }
}

/// The settings in the node's drop-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OfNode<'a> {
    pub(super) host: Option<&'a str>,
    /// Address of the controller, such as `ctl:5115`.
    pub(super) controller: &'a str,
    /// Address of the controller's enrolment port (`ctl:5117`), and the directory in which the agent keeps its
    /// certificate and key. `None`: the node does not enrol, because an administrator installed its certificate.
    pub(super) enrols: Option<(&'a str, &'a Path)>,
    pub(super) munge: bool,
}

impl OfNode<'_> {
    pub(super) fn text(&self) -> String {
        let mut text = head(Role::Node);
        if let Some(host) = self.host {
            text.push_str(&format!("host = {}\n", quoted(host)));
        }
        text.push_str(&format!("controller = [{}]\n", quoted(self.controller)));
        if let Some((enroll, dir)) = self.enrols {
            text.push_str("\n[tls]\n");
            for key in ["ca", "cert", "key"] {
                text.push_str(&format!("{key} = {}\n", quoted(&dir.join(format!("{key}.pem")).display().to_string())));
            }
            text.push_str(&format!(
                "\n# The agent renews its certificate here.\n[enroll]\ncontroller = [{}]\n",
                quoted(enroll)
            ));
            if self.munge {
                text.push_str("munge = true\n");
            }
        }
        text
    }
}

/// Returns the configuration that the daemon would have with this drop-in.
///
/// # Errors
/// The outer error: the configuration cannot be copied to /run, or the daemon's program did not run. The inner error:
/// the program refuses the configuration, in its own words, or its output is malformed.
pub(super) fn would_be(role: Role, dropin: &str) -> Result<Result<Table, String>, Fault> {
    let copy = Copy::new(role, dropin)?;
    let (program, file) = (role.program().display().to_string(), copy.file.display().to_string());
    let output = shell::ask(&program, &["--config", &file, "--print-config"]).map_err(Fault::Other)?;
    if output.ok {
        let table = output.stdout.parse();
        return Ok(table.map_err(|error| format!("the output of {program} --print-config is not TOML: {error}")));
    }
    // Indented lines below a problem show its place in the file.
    let problem = output.stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("no answer");
    let own = format!("perilog-{}: ", role.daemon());
    let problem = problem.strip_prefix(&own).unwrap_or(problem);
    Ok(Err(text::line(&problem.replace(&copy.dir.display().to_string(), "/etc/perilog"))))
}

/// A copy of a daemon's configuration with the new drop-in, in a directory below /run. Dropping it removes the
/// directory.
struct Copy {
    dir: PathBuf,
    file: PathBuf,
}

impl Copy {
    fn new(role: Role, dropin: &str) -> Result<Self, Fault> {
        let dir = PathBuf::from(format!("/run/perilog-init.{}", std::process::id()));
        let failed = |source| Fault::File { what: "cannot make", path: dir.clone(), source };
        let (name, own) = (role.daemon(), role.dropin());
        let copy = Self { file: dir.join(format!("{name}.toml")), dir: dir.clone() };
        let fill = || -> io::Result<()> {
            let to = dir.join(format!("{name}.d"));
            // An earlier `init` with the same process id may have been killed, and its copy left behind.
            if dir.exists() {
                fs::remove_dir_all(&dir)?;
            }
            fs::create_dir_all(&to)?;
            let from = own.parent().unwrap_or(Path::new("/"));
            let main = from.with_extension("toml");
            if main.exists() {
                fs::copy(&main, &copy.file)?;
            }
            let entries = if from.is_dir() { Some(fs::read_dir(from)?) } else { None };
            for entry in entries.into_iter().flatten() {
                let path = entry?.path();
                if path.extension().is_some_and(|end| end == "toml") && path != own {
                    fs::copy(&path, to.join(path.file_name().unwrap_or_default()))?;
                }
            }
            fs::write(to.join(own.file_name().unwrap_or_default()), dropin)
        };
        fill().map_err(failed)?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // If the removal fails, the copy stays in /run until the next boot.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns the text at `path` (names of tables, then the key) in a configuration; `None`: there is no text.
pub(super) fn value<'t>(table: &'t Table, path: &[&str]) -> Option<&'t str> {
    crate::verb::doctor::config::text(table, path)
}
