//! Place of a bed's cgroup on this machine.
//!
//! cgroup v2 is one tree with one owner. On a host with systemd, systemd owns the tree and hands out subtrees only as
//! delegated units, so the bed asks for a scope. On other hosts the bed makes a cgroup below this process's cgroup.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Place of a bed's cgroup on this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The cgroup of a delegated scope of the host's systemd, in which the bed's reaper process starts.
    Scope,
    /// A cgroup at this path, which the bed itself makes and removes.
    Directory(PathBuf),
}

/// Chooses the place for the cgroup of the bed named `bed`: a scope if systemd runs this machine, otherwise a
/// directory.
pub(super) fn find(bed: &str) -> Result<Place> {
    let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("reading {path}"));
    let systemd = Path::new("/run/systemd/system").is_dir() && read("/proc/1/comm")?.trim() == "systemd";
    choose(systemd, &read("/proc/self/mounts")?, &read("/proc/self/cgroup")?, bed)
}

fn choose(systemd: bool, mounts: &str, own: &str, bed: &str) -> Result<Place> {
    let fields = |line: &'_ str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let Some(mount) = mounts.lines().map(fields).find(|mount| mount.get(2).is_some_and(|kind| kind == "cgroup2"))
    else {
        bail!(
            "no cgroup v2 file system is mounted here; `mount -t cgroup2 cgroup2 /sys/fs/cgroup` gives one where none \
             is used"
        );
    };
    if mount.get(3).is_some_and(|options| options.split(',').any(|option| option == "ro")) {
        bail!(
            "the cgroup v2 file system on {} is mounted read-only: a container needs to be privileged for this",
            mount[1]
        );
    }
    if systemd {
        return Ok(Place::Scope);
    }
    // `0::/path`: a path outside of the cgroup namespace starts with `/..` and is unreachable through this mount.
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = if own.split('/').any(|part| part == "..") { "" } else { own };
    Ok(Place::Directory(Path::new(&mount[1]).join(own).join(bed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_tree_it_may_use() {
        let hybrid =
            "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        let cases = [
            (false, hybrid, "3:memory:/x\n0::/\n", Some("/sys/fs/cgroup/unified/bed")),
            (false, unified, "0::/docker/abc\n", Some("/sys/fs/cgroup/docker/abc/bed")),
            (false, unified, "0::/../other\n", Some("/sys/fs/cgroup/bed")),
            (true, unified, "0::/user.slice\n", None),
        ];
        for (systemd, mounts, own, expected) in cases {
            let place = choose(systemd, mounts, own, "bed").unwrap();
            assert_eq!(place, expected.map_or(Place::Scope, |path| Place::Directory(path.into())));
        }
        for mounts in ["cgroup /sys/fs/cgroup/memory cgroup rw 0 0\n", "cgroup2 /sys/fs/cgroup cgroup2 ro,nosuid 0 0\n"]
        {
            assert!(choose(false, mounts, "0::/\n", "bed").is_err());
        }
    }
}
