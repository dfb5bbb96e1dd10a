//! `perilog init undo`: undoes changes that the record of `init` lists, and no others.

use std::path::{Path, PathBuf};

use perilog_core::Span;
use perilog_host::mount::is_mounted;

use super::act::{AGENT, Acting};
use super::record::{Now, Record};
use super::step::{Plan, Step};
use super::{Common, Role, show_and_do, units};
use crate::endpoint::{Daemon, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;

/// Directory of the controller's store and of the authority that enrols nodes. `undo` leaves it.
const STORE: &str = "/var/lib/perilog";

/// Undo what init made on this host
///
/// Disables and stops what init enabled, and removes the files that init wrote. Files that have changed since then
/// stay, and so do the authority and the controller's store; the output names each.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Undo only this role; default: both.
    #[arg(value_enum)]
    role: Option<Role>,
    /// Print the plan and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also remove the authority that init made; then the certificates that it issued can never be renewed or revoked.
    #[arg(long)]
    authority: bool,
}

pub(super) fn run(args: &Args, mut out: Out) -> Result<Exit, Fault> {
    let roles = args.role.map_or_else(|| vec![Role::Node, Role::Controller], |role| vec![role]);
    let mut found = false;
    for role in roles {
        let Some(record) = Record::read(Record::path_of(role))? else { continue };
        found = true;
        take_back(role, record, args.authority, args.dry_run, &mut out)?;
    }
    if !found {
        out.show(&super::step::Shown::planned(&Plan::new("undo: init has made nothing on this host")))?;
    }
    Ok(Exit::Ok)
}

/// Shows the plan that undoes what `init` made for a role, and carries it out unless `dry_run` is set.
pub(super) fn take_back(
    role: Role,
    record: Record,
    authority: bool,
    dry_run: bool,
    out: &mut Out,
) -> Result<(), Fault> {
    let is_installed = |unit: &str| units::state(unit).is_ok_and(|state| state.is_some());
    let stays = if role == Role::Controller { Stays::of(Path::new(STORE)) } else { Stays::Nothing };
    let plan = plan(role, &record, authority, stays, is_installed, Record::now);
    let wait = Span::parse("1m").map_err(|error| Fault::Other(error.to_string()))?;
    // `undo` asks no daemon, so it never uses this socket.
    let endpoint = Endpoint { daemon: Daemon::Agent, path: PathBuf::from("/run/perilog/agent.sock") };
    let mut act = Acting { record, wait, endpoint, lasts: None, tokens: Vec::new() };
    show_and_do(&plan, &Common { dry_run, wait }, out, &mut act).map(drop)
}

/// Kind of the place [`STORE`], which `undo` leaves as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stays {
    Nothing,
    Directory,
    /// A file system of its own, which another host of the controller may need.
    FileSystem,
}

impl Stays {
    fn of(directory: &Path) -> Self {
        match (directory.exists(), is_mounted(directory)) {
            (false, _) => Self::Nothing,
            (true, Ok(false)) => Self::Directory,
            // An error, too: then the note names no command that removes the store of another host.
            (true, _) => Self::FileSystem,
        }
    }

    fn note(self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Directory => Some(format!(
                "stays: {STORE}, with the store and the authority that has enrolled nodes; if no node needs them: \
                 rm -r {STORE}"
            )),
            Self::FileSystem => Some(format!(
                "stays: {STORE}, a file system of its own, with the store and the authority that has enrolled nodes; \
                 another host of the controller may need it"
            )),
        }
    }
}

/// Plans what `undo` removes. `now`: returns the state of a file, compared with the record.
fn plan(
    role: Role,
    record: &Record,
    authority: bool,
    store: Stays,
    is_installed: impl Fn(&str) -> bool,
    now: impl Fn(&Path, Option<&str>) -> Now,
) -> Plan {
    let mut plan = Plan::new(format!("undo of `perilog init {}`", role.as_str()));
    let enabled: Vec<String> = record.enabled.iter().filter(|unit| is_installed(unit)).cloned().collect();
    if !enabled.is_empty() {
        plan.add(format!("disable and stop {}", enabled.join(", ")), Step::Stop { units: enabled.clone() });
    }
    let stays = |path: &Path| !authority && record.authorities.iter().any(|dir| path.starts_with(dir));
    for (path, made) in record.files.iter().rev().filter(|(path, _)| !stays(path)) {
        match now(path, made.as_deref()) {
            Now::Gone => {}
            Now::Same => plan.add(format!("remove {}", path.display()), Step::Remove { path: path.clone() }),
            Now::Changed => plan.note(format!("stays: {}, which has changed since init wrote it", path.display())),
        }
    }
    for path in record.directories.iter().rev().filter(|path| !stays(path)) {
        plan.add(
            format!("remove the directory {}, if it is empty", path.display()),
            Step::RemoveDirectory { path: path.clone() },
        );
    }
    if role == Role::Node {
        let running = if enabled.is_empty() { vec![AGENT] } else { Vec::new() };
        let text = match running.as_slice() {
            [] => "let systemd read its units again (daemon-reload)".to_owned(),
            running => format!(
                "restart {}, if it runs: init did not enable it, so it stays as it is; scripts keep running",
                running.join(", ")
            ),
        };
        plan.add(text, Step::Reload { running });
    }
    plan.add("remove the record of what init made here", Step::Remove { path: record.path().to_owned() });
    for dir in record.authorities.iter().filter(|_| !authority) {
        let dir = dir.display();
        plan.note(format!(
            "stays: the authority in {dir}, because nodes may still rely on it; to remove it, add --authority to this \
             command, or type rm -r {dir} afterwards"
        ));
    }
    store.note().into_iter().for_each(|note| plan.note(note));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_init_made_goes_and_what_others_have_changed_stays() {
        let mut record = Record::empty("/etc/perilog/init-controller.json".into());
        record.enabled = vec!["a.service".to_owned(), "gone.service".to_owned()];
        record.authorities = ["/root/perilog-ca".into(), "/root/ca2".into()].into();
        record.directories = vec!["/root/perilog-ca".into(), "/etc/perilog/tls".into()];
        for path in ["/etc/perilog/tls/cert.pem", "/etc/x.toml", "/etc/gone.toml", "/root/perilog-ca/ca-key.pem"] {
            record.files.insert(path.into(), None);
        }
        let texts = |role: Role, authority: bool| {
            let now = |path: &Path, _: Option<&str>| match path.to_str() {
                Some("/etc/x.toml") => Now::Changed,
                Some("/etc/gone.toml") => Now::Gone,
                _ => Now::Same,
            };
            plan(role, &record, authority, Stays::Nothing, |unit| unit != "gone.service", now).texts()
        };
        let whole = [
            "+ disable and stop a.service",
            "+ remove /root/perilog-ca/ca-key.pem",
            "+ remove /etc/perilog/tls/cert.pem",
            "+ remove the directory /etc/perilog/tls, if it is empty",
            "+ remove the directory /root/perilog-ca, if it is empty",
            "+ remove the record of what init made here",
        ];
        assert_eq!(texts(Role::Controller, true), whole);
        let of = |text: &str| !text.contains("perilog-ca");
        assert_eq!(texts(Role::Controller, false), whole.into_iter().filter(|text| of(text)).collect::<Vec<_>>());
        assert!(texts(Role::Node, true).contains(&"+ let systemd read its units again (daemon-reload)".to_owned()));
        record.enabled.clear();
        let words = plan(Role::Node, &record, false, Stays::Nothing, |_| true, |_, _| Now::Gone).texts();
        assert_eq!(
            words[1],
            "+ restart perilog-agent.service, if it runs: init did not enable it, so it stays as it is; scripts keep \
             running"
        );
    }

    /// On the active host of two, the printed command emptied the disk of both.
    #[test]
    fn a_disk_that_moves_is_not_to_be_emptied() {
        let notes = |place: &str| {
            let record = Record::empty("/etc/perilog/init-controller.json".into());
            let stays = Stays::of(Path::new(place));
            plan(Role::Controller, &record, false, stays, |_| true, |_, _| Now::Gone).notes().join("\n")
        };
        assert_eq!(notes("/none"), "");
        let directory = tempfile::tempdir().unwrap();
        assert!(notes(&directory.path().display().to_string()).contains("if no node needs them: rm -r"));
        let mounted = notes("/proc");
        assert!(mounted.contains("another host of the controller may need it") && !mounted.contains("rm -r"));
    }
}
