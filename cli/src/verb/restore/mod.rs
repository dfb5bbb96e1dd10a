//! `perilog controller restore FILE`: replaces the store by a copy of FILE, and starts the controller with the copy.
//!
//! FILE may be a backup, a file from a snapshot, or the store itself. The program `perilog-controller` makes the copy,
//! as the controller's user: with the changes in SQLite's log beside FILE, and with a stamp, so that the controller
//! takes FILE for a copy. FILE is refused, before anything is stopped or replaced, unless a controller could start with
//! it. The anchor beside the store stays. The old store stays under another name, unless FILE is that store.
//!
//! On two hosts (`[failover]`), the store is replaced where its disk is mounted, and the controller's service alone is
//! started: the address may move on, and an active socket would then start the controller here again. The cluster
//! manager may start the controller at any moment, so the restore holds the store's lock until the copy is in its
//! place.

mod place;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use toml::Table;

use crate::fault::Fault;
use crate::out::{Page, Render};
use crate::verb::failover;
use place::{NotPut, Place};

const CONTROLLER: &str = "perilog-controller";
const SOCKET: &str = "perilog-controller.socket";
const SERVICE: &str = "perilog-controller.service";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A copy made by `perilog controller backup`, or the store itself if you have restored it by other means.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The controller's configuration, which names its store.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A restore that succeeded, for output. `file`: the copy (FILE); `store`: the path of the store that was replaced.
pub(crate) struct Restored {
    file: PathBuf,
    store: PathBuf,
    /// The new name of the old store; `None`: there was none, or FILE is the store itself.
    before: Option<PathBuf>,
}

pub(crate) fn restore(args: &Args) -> Result<Restored, Fault> {
    if !rustix::process::geteuid().is_root() {
        return Err(Fault::Other("run this as root: it stops the controller and replaces the store".to_owned()));
    }
    let config = config(args.config.as_deref())?;
    let (store, start) = (store(&config)?, Start::of(&config)?);
    let place = Place::open(&store)?;
    if place.makes(&args.file) {
        let text = format!("{} has a name that a restore uses itself; give the copy another name", args.file.display());
        return Err(Fault::Other(text));
    }
    let is_in_place =
        fs::canonicalize(&args.file).is_ok_and(|file| fs::canonicalize(&store).is_ok_and(|it| it == file));
    let prepare = || place.prepare(&args.file, |from, to| place.copy_as_owner(from, to, &args.file));
    // A copy is refused while the controller runs; the store itself is whole only when the controller has ended.
    if !is_in_place {
        prepare()?;
    }
    let ran = ask(Command::new("systemctl").args(["is-active", "--quiet", SERVICE])).is_ok();
    ask(Command::new("systemctl").arg("stop").args([SOCKET, SERVICE]))?;
    let put = || {
        let _lock = place.lock()?;
        if is_in_place {
            prepare()?;
        }
        place.put(!is_in_place)
    };
    match put() {
        Ok(before) => {
            start.now(start.verb)?;
            Ok(Restored { file: args.file.clone(), store, before })
        }
        Err(NotPut { fault, is_kept: true }) if ran => {
            // A controller that has the lock goes on.
            start.now("start")?;
            Err(fault)
        }
        Err(NotPut { fault, is_kept: false }) => {
            Err(Fault::Other(format!("{fault}; the controller was not started, so check {} first", store.display())))
        }
        // The copy may be this very store: without its stamp the controller could take it for current.
        Err(NotPut { fault, .. }) => Err(Fault::Other(format!(
            "{fault}; the controller did not run before, and was not started with that store"
        ))),
    }
}

/// The units that run the controller, and the verb of systemctl(1) that starts them with the new store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    verb: &'static str,
    units: &'static [&'static str],
}

impl Start {
    /// # Errors
    /// The controller has two hosts, and the disk with the store is not mounted on this one.
    fn of(config: &Table) -> Result<Self, Fault> {
        match failover::mount(config) {
            None => Ok(Self { verb: "start", units: &[SOCKET, SERVICE] }),
            // A start of the cluster manager that meets the lock fails: the restart does not wait for it.
            Some(mount) if failover::is_mounted(mount) => Ok(Self { verb: "restart", units: &[SERVICE] }),
            Some(mount) => Err(Fault::Other(format!(
                "no file system is mounted on {} here, and by [failover] the store is on one: restore on the host that \
                 has mounted it (crm_mon -1)",
                mount.display()
            ))),
        }
    }

    fn now(self, verb: &str) -> Result<(), Fault> {
        // Failed starts count, and past the unit's limit systemd refuses another one. A unit that has not failed is
        // left as it is.
        let _ = ask(Command::new("systemctl").args(["reset-failed", SERVICE]));
        ask(Command::new("systemctl").arg(verb).args(self.units)).map(drop)
    }
}

/// Runs a program to its end and returns its standard output. Fails if its exit status is not 0; the error has the text
/// of its standard error.
fn ask(command: &mut Command) -> Result<String, Fault> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Fault::Other(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Fault::Other(crate::text::line(&if why.is_empty() { format!("{name}: {}", output.status) } else { why })))
}

/// Returns the controller's whole configuration.
fn config(file: Option<&Path>) -> Result<Table, Fault> {
    let mut command = Command::new(CONTROLLER);
    if let Some(file) = file {
        command.arg("--config").arg(file);
    }
    ask(command.arg("--print-config"))?
        .parse()
        .map_err(|_| Fault::Other(format!("this perilog cannot read what {CONTROLLER} --print-config prints")))
}

fn store(config: &Table) -> Result<PathBuf, Fault> {
    let store = config.get("store").and_then(|store| store.as_str().map(PathBuf::from));
    store.ok_or_else(|| Fault::Other(format!("{CONTROLLER} --print-config names no store: is it an older version?")))
}

fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Render for Restored {
    fn table(&self, page: &mut Page) {
        page.line(format_args!(
            "{} is now the store ({}), and the controller runs",
            self.file.display(),
            self.store.display()
        ));
        if let Some(before) = &self.before {
            page.line(format_args!(
                "the previous store is {}; remove it when the controller works as expected",
                before.display()
            ));
        }
        page.line("the copy's jobs are abandoned until their hooks, their edge or you ask for them again");
        page.line("to see them in a minute: perilog ps --abandoned");
    }

    fn json(&self) -> Option<Value> {
        let before = self.before.as_ref().map(|path| path.display().to_string());
        let (file, store) = (self.file.display().to_string(), self.store.display().to_string());
        Some(json!({ "file": file, "store": store, "before": before }))
    }

    fn quiet(&self, _: &mut Page) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The socket would start the controller again on a host from which it has moved away.
    #[test]
    fn of_two_hosts_the_one_with_the_disk_starts_the_service_alone() {
        let start = |text: &str| Start::of(&text.parse().unwrap()).map_err(|fault| fault.to_string());
        let one = "store = '/var/lib/perilog/controller.db'\n";
        assert_eq!(start(one).unwrap().units, [SOCKET, SERVICE]);
        let two = format!("{one}[failover]\nhosts = 'ctl[0-1]'\n");
        assert_eq!(start(&format!("{two}mount = '/proc'")).unwrap().units, [SERVICE]);
        let refused = start(&format!("{two}mount = '/none'")).unwrap_err();
        assert!(refused.starts_with("no file system is mounted on /none here"), "{refused}");
    }

    /// Restores `from` as `store`, as the verb does with a controller that copies the bytes.
    fn restored(from: &Path, store: &Path, keep: bool) -> Result<Option<PathBuf>, NotPut> {
        let place = Place::open(store)?;
        let copied = |from: &Path, to: &Path| fs::copy(from, to).map(drop).map_err(|_| Fault::Other(String::new()));
        place.prepare(from, copied)?;
        place.put(keep)
    }

    #[test]
    fn a_copy_takes_the_place_of_a_store_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["c.db", "c.db-wal", "c.db-shm", "c.db-anchor", "c.db-restore", "c.db-received"] {
            fs::write(path(name), name).unwrap();
        }
        fs::write(path("copy"), "copy").unwrap();
        let before = restored(&path("copy"), &path("c.db"), true).unwrap();
        assert_eq!((before, fs::read_to_string(path("c.db")).unwrap().as_str()), (Some(path("c.db-before-1")), "copy"));
        let left = || {
            let entries =
                fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            entries.collect::<std::collections::BTreeSet<String>>().into_iter().collect::<Vec<_>>().join(" ")
        };
        let kept = "c.db c.db-anchor c.db-before-1 c.db-before-1-wal copy";
        assert_eq!(left(), kept, "the anchor stays, and the old store with its log");
        assert_eq!(restored(&path("c.db"), &path("c.db"), false).unwrap(), None);
        assert_eq!(left(), kept, "a store that is stamped in its place");
        assert!(restored(&path("no copy"), &path("c.db"), true).is_err());
        assert_eq!(fs::read_to_string(path("c.db")).unwrap(), "copy", "a copy that is not there replaces nothing");
        // An operator has removed the store, and not its log.
        fs::remove_file(path("c.db-before-1")).unwrap();
        fs::create_dir(path("c.db-shm")).unwrap();
        fs::write(path("c.db-wal"), "log").unwrap();
        fs::write(path("copy"), "newer").unwrap();
        for keep in [true, false] {
            assert!(restored(&path("copy"), &path("c.db"), keep).unwrap_err().is_kept);
            let there = ["c.db", "c.db-wal"].map(|name| fs::read_to_string(path(name)).unwrap());
            assert_eq!(there, ["copy", "log"], "a failure in the middle puts the store and its log back, keep: {keep}");
        }
        fs::remove_file(path("c.db-wal")).unwrap();
        fs::remove_dir(path("c.db-shm")).unwrap();
        assert_eq!(restored(&path("copy"), &path("c.db"), true).unwrap(), Some(path("c.db-before-2")));
        assert_eq!(fs::read_to_string(path("c.db")).unwrap(), "newer");
    }

    /// The user of the store's directory exchanges files for links, at each moment that a restore leaves.
    #[test]
    fn no_link_in_the_stores_directory_leads_a_restore_elsewhere() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (store, victim, copy) = (dir.path().join("c.db"), other.path().join("victim"), other.path().join("copy"));
        fs::write(&victim, "secret").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(&copy, "copy").unwrap();
        let is_as_it_was = || {
            let mode = fs::metadata(&victim).unwrap().permissions().mode() & 0o777;
            fs::read_to_string(&victim).unwrap() == "secret" && mode == 0o640
        };
        for name in ["c.db-received", "c.db-restore", "c.db-received-wal"] {
            symlink(&victim, dir.path().join(name)).unwrap();
        }
        restored(&copy, &store, true).unwrap();
        assert!(is_as_it_was(), "links that were there before");
        let place = Place::open(&store).unwrap();
        let exchanged = |_: &Path, to: &Path| {
            symlink(&victim, to).unwrap();
            Ok(())
        };
        place.prepare(&copy, exchanged).unwrap();
        place.put(true).unwrap();
        assert!(is_as_it_was(), "a copy that was exchanged for a link");
        assert!(store.symlink_metadata().unwrap().is_symlink(), "it is moved as the link that it is");
        symlink(&victim, dir.path().join("c.db-lock")).unwrap();
        assert!(place.lock().unwrap_err().to_string().contains("c.db-lock"), "the lock of another file");
        assert!(is_as_it_was(), "a lock that is a link");
    }

    /// The cluster manager started the controller while the store was replaced, and its commits were lost.
    #[test]
    fn no_controller_starts_while_a_store_is_replaced() {
        use rustix::fs::{FlockOperation, flock};
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let dir = tempfile::tempdir().unwrap();
        let place = Place::open(&dir.path().join("c.db")).unwrap();
        let lock = place.lock().unwrap();
        // As the controller takes it.
        let path = dir.path().join("c.db-lock");
        let controller = || fs::File::options().read(true).write(true).open(&path).unwrap();
        let taken = |file: &fs::File| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        assert!(!taken(&controller()), "a controller starts");
        let (found, of) = (fs::metadata(&path).unwrap(), fs::metadata(dir.path()).unwrap());
        assert_eq!((found.uid(), found.gid(), found.permissions().mode() & 0o777), (of.uid(), of.gid(), 0o600));
        drop(lock);
        let running = controller();
        assert!(taken(&running), "the controller starts after it");
        let refused = place.lock().unwrap_err().to_string();
        assert!(refused.contains("c.db-lock: a controller runs with this store"), "{refused}");
    }

    /// Root must not copy, into a directory of the controller's user, what only root may read.
    #[test]
    fn a_link_in_a_directory_of_another_user_is_not_read() {
        use std::os::unix::fs::{MetadataExt as _, chown, symlink};
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (secret, own) = (other.path().join("secret"), dir.path().join("own"));
        fs::write(&secret, "secret").unwrap();
        fs::write(&own, "own").unwrap();
        // A run without root's rights has a directory of another user as it is.
        for path in [dir.path(), &own] {
            let _ = chown(path, Some(64_001), Some(64_002));
        }
        let of = fs::metadata(dir.path()).unwrap();
        symlink(&secret, dir.path().join("copy")).unwrap();
        let place = Place::open(&dir.path().join("c.db")).unwrap();
        let refused = place.prepare(&dir.path().join("copy"), |_, _| Ok(())).unwrap_err().to_string();
        assert!(refused.contains("symbolic links"), "{refused}");
        let is_its = |from: &Path, _: &Path| {
            let found = fs::metadata(from).unwrap();
            assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (of.uid(), of.gid(), 0o600));
            Ok(())
        };
        place.prepare(&own, is_its).unwrap();
    }
}
