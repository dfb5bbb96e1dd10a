//! `perilog controller restore FILE`: replaces the store by a copy of FILE, and starts the controller with the copy.
//!
//! FILE may be a backup, a file from a snapshot, or the store itself. The program `perilog-controller` makes the copy:
//! with the changes in SQLite's log beside FILE, and with a stamp, so that the controller starts in recovery. The
//! anchor beside the store stays. The old store stays under another name, unless FILE is that store.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::fault::Fault;
use crate::out::{Faces, Page};

const CONTROLLER: &str = "perilog-controller";
const SOCKET: &str = "perilog-controller.socket";
const SERVICE: &str = "perilog-controller.service";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A copy made by `perilog controller backup`, or the store itself where other means have put it back.
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
        return Err(Fault::Other("be root: the controller is stopped, and its store replaced".to_owned()));
    }
    ask(Command::new(CONTROLLER).arg("--check-store").arg(&args.file))?;
    let store = store(args.config.as_deref())?;
    let temporary = beside(&store, "-restore");
    if fs::canonicalize(&args.file).is_ok_and(|file| fs::canonicalize(&temporary).is_ok_and(|there| there == file)) {
        let text = format!("{} is the name of an unfinished restore: give the copy another name", temporary.display());
        return Err(Fault::Other(text));
    }
    let is_in_place =
        fs::canonicalize(&args.file).is_ok_and(|file| fs::canonicalize(&store).is_ok_and(|it| it == file));
    let ran = ask(Command::new("systemctl").args(["is-active", "--quiet", SERVICE])).is_ok();
    ask(Command::new("systemctl").arg("stop").args([SOCKET, SERVICE]))?;
    let copy = |to: &Path| {
        ask(Command::new(CONTROLLER).arg("--check-store").arg(&args.file).arg("--copy-to").arg(to)).map(drop)
    };
    let put = put(copy, &store, !is_in_place);
    let start = || ask(Command::new("systemctl").arg("start").args([SOCKET, SERVICE]));
    match put {
        Ok(before) => {
            start()?;
            Ok(Restored { file: args.file.clone(), store, before })
        }
        Err(NotPut { fault, stands: true }) if ran => {
            start()?;
            Err(fault)
        }
        Err(NotPut { fault, stands: false }) => {
            Err(Fault::Other(format!("{fault}; the controller is not started: look at {} first", store.display())))
        }
        // The copy may be this very store: without its stamp the controller could take it for current.
        Err(NotPut { fault, .. }) => Err(Fault::Other(format!(
            "{fault}; the controller did not run before, and was not started with that store"
        ))),
    }
}

/// Runs a program to its end and returns its standard output. Fails if its exit status is not 0; the error has the text
/// of its standard error.
fn ask(command: &mut Command) -> Result<String, Fault> {
    let name = command.get_program().to_string_lossy().into_owned();
    let said = command.output().map_err(|error| Fault::Other(format!("{name}: {error}")))?;
    if said.status.success() {
        return Ok(String::from_utf8_lossy(&said.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Err(Fault::Other(crate::text::line(&if why.is_empty() { format!("{name}: {}", said.status) } else { why })))
}

fn store(config: Option<&Path>) -> Result<PathBuf, Fault> {
    let mut command = Command::new(CONTROLLER);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    let printed = ask(command.arg("--print-config"))?;
    let table: Option<toml::Table> = printed.parse().ok();
    let store = table.as_ref().and_then(|table| table.get("store")?.as_str().map(PathBuf::from));
    store.ok_or_else(|| Fault::Other(format!("{CONTROLLER} --print-config names no store: is it an older version?")))
}

/// A restore that failed. `stands`: the old store is in its place with its log, as it was.
#[derive(Debug)]
struct NotPut {
    fault: Fault,
    stands: bool,
}

impl From<Fault> for NotPut {
    fn from(fault: Fault) -> Self {
        Self { fault, stands: true }
    }
}

/// Puts a copy of a store in the place of `store`; `copy` writes it to the path that it gets. The copy gets the owner
/// of the store's directory. Removes SQLite's side files (`-wal`, `-shm`) of the old store, which would undo the
/// restore or damage the copy. `keep`: renames the old store and its `-wal` file, so that they stay. Returns the old
/// store's new path; `None`: nothing was kept.
fn put(copy: impl FnOnce(&Path) -> Result<(), Fault>, store: &Path, keep: bool) -> Result<Option<PathBuf>, NotPut> {
    let directory = store.parent().unwrap_or(Path::new("/"));
    let fault = |what, path: &Path| {
        let path = path.to_owned();
        move |source| Fault::File { what, path, source }
    };
    let temporary = beside(store, "-restore");
    gone_is_fine(fs::remove_file(&temporary)).map_err(fault("cannot remove", &temporary))?;
    copy(&temporary)?;
    let owned = || -> io::Result<()> {
        let owner = fs::metadata(directory)?;
        let file = fs::File::open(&temporary)?;
        fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.sync_all()
    };
    owned().map_err(fault("cannot prepare", &temporary))?;
    let before = match keep && store.exists() {
        true => Some(free_name(store)?),
        false => None,
    };
    let log = beside(store, "-wal");
    let log_before = before.as_ref().map_or_else(|| beside(store, "-replaced-wal"), |before| beside(before, "-wal"));
    let placed = || {
        // The log goes first: under its old name SQLite would apply it to the copy.
        gone_is_fine(fs::rename(&log, &log_before)).map_err(fault("cannot move", &log))?;
        if let Some(before) = &before {
            fs::rename(store, before).map_err(fault("cannot keep", store))?;
        }
        let shared = beside(store, "-shm");
        gone_is_fine(fs::remove_file(&shared)).map_err(fault("cannot remove", &shared))?;
        fs::rename(&temporary, store).map_err(fault("cannot replace", store))
    };
    if let Err(failed) = placed() {
        let store_back = before.as_ref().map_or(Ok(()), |before| gone_is_fine(fs::rename(before, store)));
        return Err(match store_back.and_then(|()| gone_is_fine(fs::rename(&log_before, &log))) {
            Ok(()) => failed.into(),
            Err(error) => {
                let there = before.as_deref().unwrap_or(store).display();
                let fault = Fault::Other(format!("{failed}; the store that was there is {there}: {error}"));
                NotPut { fault, stands: false }
            }
        });
    }
    let ended = || -> io::Result<()> {
        if before.is_none() {
            gone_is_fine(fs::remove_file(&log_before))?;
        }
        fs::File::open(directory)?.sync_all()
    };
    match ended().map_err(fault("cannot write", directory)) {
        Ok(()) => Ok(before),
        Err(fault) => Err(NotPut { fault, stands: false }),
    }
}

/// Returns the first free path like `controller.db-before-1`. A path with a log (`-wal`) beside it is not free: SQLite
/// would apply that log to the store that gets this name.
fn free_name(store: &Path) -> Result<PathBuf, Fault> {
    let mut names = (1..u16::MAX).map(|n| beside(store, &format!("-before-{n}")));
    let free = names.find(|path| !path.exists() && !beside(path, "-wal").exists());
    free.ok_or_else(|| Fault::Other(format!("remove old stores: every {}-before-N is taken", store.display())))
}

fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Faces for Restored {
    fn table(&self, page: &mut Page) {
        page.line(format_args!(
            "{} is the store now ({}), and the controller runs",
            self.file.display(),
            self.store.display()
        ));
        if let Some(before) = &self.before {
            page.line(format_args!("the store that was there is {}: remove it when all is well", before.display()));
        }
        page.line("what the copy owes waits until its resource manager, or you, vouched for it");
        page.line("what it waits for: perilog controller recover");
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

    #[test]
    fn a_copy_takes_the_place_of_a_store_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["c.db", "c.db-wal", "c.db-shm", "c.db-anchor", "c.db-restore"] {
            fs::write(path(name), name).unwrap();
        }
        fs::write(path("copy"), "copy").unwrap();
        let copy =
            |from: PathBuf| move |to: &Path| fs::copy(from, to).map(|_| ()).map_err(|_| Fault::Other(String::new()));
        let before = put(copy(path("copy")), &path("c.db"), true).unwrap();
        assert_eq!((before, fs::read_to_string(path("c.db")).unwrap().as_str()), (Some(path("c.db-before-1")), "copy"));
        assert_eq!(fs::metadata(path("c.db")).unwrap().permissions().mode() & 0o777, 0o600);
        let left = || {
            let entries =
                fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            entries.collect::<std::collections::BTreeSet<String>>().into_iter().collect::<Vec<_>>().join(" ")
        };
        let kept = "c.db c.db-anchor c.db-before-1 c.db-before-1-wal copy";
        assert_eq!(left(), kept, "the anchor stays, and the old store with its log");
        assert_eq!(put(copy(path("c.db")), &path("c.db"), false).unwrap(), None);
        assert_eq!(left(), kept, "a store that is stamped in its place");
        assert!(put(copy(path("no copy")), &path("c.db"), true).is_err());
        assert_eq!(fs::read_to_string(path("c.db")).unwrap(), "copy", "a copy that is not there replaces nothing");
        // An operator has removed the store, and not its log.
        fs::remove_file(path("c.db-before-1")).unwrap();
        fs::create_dir(path("c.db-shm")).unwrap();
        fs::write(path("c.db-wal"), "log").unwrap();
        fs::write(path("copy"), "newer").unwrap();
        for keep in [true, false] {
            assert!(put(copy(path("copy")), &path("c.db"), keep).unwrap_err().stands);
            let there = ["c.db", "c.db-wal"].map(|name| fs::read_to_string(path(name)).unwrap());
            assert_eq!(there, ["copy", "log"], "a failure in the middle puts the store and its log back, keep: {keep}");
        }
        fs::remove_file(path("c.db-wal")).unwrap();
        fs::remove_dir(path("c.db-shm")).unwrap();
        assert_eq!(put(copy(path("copy")), &path("c.db"), true).unwrap(), Some(path("c.db-before-2")));
        assert_eq!(fs::read_to_string(path("c.db")).unwrap(), "newer");
    }
}
