//! `[failover]`: the hosts that may run this controller, and the file system that moves between them.

use std::io;
use std::path::{Path, PathBuf};

use perilog_host::mount::is_mounted;
use serde::{Deserialize, Serialize};

use super::{AbsolutePath, Hosts};

/// The hosts of which one runs the controller, and the file system with the store that only that host mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Failover {
    /// The hosts that may run this controller; `None`: this is the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// The directory on which the active host mounts the file system; `None`: the store's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<AbsolutePath>,
}

/// The reason why the controller must not run on this host now.
#[derive(Debug, thiserror::Error)]
pub enum FailoverError {
    #[error(
        "no file system is mounted on {} here, and by [failover] the store is on one: this host is the passive one, or \
         the mount failed (findmnt {}); nothing was written",
        mount.display(),
        mount.display()
    )]
    NotMounted { mount: PathBuf },
    #[error(
        "there is no store at {}, and a controller with [failover] makes none: is another file system mounted here \
         (findmnt {})? A new store knows nothing of the jobs that run on nodes, so restore the store or a copy of it \
         (perilog controller restore); only for a cluster without jobs, make an empty one: install -o perilog -g \
         perilog -m 0600 /dev/null {}",
        store.display(),
        mount.display(),
        store.display()
    )]
    NoStore { mount: PathBuf, store: PathBuf },
    #[error(
        "{key} is {}, which is not on the file system of {} ([failover]), and would stay on this host when the \
         controller moves: move it there, and name its new place in {key}",
        path.display(),
        mount.display()
    )]
    Elsewhere { key: &'static str, path: PathBuf, mount: PathBuf },
    #[error("[failover] {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Failover {
    /// Returns the directory on which the active host mounts the file system of `store`; `None`: the controller has one
    /// host.
    pub fn mount_of<'a>(&'a self, store: &'a Path) -> Option<&'a Path> {
        self.hosts.as_ref()?;
        self.mount.as_deref().or_else(|| store.parent())
    }

    /// Returns the name of the controller's certificate by which nodes dial: the first one, or with several hosts the
    /// first that is the name of none of them. `None`: there is no such name. A node that dialled one host would lose
    /// the controller at a move.
    pub(crate) fn dialled<'n>(&self, names: &'n [String]) -> Option<&'n str> {
        let is_host = |name: &str| self.hosts.as_ref().is_some_and(|hosts| hosts.list().listed(name).is_some());
        if perilog_core::defect!(FirstHostDialled) {
            return names.first().map(String::as_str);
        }
        names.iter().map(String::as_str).find(|name| !is_host(name))
    }

    /// Checks that all that moves with the controller is below the mount: the store and, with an `authority`, the
    /// directory of the authority that enrols nodes. Compares the paths alone, for a host without the file system.
    pub(super) fn check_paths(&self, store: &Path, authority: Option<&Path>) -> Result<(), FailoverError> {
        let Some(mount) = self.mount_of(store) else { return Ok(()) };
        if perilog_core::defect!(PlaceUnchecked) {
            return Ok(());
        }
        moving(store, authority).find(|(_, path)| !path.starts_with(mount)).map_or(Ok(()), |(key, path)| {
            Err(FailoverError::Elsewhere { key, path: path.to_owned(), mount: mount.to_owned() })
        })
    }

    /// Checks that this host has the file system with the store, and that store and authority are on it, also where a
    /// path is a link. A controller that began with an empty directory would know no job.
    ///
    /// # Errors
    /// [`FailoverError`]: the file system is not mounted here, it has no store, a part that moves is elsewhere, or the
    /// mount or the store cannot be examined.
    pub fn check(&self, store: &Path, authority: Option<&Path>) -> Result<(), FailoverError> {
        let Some(mount) = self.mount_of(store) else { return Ok(()) };
        if perilog_core::defect!(MountUnchecked) {
            return Ok(());
        }
        if !is_mounted(mount).map_err(|source| FailoverError::Io { path: mount.to_owned(), source })? {
            return Err(FailoverError::NotMounted { mount: mount.to_owned() });
        }
        match store.try_exists() {
            Ok(true) => {}
            Ok(false) => return Err(FailoverError::NoStore { mount: mount.to_owned(), store: store.to_owned() }),
            Err(source) => return Err(FailoverError::Io { path: store.to_owned(), source }),
        }
        let place = resolved(mount);
        match moving(store, authority).find(|(_, path)| !resolved(path).starts_with(&place)) {
            Some((key, path)) => Err(FailoverError::Elsewhere { key, path: path.to_owned(), mount: mount.to_owned() }),
            None => Ok(()),
        }
    }
}

/// Returns the files and directories that move with the controller, each with its key.
fn moving<'p>(store: &'p Path, authority: Option<&'p Path>) -> impl Iterator<Item = (&'static str, &'p Path)> {
    [("store", store)].into_iter().chain(authority.map(|path| ("[enroll] directory", path)))
}

/// Returns the path without links; of a path that does not exist yet, that of the directory in which it will be.
fn resolved(path: &Path) -> PathBuf {
    path.ancestors().find_map(|path| path.canonicalize().ok()).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_hosts(mount: Option<&'static str>) -> Failover {
        let hosts = Hosts::try_from("ctl[0-1]".parse::<perilog_core::HostList>().unwrap()).unwrap();
        Failover { hosts: Some(hosts), mount: mount.map(AbsolutePath::fixed) }
    }

    /// Nodes that dialled ctl0 were lost when the controller moved to ctl1.
    #[test]
    fn nodes_dial_a_name_that_moves() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        let names = ["ctl0", "ctl1.hpc", "ctl"].map(str::to_owned);
        assert_eq!(Failover::default().dialled(&names), Some("ctl0"), "one host");
        assert_eq!(two_hosts(None).dialled(&names), Some("ctl"));
        assert_eq!(two_hosts(None).dialled(&names[..2]), None);
    }

    /// /proc is a file system of its own on every Linux host, and /dev/shm one that has files.
    #[test]
    fn a_store_is_searched_on_the_mounted_file_system_alone() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("controller.db");
        assert!(Failover::default().check(&store, None).is_ok(), "one host makes its store");
        let error = two_hosts(None).check(&store, None).unwrap_err();
        assert!(matches!(error, FailoverError::NotMounted { .. }), "{error}");
        assert!(error.to_string().contains(&format!("findmnt {}", dir.path().display())), "{error}");
        // An old store below the mount point is no reason to begin.
        std::fs::write(&store, "").unwrap();
        assert!(matches!(two_hosts(None).check(&store, None), Err(FailoverError::NotMounted { .. })));

        let missing = dir.path().join("none/controller.db");
        assert!(matches!(two_hosts(None).check(&missing, None), Err(FailoverError::NotMounted { .. })));

        let of_proc = two_hosts(Some("/proc"));
        let error = of_proc.check(Path::new("/proc/none/controller.db"), None).unwrap_err();
        assert!(matches!(error, FailoverError::NoStore { .. }), "{error}");
        of_proc.check(Path::new("/proc/version"), None).unwrap();
    }

    /// A new store in place of a missing one forgets what runs: the message says so before it says how.
    #[test]
    fn a_missing_store_is_not_made_lightly() {
        let text = two_hosts(Some("/proc")).check(Path::new("/proc/none/controller.db"), None).unwrap_err().to_string();
        let (warning, command) = (text.find("knows nothing of the jobs that run on nodes"), text.find("/dev/null"));
        assert!(warning.is_some() && warning < command, "{text}");
    }

    /// An authority on the first host's own disk was missing on the second host, which then refused every node.
    #[test]
    fn what_moves_with_the_controller_is_below_the_mount() {
        perilog_core::switch_on_defect!(perilog_host::defect::chosen());
        let (store, enroll) = (Path::new("/srv/ctl/controller.db"), Path::new("/var/lib/perilog/enroll"));
        assert!(Failover::default().check_paths(store, Some(enroll)).is_ok(), "one host");
        assert!(two_hosts(None).check_paths(store, None).is_ok(), "no node enrols");
        assert!(two_hosts(Some("/srv")).check_paths(store, Some(Path::new("/srv/enroll"))).is_ok());
        for (mount, expected) in [
            (None, "[enroll] directory is /var/lib/perilog/enroll, which is not on the file system of /srv/ctl"),
            (Some("/var/lib/perilog"), "store is /srv/ctl/controller.db, which is not on the file system of"),
            (Some("/srv/ct"), "store is /srv/ctl/controller.db"),
        ] {
            let error = two_hosts(mount).check_paths(store, Some(enroll)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        // A link below the mount leads elsewhere: /proc/self/root is /.
        let error = two_hosts(Some("/proc")).check(Path::new("/proc/version"), Some(Path::new("/proc/self/root/etc")));
        assert!(matches!(error, Err(FailoverError::Elsewhere { key: "[enroll] directory", .. })), "{error:?}");
    }
}
