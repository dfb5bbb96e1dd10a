//! `perilog init controller --failover-of HOST`: makes this host the second one of a controller, with what HOST has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use perilog_core::HostList;
use perilog_core::hostlist::is_same_host;
use perilog_host::accounts;

use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::text;
use crate::verb::ca::files::Who;
use crate::verb::ca::read::certificates;
use crate::verb::failover::inventory::{self, Access, Units};
use crate::verb::failover::{self, Inventory, Text, USER, same_ids};
use crate::verb::init::act::Acting;
use crate::verb::init::record::Record;
use crate::verb::init::step::{Plan, Step};
use crate::verb::init::{Common, Role, refused, show_and_do, units};
use crate::verb::own_name;

/// Maximum number of lines of a drop-in that the plan shows.
const MOST_SHOWN: usize = 50;

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
    /// For each file of the other host that exists here: the file, and whether `init` wrote it.
    files: BTreeMap<PathBuf, (Text, bool)>,
    /// Drop-ins here that the other host does not have, and whether `init` wrote them.
    extra: BTreeMap<PathBuf, bool>,
    /// The ids that the users and groups of the other host's files have here, by name; `Err`: there is none, as text.
    users: BTreeMap<String, Result<u32, String>>,
    groups: BTreeMap<String, Result<u32, String>>,
}

impl There {
    /// Returns owner and permissions that make a file on this host readable for the same users as on the other.
    fn who(&self, access: &Access) -> Result<Who, String> {
        let id = |ids: &BTreeMap<String, Result<u32, String>>, name: &str| {
            ids.get(name).cloned().unwrap_or_else(|| Err(format!("there is no `{name}` on this host")))
        };
        let (uid, gid) = (id(&self.users, &access.user)?, id(&self.groups, &access.group)?);
        Ok(Who::Exactly { mode: access.mode, uid, gid })
    }
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
            "{other} has no [failover] with both hosts; write to /etc/perilog/controller.d/failover.toml on {other}: \
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
        let here = there.files.get(path);
        let is_same = |here: &Text| here.sha256 == text.sha256;
        if here.is_some_and(|(here, _)| is_same(here) && here.access == text.access) {
            plan.is_there(format!("{shown}: as on {other}"));
            continue;
        }
        let Some(contents) = &text.contents else {
            let most = inventory::MOST_BROUGHT >> 20;
            conflicts
                .push(format!("{shown} has more than {most} MiB, which is too much: scp -p {other}:{shown} {shown}"));
            continue;
        };
        let write = match there.who(&text.access) {
            Ok(who) => Step::Write { path: path.clone(), who, text: contents.clone() },
            Err(why) => {
                conflicts.push(format!("{shown} is {} on {other}: {why}", text.access));
                continue;
            }
        };
        match here {
            Some((here, false)) if !is_same(here) && first.own.contains(path) => {
                plan.is_there(format!("{shown}: this host has its own"));
            }
            Some((here, false)) if is_same(here) => conflicts.push(format!(
                "{shown} is {} here and {} on {other}, and init did not write it: {}",
                here.access,
                text.access,
                text.access.command(path)
            )),
            _ if !inventory::is_portable(path) => conflicts.push(format!(
                "{shown} differs here or is missing, and init copies only files below /etc/perilog: copy it first"
            )),
            Some((_, true)) => {
                plan.add_shown(format!("write {shown} anew, as on {other}"), write, lines(path, contents))
            }
            Some((_, false)) => conflicts.push(format!(
                "{shown} differs from that on {other}, and init did not write it: move it away, and init writes it anew"
            )),
            None => {
                let text = format!("write {shown}, as on {other} ({})", text.access);
                plan.add_shown(text, write, lines(path, contents));
            }
        }
    }
    for (path, is_ours) in &there.extra {
        let shown = path.display();
        if *is_ours {
            plan.add(format!("remove {shown}, which {other} does not have"), Step::Remove { path: path.clone() });
        } else {
            plan.note(format!(
                "stays: {shown}, which {other} does not have, and init did not write it; if the controller is not to \
                 read it: rm {shown}"
            ));
        }
    }
    let changes = plan.steps().any(|(_, step)| match step {
        Step::Write { path, .. } | Step::Remove { path } => inventory::is_unit_drop_in(path),
        _ => false,
    });
    if changes {
        plan.add("have systemd read its units again", Step::Reload { running: Vec::new() });
    }
    if there.enabled.is_empty() {
        plan.is_there("the units are not enabled: the cluster manager starts them".to_owned());
    } else {
        let units = there.enabled.join(", ");
        plan.add(
            format!("disable and stop {units}: the cluster manager starts them"),
            Step::Stop { units: there.enabled.clone() },
        );
    }
    // A key below the mount is on one host at a time.
    if has_text(first, "PRIVATE KEY-----").is_some() {
        plan.note(format!(
            "the controller's key is now on {other} and on {own}: anyone who reads it can be the controller"
        ));
    }
    plan.note("to compare the hosts: perilog doctor controller");
    if conflicts.is_empty() { Ok(plan) } else { Err(conflicts) }
}

/// Returns the lines of a drop-in, without blank lines and comments, for the operator to read before `init` writes
/// them: a drop-in of a unit can run any program as root. Other files have none.
fn lines(path: &Path, contents: &str) -> Vec<String> {
    let is_shown = |line: &&str| !line.is_empty() && !line.starts_with(['#', ';']);
    let all: Vec<&str> =
        contents.lines().map(str::trim).filter(is_shown).filter(|_| inventory::is_drop_in(path)).collect();
    let left = all.len().saturating_sub(MOST_SHOWN);
    let more = (left > 0).then(|| format!("... and {}", text::count(left as u64, "more line")));
    all.into_iter().take(MOST_SHOWN).map(str::to_owned).chain(more).collect()
}

/// Returns the first of the controller's own files (certificate, key) that contains `part`, with its text; `None`: none
/// does, for example because they are below the mount.
fn has_text<'f>(first: &'f Inventory, part: &str) -> Option<(&'f Path, &'f str)> {
    let mut own =
        first.own.iter().filter_map(|path| Some((path.as_path(), first.files.get(path)?.contents.as_deref()?)));
    own.find(|(_, text)| text.contains(part))
}

/// Checks that the controller's certificate names this host, too: agents that dial this host expect it.
fn certificate(first: &Inventory, own: &str, conflicts: &mut Vec<String>) {
    let Some((path, pem)) = has_text(first, "-----BEGIN CERTIFICATE") else { return };
    let read = certificates(path, pem).map(|read| read.into_iter().next().map(|read| read.names).unwrap_or_default());
    match read {
        Ok(names) if names.iter().any(|name| is_same_host(name, own)) => {}
        Ok(names) => conflicts.push(format!(
            "the certificate of {} is for {}, and not for {own}: issue another one with every name on that host \
             (perilog ca issue --role controller)",
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
        files.extend(inventory::read(path, false)?.map(|text| (path.clone(), (text, is_ours))));
    }
    let extra = inventory::drop_ins()?.into_iter().filter(|path| !first.files.contains_key(path));
    let extra = extra.map(|path| (path.clone(), record.is_some_and(|record| record.owns(&path)))).collect();
    let names = |of: fn(&Access) -> &String| first.files.values().map(|text| of(&text.access).clone()).collect();
    let (users, groups): (BTreeSet<String>, BTreeSet<String>) = (names(|of| &of.user), names(|of| &of.group));
    let user = |name: &str| accounts::account(name).map(|found| found.uid).map_err(|error| error.to_string());
    let group = |name: &str| accounts::group_id(name).map_err(|error| error.to_string());
    let users = users.into_iter().map(|name| (name.clone(), user(&name))).collect();
    let groups = groups.into_iter().map(|name| (name.clone(), group(&name))).collect();
    let Units { enabled, active, .. } = inventory::units()?;
    let (host, systemd, installed) = (own_name(), units::systemd_runs(), Role::Controller.program().exists());
    Ok(There { host, systemd, installed, user: inventory::user(), enabled, active, files, extra, users, groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::ca::files::digest;
    use crate::verb::init::step::Shown;

    fn text(mode: u32, group: &str, contents: &str) -> Text {
        let access = Access { mode, user: "root".to_owned(), group: group.to_owned() };
        Text { sha256: digest(contents.as_bytes()), access, contents: Some(contents.to_owned()) }
    }

    fn first() -> Inventory {
        let files = [
            ("/etc/perilog/controller.toml", text(0o644, "root", "cluster = 'c'\n")),
            ("/etc/perilog/tls/key.pem", text(0o640, USER, "k")),
        ];
        Inventory {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: "ctl0".to_owned(),
            hosts: Some("ctl[0-1]".to_owned()),
            user: Some((990, 989)),
            files: files.into_iter().map(|(path, text)| (path.into(), text)).collect(),
            ..Inventory::default()
        }
    }

    fn there() -> There {
        let ids = |ids: &[(&str, u32)]| ids.iter().map(|(name, id)| ((*name).to_owned(), Ok(*id))).collect();
        let (users, groups) = (ids(&[("root", 0)]), ids(&[("root", 0), (USER, 989)]));
        let host = "ctl1".to_owned();
        There { host, systemd: true, installed: true, user: Some((990, 989)), users, groups, ..There::default() }
    }

    #[test]
    fn a_second_host_gets_the_files_of_the_first() {
        let plan = plan(&first(), &there()).unwrap();
        assert_eq!(
            plan.texts(),
            [
                "+ write /etc/perilog/controller.toml, as on ctl0 (0644 root:root)",
                "+ write /etc/perilog/tls/key.pem, as on ctl0 (0640 root:perilog)",
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
        let of = |mode, gid| Who::Exactly { mode, uid: 0, gid };
        assert_eq!(who, [of(0o644, 0), of(0o640, 989)], "the controller reads its key by its group");
    }

    #[test]
    fn the_same_command_again_changes_nothing_and_brings_what_is_new() {
        let there = There {
            files: [
                ("/etc/perilog/controller.toml".into(), (text(0o644, "root", "cluster = 'b'\n"), true)),
                ("/etc/perilog/tls/key.pem".into(), (text(0o640, USER, "k"), false)),
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
                "+ disable and stop perilog-controller.service: the cluster manager starts them",
            ]
        );
    }

    #[test]
    fn a_host_keeps_its_own_certificate() {
        let own = [PathBuf::from("/etc/perilog/tls/key.pem")];
        let there = There { files: [(own[0].clone(), (text(0o640, USER, "its own"), false))].into(), ..there() };
        let first = Inventory { own: own.to_vec(), ..first() };
        let texts = plan(&first, &there).unwrap().texts();
        assert!(texts.contains(&"= /etc/perilog/tls/key.pem: this host has its own".to_owned()), "{texts:?}");
    }

    /// A drop-in of the unit decides what runs as root here, and it was written without being shown.
    #[test]
    fn the_plan_shows_the_drop_ins_that_it_writes() {
        let mut first = first();
        let unit = "[Service]\n# why\n\nExecStartPre=+/root/x\n";
        let long: String = (0..60).map(|n| format!("key{n} = 1\n")).collect();
        first.files.insert("/etc/systemd/system/perilog-controller.service.d/x.conf".into(), text(0o644, "root", unit));
        first.files.insert("/etc/perilog/controller.d/long.toml".into(), text(0o644, "root", &long));
        let [table, json, _] = crate::out::tests::render(&Shown::planned(&plan(&first, &there()).unwrap()), 0);
        let row = table.lines().position(|line| line.contains("service.d/x.conf")).unwrap();
        let shown: Vec<&str> = table.lines().skip(row + 1).take(2).map(str::trim).collect();
        assert_eq!(shown, ["| [Service]", "| ExecStartPre=+/root/x"], "{table}");
        assert!(
            table.contains("| key49 = 1\n") && !table.contains("key50") && table.contains("| ... and 10 more lines")
        );
        assert!(json.contains("ExecStartPre=+/root/x"), "{json}");
        assert!(!table.contains("| k\n") && !json.contains("cluster = 'c'"), "a key is never shown");
    }

    /// A drop-in that was removed on the first host stayed in force on the second.
    #[test]
    fn a_drop_in_that_the_first_host_has_no_more_goes_or_is_named() {
        let unit = "/etc/systemd/system/perilog-controller.service.d/10-site.conf";
        let config = "/etc/perilog/controller.d/old.toml";
        let files: BTreeMap<PathBuf, (Text, bool)> =
            first().files.into_iter().map(|(path, text)| (path, (text, true))).collect();
        let of = |extra: &[(&str, bool)]| {
            let extra = extra.iter().map(|(path, is_ours)| (PathBuf::from(path), *is_ours)).collect();
            plan(&first(), &There { files: files.clone(), extra, ..there() }).unwrap()
        };
        let steps = |plan: &Plan| plan.steps().map(|(text, _)| text.to_owned()).collect::<Vec<_>>();
        let (removed, reload) = ("remove", "have systemd read its units again");
        assert_eq!(
            steps(&of(&[(unit, true), (config, true)])),
            [
                format!("{removed} {config}, which ctl0 does not have"),
                format!("{removed} {unit}, which ctl0 does not have"),
                reload.to_owned()
            ]
        );
        let foreign = of(&[(config, false)]);
        assert!(foreign.is_empty(), "init removes what it wrote, and nothing else");
        assert!(foreign.notes().iter().any(|note| note.ends_with(&format!("rm {config}"))), "{:?}", foreign.notes());
    }

    #[test]
    fn nothing_is_changed_where_the_hosts_do_not_match() {
        type Change = fn(&mut Inventory, &mut There);
        let table: [(Change, &str); 11] = [
            (
                |first, _| {
                    let key = first.files.get(&PathBuf::from("/etc/perilog/tls/key.pem")).cloned().unwrap();
                    first.files.insert("/etc/cron.d/evil".into(), key);
                },
                "/etc/cron.d/evil differs here or is missing, and init copies only files below /etc/perilog",
            ),
            (
                |first, _| {
                    first
                        .files
                        .insert("/etc/perilog/crl.pem".into(), Text { contents: None, ..text(0o644, "root", "") });
                },
                "/etc/perilog/crl.pem has more than 16 MiB, which is too much: scp -p ctl0:/etc/perilog/crl.pem",
            ),
            (|first, _| first.version = "9".to_owned(), "here and 9 on ctl0: install the same"),
            (|first, _| first.hosts = None, "ctl0 has no [failover] with both hosts"),
            (|first, _| first.hosts = Some("ctl0,ctl2".to_owned()), "ctl0 has no [failover] with both hosts"),
            (|_, there| there.user = Some((991, 989)), "is 991:989 here and 990:989 on ctl0"),
            (|_, there| there.user = None, "is missing here and 990:989 on ctl0"),
            (|_, there| there.active = true, "the controller runs here"),
            (
                |_, there| {
                    let other = (text(0o644, "root", "other"), false);
                    there.files.insert("/etc/perilog/controller.toml".into(), other);
                },
                "/etc/perilog/controller.toml differs from that on ctl0, and init did not write it",
            ),
            (
                |_, there| {
                    there.files.insert("/etc/perilog/tls/key.pem".into(), (text(0o600, "root", "k"), false));
                },
                "/etc/perilog/tls/key.pem is 0600 root:root here and 0640 root:perilog on ctl0, and init did not write \
                 it: chown root:perilog /etc/perilog/tls/key.pem && chmod 0640 /etc/perilog/tls/key.pem",
            ),
            (
                |_, there| {
                    there.groups.insert(USER.to_owned(), Err("there is no group `perilog` on this host".to_owned()));
                },
                "/etc/perilog/tls/key.pem is 0640 root:perilog on ctl0: there is no group `perilog` on this host",
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
