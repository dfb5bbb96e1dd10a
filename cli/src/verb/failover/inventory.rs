//! `perilog controller inventory`: the parts of the controller that this host has for itself, as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use perilog_host::accounts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Table;

use super::USER;
use crate::fault::Fault;
use crate::out::{Page, Render};
use crate::verb::ca::files::{self, digest};
use crate::verb::doctor::{Role, config};
use crate::verb::init::state;
use crate::verb::own_name;

const MACHINE: &str = "/etc/machine-id";
const SOCKET: &str = "perilog-controller.socket";
const UNITS: [&str; 2] = [SOCKET, "perilog-controller.service"];
/// Directory of the drop-ins that an administrator writes. Drop-ins of packages come with their packages, and those of
/// Pacemaker are in /run.
const DROP_INS: &str = "/etc/systemd/system";

/// Maximum size in bytes of a file that `init` brings from another host. A revocation list may have more: then it is
/// compared, and the operator copies it.
pub(in crate::verb) const MOST_BROUGHT: u64 = 16 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// With the contents of the files, also of the key: for `perilog init controller --failover-of`.
    #[arg(long)]
    contents: bool,
}

/// The parts of the controller that a host has for itself. Members that a later version adds are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::verb) struct Inventory {
    /// The version of perilog.
    pub(in crate::verb) version: String,
    /// The kernel's name of the host.
    pub(in crate::verb) host: String,
    /// The hosts of `[failover]`, as a hostlist; `None`: it is not configured.
    pub(in crate::verb) hosts: Option<String>,
    /// Whether the file system with the store is mounted on this host.
    pub(in crate::verb) mounted: bool,
    /// Whether the controller's service is active.
    pub(in crate::verb) active: bool,
    /// Whether the controller's socket unit is active: it starts the service at the next dial.
    pub(in crate::verb) socket: bool,
    /// SHA-256 of the host's machine id, which is itself a secret (machine-id(5)); `None`: the host has none. By it the
    /// controller notices that it has moved.
    pub(in crate::verb) machine: Option<String>,
    /// The units of the controller that are enabled.
    pub(in crate::verb) enabled: Vec<String>,
    /// User id and group id of the controller's user; `None`: there is no such user.
    pub(in crate::verb) user: Option<(u32, u32)>,
    /// The files of the configuration, the drop-ins of the controller's units, and the files of `[tls]`. Files below
    /// the mount are not among them, because they move.
    pub(in crate::verb) files: BTreeMap<PathBuf, Text>,
    /// The paths of the controller's own certificate and key, which are also in `files`. Each host may have its own.
    pub(in crate::verb) own: Vec<PathBuf>,
    /// The files that the commands of `[release]` and `[drain]` name, by path: SHA-256, or `None` if there is none.
    pub(in crate::verb) hooks: BTreeMap<PathBuf, Option<String>>,
}

/// A file of the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::verb) struct Text {
    pub(in crate::verb) sha256: String,
    #[serde(flatten)]
    pub(in crate::verb) access: Access,
    /// The contents, if they were asked for, and are no more than [`MOST_BROUGHT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::verb) contents: Option<String>,
}

/// Owner and permissions of a file: they decide whether the controller can read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::verb) struct Access {
    /// Permissions, as of chmod(1).
    pub(in crate::verb) mode: u32,
    /// The owner's name, or the number of one without a name. The same name may have another number on another host.
    pub(in crate::verb) user: String,
    /// The group's name, or the number of one without a name.
    pub(in crate::verb) group: String,
}

impl Access {
    fn of(found: &fs::Metadata) -> Self {
        let (user, group) = (accounts::user_name(found.uid()), accounts::group_name(found.gid()));
        Self { mode: found.mode() & 0o7777, user, group }
    }

    /// Returns the command that gives the file at `path` this owner and these permissions.
    pub(in crate::verb) fn command(&self, path: &Path) -> String {
        let (Self { mode, user, group }, path) = (self, path.display());
        format!("chown {user}:{group} {path} && chmod {mode:04o} {path}")
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o} {}:{}", self.mode, self.user, self.group)
    }
}

pub(crate) fn run(args: &Args) -> Result<Inventory, Fault> {
    if !rustix::process::geteuid().is_root() {
        return Err(Fault::NotPermitted { text: "the inventory reads private keys: run it as root (sudo)".to_owned() });
    }
    here(args.contents)
}

/// Makes the inventory of this host.
///
/// # Errors
/// The controller's program does not print its configuration, a file or directory cannot be read, or systemctl fails.
pub(in crate::verb) fn here(contents: bool) -> Result<Inventory, Fault> {
    let role = Role::Controller;
    let main = role.file();
    let table = config::printed(role, &main).ok_or_else(|| {
        Fault::Other("the controller's configuration cannot be read: perilog doctor controller says why".to_owned())
    })?;
    let mount = super::mount(&table);
    let (files, own) = of_host(&table, [main].into_iter().chain(drop_ins()?), contents)?;
    let units = units()?;
    Ok(Inventory {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: own_name(),
        hosts: config::text(&table, &["failover", "hosts"]).map(str::to_owned),
        mounted: mount.is_some_and(super::is_mounted),
        active: units.active,
        socket: units.socket,
        machine: machine(&fs::read_to_string(MACHINE).unwrap_or_default()),
        enabled: units.enabled,
        user: user(),
        files,
        own,
        hooks: hooks(&table).into_iter().filter(|(path, _)| stays(path, mount)).collect(),
    })
}

/// Returns the files that a host has for itself, `configuration` and those of `[tls]`, and the paths of the
/// controller's own certificate and key among them. `table`: the whole configuration.
fn of_host(
    table: &Table,
    configuration: impl Iterator<Item = PathBuf>,
    contents: bool,
) -> Result<(BTreeMap<PathBuf, Text>, Vec<PathBuf>), Fault> {
    let mount = super::mount(table);
    let tls = ["ca", "cert", "key", "crl"].map(|key| config::text(table, &["tls", key]).map(PathBuf::from));
    let own = tls[1..3].iter().flatten().filter(|path| stays(path, mount)).cloned().collect();
    let mut files = BTreeMap::new();
    for path in configuration.chain(tls.into_iter().flatten()).filter(|path| stays(path, mount)) {
        if let Some(text) = read(&path, contents)? {
            files.insert(path, text);
        }
    }
    Ok((files, own))
}

/// State of the controller's units on this host.
#[derive(Debug, Clone, Default)]
pub(in crate::verb) struct Units {
    /// The units that systemd starts at boot.
    pub(in crate::verb) enabled: Vec<String>,
    /// Whether the service is active.
    pub(in crate::verb) active: bool,
    /// Whether the socket unit is active.
    pub(in crate::verb) socket: bool,
}

pub(in crate::verb) fn units() -> Result<Units, Fault> {
    let mut found = Units::default();
    for unit in UNITS {
        let Some(state) = state(unit)? else { continue };
        found.enabled.extend(state.enabled.then(|| unit.to_owned()));
        match unit {
            SOCKET => found.socket = state.active,
            _ => found.active = state.active,
        }
    }
    Ok(found)
}

/// Returns user id and group id of the controller's user; `None`: there is no such user.
pub(in crate::verb) fn user() -> Option<(u32, u32)> {
    accounts::account(USER).ok().map(|account| (account.uid, account.gid))
}

/// Returns `true` if the file stays on its host when the controller moves with the file system on `mount`.
fn stays(path: &Path, mount: Option<&Path>) -> bool {
    !mount.is_some_and(|mount| moves(path, mount))
}

/// Returns `true` if the file moves with the controller: it is below the mount, or a link to a file there. On the host
/// without the file system the link leads nowhere.
fn moves(path: &Path, mount: &Path) -> bool {
    let linked = fs::read_link(path).ok().map(|target| path.parent().unwrap_or(Path::new("/")).join(target));
    let places = [Some(path.to_owned()), linked, path.canonicalize().ok()];
    places.into_iter().flatten().any(|place| place.starts_with(mount))
}

/// Returns the digest of a machine id; `None`: the text has none.
fn machine(text: &str) -> Option<String> {
    let id = Some(text.trim()).filter(|id| !id.is_empty() && *id != "uninitialized")?;
    Some(digest(format!("perilog {id}").as_bytes()))
}

/// Returns `true` if `init` brings a file of this path from another host: it is below /etc/perilog, or a drop-in of the
/// controller's units. This keeps a mistake in the other host's `[tls]` from writing elsewhere. It is no boundary
/// against root of that host: a drop-in of a unit can run any program as root here.
pub(in crate::verb) fn is_portable(path: &Path) -> bool {
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    is_plain && (path.starts_with("/etc/perilog") || is_unit_drop_in(path))
}

/// Returns `true` if the file is a drop-in that an administrator wrote for a unit of the controller.
pub(in crate::verb) fn is_unit_drop_in(path: &Path) -> bool {
    UNITS.iter().any(|unit| path.parent() == Some(&Path::new(DROP_INS).join(format!("{unit}.d"))))
}

/// Returns `true` if the file is a drop-in, of the configuration or of a unit: a host can do without it.
pub(in crate::verb) fn is_drop_in(path: &Path) -> bool {
    path.parent().and_then(Path::extension).is_some_and(|end| end == "d")
}

/// Returns the drop-ins of this host: those of the configuration, and those of the controller's units.
pub(in crate::verb) fn drop_ins() -> Result<Vec<PathBuf>, Fault> {
    let units = UNITS.map(|unit| Path::new(DROP_INS).join(format!("{unit}.d")));
    let mut found = entries(&Role::Controller.file().with_extension("d"))?;
    for directory in units {
        found.extend(entries(&directory)?);
    }
    Ok(found)
}

/// Returns the files of a directory that are configuration (`.toml`) or drop-ins (`.conf`), in order; none if there is
/// no directory. A directory that cannot be read is an error: the other host would remove its files.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Fault> {
    let failed = |source| Fault::File { what: "cannot read", path: directory.to_owned(), source };
    let found = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()),
    };
    let mut paths = found.map_err(failed)?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml" || end == "conf"));
    paths.sort();
    Ok(paths)
}

/// Reads a file of the inventory; `None`: there is no such file.
pub(in crate::verb) fn read(path: &Path, contents: bool) -> Result<Option<Text>, Fault> {
    let access = match path.metadata() {
        Ok(found) => Access::of(&found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Fault::File { what: "cannot read", path: path.to_owned(), source }),
    };
    let bytes = files::read_list(path)?;
    let sha256 = digest(&bytes);
    if !contents || bytes.len() as u64 > MOST_BROUGHT {
        return Ok(Some(Text { sha256, access, contents: None }));
    }
    let odd = |error| Fault::File {
        what: "cannot read",
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    };
    Ok(Some(Text { sha256, access, contents: Some(String::from_utf8(bytes).map_err(odd)?) }))
}

fn hooks(table: &Table) -> BTreeMap<PathBuf, Option<String>> {
    let commands = ["release", "drain"].into_iter().filter_map(|hook| table.get(hook)?.as_table());
    let words = commands.flat_map(|table| config::texts(table, "command"));
    let paths = words.filter(|word| word.starts_with('/')).map(PathBuf::from);
    paths.map(|path| (path.clone(), fs::read(&path).ok().map(|bytes| digest(&bytes)))).collect()
}

impl Render for Inventory {
    fn table(&self, page: &mut Page) {
        if let Some(value) = self.json() {
            page.line(value);
        }
    }

    fn json(&self) -> Option<Value> {
        serde_json::to_value(self).ok()
    }

    fn quiet(&self, page: &mut Page) {
        self.files.keys().for_each(|path| page.line(path.display()));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_has_its_contents_only_where_they_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        fs::write(&path, "secret").unwrap();
        let text = read(&path, false).unwrap().unwrap();
        assert_eq!((text.sha256.as_str(), &text.contents), (digest(b"secret").as_str(), &None));
        assert_eq!(read(&path, true).unwrap().unwrap().contents.as_deref(), Some("secret"));
        assert_eq!(read(&dir.path().join("none"), true).unwrap(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let found = read(&path, true).unwrap().unwrap();
        assert_eq!(found.access.mode, 0o640);
        let printed = serde_json::to_value(&found).unwrap();
        assert_eq!((&printed["mode"], &printed["group"]), (&0o640.into(), &found.access.group.as_str().into()));
        fs::write(&path, [0xff]).unwrap();
        assert!(read(&path, true).unwrap_err().to_string().contains("key.pem"));
    }

    /// A revocation list of more than 1 MiB ended doctor's comparison and `--failover-of`.
    #[test]
    fn a_large_revocation_list_is_brought_and_a_huge_one_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crl.pem");
        let large = "x".repeat(3 * 1024 * 1024);
        fs::write(&path, &large).unwrap();
        assert_eq!(read(&path, true).unwrap().unwrap().contents.as_deref(), Some(large.as_str()));
        let huge = "x".repeat(17 * 1024 * 1024);
        fs::write(&path, &huge).unwrap();
        let found = read(&path, true).unwrap().unwrap();
        assert_eq!((found.sha256, found.contents), (digest(huge.as_bytes()), None));
    }

    /// A revocation list of one host alone would let a thief in at the other.
    #[test]
    fn each_file_of_a_host_is_in_its_inventory() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["controller.toml", "site.toml", "ca.pem", "cert.pem", "key.pem", "crl.pem"];
        let paths = names.map(|name| dir.path().join(name));
        for path in &paths {
            fs::write(path, path.display().to_string()).unwrap();
        }
        let [main, drop_in, ca, cert, key, crl] = &paths;
        let tls = format!("[tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}\ncrl = {crl:?}\n");
        let found = |text: &str| {
            let configuration = [main.clone(), drop_in.clone()].into_iter();
            let (files, own) = of_host(&text.parse().unwrap(), configuration, false).unwrap();
            (files.into_keys().collect::<Vec<_>>(), own)
        };
        let mut all = paths.to_vec();
        all.sort();
        assert_eq!(found(&tls), (all.clone(), vec![cert.clone(), key.clone()]));
        fs::remove_file(crl).unwrap();
        all.retain(|path| path != crl);
        assert_eq!(found(&tls).0, all, "a file that is missing is a difference");
        let moves = format!("{tls}[failover]\nhosts = 'ctl[0-1]'\nmount = {:?}\n", dir.path());
        assert_eq!(found(&moves), (vec![], vec![]), "what moves is of no host");
    }

    /// A certificate on the disk that moves was missing on the passive host.
    #[test]
    fn files_below_the_mount_are_of_no_host() {
        let dir = tempfile::tempdir().unwrap();
        let (mount, etc) = (dir.path().join("mount"), dir.path().join("etc"));
        fs::create_dir_all(mount.join("tls")).unwrap();
        fs::create_dir(&etc).unwrap();
        fs::write(etc.join("own.pem"), "").unwrap();
        std::os::unix::fs::symlink(mount.join("tls/key.pem"), etc.join("key.pem")).unwrap();
        std::os::unix::fs::symlink("../mount/tls", etc.join("tls")).unwrap();
        for (path, expected) in [
            (mount.join("tls/cert.pem"), true),
            (etc.join("key.pem"), true),
            (etc.join("own.pem"), false),
            (etc.join("none.pem"), false),
            (dir.path().join("mounted.pem"), false),
        ] {
            assert_eq!(moves(&path, &mount), expected, "{path:?}");
        }
        fs::write(mount.join("tls/ca.pem"), "").unwrap();
        assert!(moves(&etc.join("tls/ca.pem"), &mount.canonicalize().unwrap()), "through a linked directory");
    }

    /// A path of the other host's `[tls]` may be anything, such as a bundle of the whole system.
    #[test]
    fn another_host_brings_files_of_the_controller_alone() {
        for (path, expected) in [
            ("/etc/perilog/controller.d/site.toml", true),
            ("/etc/systemd/system/perilog-controller.service.d/10-site.conf", true),
            ("/etc/systemd/system/perilog-controller.service.d/../evil.service", false),
            ("/etc/systemd/system/evil.service.d/x.conf", false),
            ("/etc/perilog/../cron.d/x", false),
            ("etc/perilog/x", false),
            ("/root/.ssh/authorized_keys", false),
        ] {
            assert_eq!(is_portable(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_directory_of_drop_ins_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.toml", "a.conf", "a.toml.bak"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(entries(dir.path()).unwrap(), [dir.path().join("a.conf"), dir.path().join("b.toml")]);
        assert_eq!(entries(&dir.path().join("none")).unwrap(), [] as [PathBuf; 0]);
        assert!(entries(&dir.path().join("b.toml")).unwrap_err().to_string().contains("b.toml"), "no directory");
    }

    #[test]
    fn a_machine_id_is_compared_and_never_shown() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(machine(&format!("{id}\n")), machine(id));
        assert!(machine(id).is_some_and(|digest| !digest.contains(id) && digest.len() == 64));
        assert_eq!((machine(""), machine("uninitialized\n")), (None, None));
    }

    #[test]
    fn hooks_are_the_files_that_their_commands_name() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("drain.sh");
        fs::write(&script, "x").unwrap();
        let table = format!("[drain]\ncommand = ['/no/such', '{}', '--all']\n", script.display()).parse().unwrap();
        let expected = [(PathBuf::from("/no/such"), None), (script, Some(digest(b"x")))];
        assert_eq!(hooks(&table), BTreeMap::from(expected));
    }
}
