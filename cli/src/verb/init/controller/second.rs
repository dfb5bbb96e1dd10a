//! `perilog init controller --failover-of HOST`: makes this host the second one of a controller, with what HOST has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use perilog_core::HostList;
use perilog_core::hostlist::is_same_host;

use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::verb::ca::files::{Who, read};
use crate::verb::ca::read::certificates;
use crate::verb::failover::inventory::{self, Units};
use crate::verb::failover::{self, Inventory, USER, same_ids};
use crate::verb::init::act::Acting;
use crate::verb::init::record::Record;
use crate::verb::init::step::{Plan, Step};
use crate::verb::init::{Common, Role, refused, show_and_do, units};
use crate::verb::own_name;

/// The state of this host before `init`.
#[derive(Debug, Clone, Default)]
struct There {
    host: String,
    systemd: bool,
    installed: bool,
    /// User id and group id of the controller's user here; `None`: there is no such user.
    user: Option<(u32, u32)>,
    /// Units of the controller that are enabled here.
    enabled: Vec<String>,
    /// Whether the controller runs here.
    active: bool,
    /// For each file of the other host that exists here: its contents, and whether `init` wrote it.
    files: BTreeMap<PathBuf, (String, bool)>,
}

/// Plans the files that this host lacks.
///
/// # Errors
/// All conflicts, one sentence each: `init` changes nothing then.
fn plan(first: &Inventory, there: &There) -> Result<Plan, Vec<String>> {
    let (own, other) = (&there.host, &first.host);
    let mut plan = Plan::new(format!("the controller's second host {own}, as {other}"));
    let mut conflicts = Vec::new();
    if !there.systemd {
        conflicts.push("systemd does not run here".to_owned());
    }
    if !there.installed {
        conflicts.push("there is no controller's program: install the package perilog-controller".to_owned());
    }
    let ours = env!("CARGO_PKG_VERSION");
    if first.version != ours {
        conflicts.push(format!("perilog is {ours} here and {} on {other}: install the same", first.version));
    }
    if there.active {
        conflicts.push("the controller runs here: stop it, and decide whether its store is needed".to_owned());
    }
    match first.hosts.as_ref().map(|hosts| hosts.parse::<HostList>()) {
        Some(Ok(hosts)) if [own, other].iter().all(|host| hosts.listed(host).is_some()) => {}
        _ => conflicts.push(format!(
            "{other} has no [failover] with both hosts: write there, to /etc/perilog/controller.d/failover.toml: \
             [failover] hosts = \"{other},{own}\""
        )),
    }
    match (there.user, first.user) {
        (own, Some(wanted)) if own != Some(wanted) => {
            let ids = own.map_or_else(|| "missing".to_owned(), |(uid, gid)| format!("{uid}:{gid}"));
            conflicts.push(format!(
                "the user {USER} is {ids} here and {}:{} on {other}, and each move would change the owner of files: {}",
                wanted.0,
                wanted.1,
                same_ids(wanted)
            ));
        }
        _ => {}
    }
    certificate(first, own, &mut conflicts);
    for (path, text) in &first.files {
        let shown = path.display();
        let Some(contents) = &text.contents else {
            conflicts.push(format!("{other} sent no contents of {shown}"));
            continue;
        };
        let who = if text.mode & 0o004 == 0 { Who::OwnerOnly } else { Who::Everybody };
        let write = Step::Write { path: path.clone(), who, text: contents.clone() };
        match there.files.get(path) {
            Some((here, _)) if here == contents => plan.is_there(format!("{shown}: as on {other}")),
            _ if !inventory::is_portable(path) => conflicts.push(format!(
                "{shown} differs here or is missing, and init brings files of /etc/perilog: copy it first"
            )),
            Some((_, true)) => plan.add(format!("write {shown} anew, as on {other}"), write),
            Some((_, false)) => conflicts.push(format!("{shown} differs here, and init did not write it: remove it")),
            None => plan.add(format!("write {shown}, as on {other}"), write),
        }
    }
    if there.enabled.is_empty() {
        plan.is_there("the units are not enabled: the cluster manager starts them".to_owned());
    } else {
        let units = there.enabled.join(", ");
        plan.add(
            format!("disable {units}: the cluster manager starts the units"),
            Step::Stop { units: there.enabled.clone() },
        );
    }
    plan.note(format!(
        "the controller's key is now on {other} and on {own}: anyone who reads it can be the controller"
    ));
    plan.note("to compare the hosts: perilog doctor controller");
    if conflicts.is_empty() { Ok(plan) } else { Err(conflicts) }
}

/// Checks that the controller's certificate names this host, too: agents that dial this host expect it.
fn certificate(first: &Inventory, own: &str, conflicts: &mut Vec<String>) {
    let Some(path) = first.own.first() else { return };
    let Some(pem) = first.files.get(path).and_then(|text| text.contents.as_ref()) else { return };
    let read = certificates(path, pem).map(|read| read.into_iter().next().map(|read| read.names).unwrap_or_default());
    match read {
        Ok(names) if names.iter().any(|name| is_same_host(name, own)) => {}
        Ok(names) => conflicts.push(format!(
            "the certificate of {} is for {}, and not for {own}: issue one there that has this name, too (perilog ca \
             issue --role controller, with every name)",
            first.host,
            names.join(", ")
        )),
        Err(fault) => conflicts.push(fault.to_string()),
    }
}

pub(super) fn run(other: &str, common: &Common, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let first = failover::ask(other, true).map_err(Fault::Other)?;
    let record = Record::read(Record::path_of(Role::Controller))?;
    let there = inspect(&first, record.as_ref())?;
    let plan = plan(&first, &there).map_err(|conflicts| refused(&conflicts))?;
    let record = record.unwrap_or_else(|| Record::empty(Record::path_of(Role::Controller)));
    let mut act = Acting { record, wait: common.wait, endpoint: endpoint.clone(), lasts: None, tokens: Vec::new() };
    show_and_do(&plan, common, &mut out, &mut act)?;
    Ok(Exit::Ok)
}

fn inspect(first: &Inventory, record: Option<&Record>) -> Result<There, Fault> {
    let mut files = BTreeMap::new();
    for path in first.files.keys().filter(|path| path.symlink_metadata().is_ok()) {
        let is_ours = record.is_some_and(|record| record.owns(path));
        files.insert(path.clone(), (read(path)?, is_ours));
    }
    let Units { enabled, active } = inventory::units()?;
    let (host, systemd, installed) = (own_name(), units::systemd_runs(), Role::Controller.program().exists());
    Ok(There { host, systemd, installed, user: inventory::user(), enabled, active, files })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::failover::Text;

    fn first() -> Inventory {
        let text = |mode, contents: &str| Text { sha256: String::new(), mode, contents: Some(contents.to_owned()) };
        let files =
            [("/etc/perilog/controller.toml", 0o644, "cluster = 'c'\n"), ("/etc/perilog/tls/key.pem", 0o640, "k")];
        Inventory {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: "ctl0".to_owned(),
            hosts: Some("ctl[0-1]".to_owned()),
            user: Some((990, 989)),
            files: files.into_iter().map(|(path, mode, contents)| (path.into(), text(mode, contents))).collect(),
            ..Inventory::default()
        }
    }

    fn there() -> There {
        There { host: "ctl1".to_owned(), systemd: true, installed: true, user: Some((990, 989)), ..There::default() }
    }

    #[test]
    fn a_second_host_gets_the_files_of_the_first() {
        let plan = plan(&first(), &there()).unwrap();
        assert_eq!(
            plan.texts(),
            [
                "+ write /etc/perilog/controller.toml, as on ctl0",
                "+ write /etc/perilog/tls/key.pem, as on ctl0",
                "= the units are not enabled: the cluster manager starts them",
            ]
        );
        let who: Vec<Who> = plan
            .steps()
            .filter_map(|(_, step)| match step {
                Step::Write { who, .. } => Some(*who),
                _ => None,
            })
            .collect();
        assert_eq!(who, [Who::Everybody, Who::OwnerOnly], "a key is never readable for others");
    }

    #[test]
    fn the_same_command_again_changes_nothing_and_brings_what_is_new() {
        let file = |contents: &str, is_ours| (contents.to_owned(), is_ours);
        let there = There {
            files: [
                ("/etc/perilog/controller.toml".into(), file("cluster = 'b'\n", true)),
                ("/etc/perilog/tls/key.pem".into(), file("k", false)),
            ]
            .into(),
            enabled: vec!["perilog-controller.service".to_owned()],
            ..there()
        };
        assert_eq!(
            plan(&first(), &there).unwrap().texts(),
            [
                "+ write /etc/perilog/controller.toml anew, as on ctl0",
                "= /etc/perilog/tls/key.pem: as on ctl0",
                "+ disable perilog-controller.service: the cluster manager starts the units",
            ]
        );
    }

    #[test]
    fn nothing_is_changed_where_the_hosts_do_not_match() {
        type Change = fn(&mut Inventory, &mut There);
        let table: [(Change, &str); 8] = [
            (
                |first, _| {
                    let key = first.files.get(&PathBuf::from("/etc/perilog/tls/key.pem")).cloned().unwrap();
                    first.files.insert("/etc/cron.d/evil".into(), key);
                },
                "/etc/cron.d/evil differs here or is missing, and init brings files of /etc/perilog",
            ),
            (|first, _| first.version = "9".to_owned(), "here and 9 on ctl0: install the same"),
            (|first, _| first.hosts = None, "ctl0 has no [failover] with both hosts"),
            (|first, _| first.hosts = Some("ctl0,ctl2".to_owned()), "ctl0 has no [failover] with both hosts"),
            (|_, there| there.user = Some((991, 989)), "is 991:989 here and 990:989 on ctl0"),
            (|_, there| there.user = None, "is missing here and 990:989 on ctl0"),
            (|_, there| there.active = true, "the controller runs here"),
            (
                |_, there| {
                    let other = ("other".to_owned(), false);
                    there.files.insert("/etc/perilog/controller.toml".into(), other);
                },
                "/etc/perilog/controller.toml differs here, and init did not write it",
            ),
        ];
        for (change, expected) in table {
            let (mut first, mut there) = (first(), there());
            change(&mut first, &mut there);
            let conflicts = plan(&first, &there).unwrap_err();
            assert!(conflicts.len() == 1 && conflicts[0].contains(expected), "{conflicts:?}");
        }
    }
}
