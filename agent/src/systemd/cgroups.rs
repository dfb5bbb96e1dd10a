//! Cgroups of tasks' units: shows whether a unit has processes. The agent reads this from the kernel's files, which is
//! cheaper than a call to PID 1 and shows a change earlier.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::recipe::SLICE;

/// Paths of units' cgroups on this host. `root` is the mount point of cgroup v2, or `None` on a host with only cgroup
/// v1.
#[derive(Debug, Clone)]
pub struct Cgroups {
    root: Option<PathBuf>,
}

impl Cgroups {
    pub fn find() -> io::Result<Self> {
        Ok(Self { root: cgroup2_mount(&fs::read_to_string("/proc/self/mountinfo")?) })
    }

    /// Returns `true` if the kernel reports when a cgroup becomes empty.
    pub(crate) fn reports_empty(&self) -> bool {
        self.root.is_some()
    }

    /// Returns the path of the file `cgroup.events` of a task's unit. The path begins with the cgroup above PID 1's
    /// `init.scope`: in a container, that of the container. `None`: the host has no cgroup v2.
    pub(crate) fn of_task(&self, stem: &str) -> Option<PathBuf> {
        let of_init = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
        let top = of_init.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        let top = top.strip_suffix("/init.scope").unwrap_or(top).trim_end_matches('/');
        self.events(Some(&format!("{top}/{SLICE}/{stem}.service")))
    }

    /// Returns `true` if the unit of this task has a process. A cgroup that is gone or unreadable has none. `None`: the
    /// host has no cgroup v2.
    pub(crate) fn has_processes(&self, stem: &str) -> Option<bool> {
        let events = self.of_task(stem)?;
        Some(populated(&events).unwrap_or(false))
    }

    /// Returns the name of the cgroup that was frozen (`systemctl freeze`), and this one with it: that of `cgroup`
    /// itself or of a slice above it. `None`: the cgroup is not frozen, or the kernel does not say.
    pub(super) fn frozen_by(&self, cgroup: Option<&str>) -> Option<String> {
        let events = self.events(cgroup)?;
        read_field(&events, "frozen").filter(|frozen| *frozen)?;
        let above = events.parent()?.ancestors();
        let frozen = |dir: &&Path| fs::read_to_string(dir.join("cgroup.freeze")).is_ok_and(|text| text.trim() == "1");
        let by = above.take_while(|dir| Some(*dir) != self.root.as_deref()).find(frozen)?;
        Some(by.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns a value that finds no cgroup, as on a host with only cgroup v1.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        Self { root: None }
    }

    /// Returns the path of the file `cgroup.events`, which shows whether `cgroup` has processes. `cgroup` is a path
    /// below the mount point, as systemd names it. The file may be missing, because the cgroup is gone. `None`: the
    /// unit has no cgroup, or the host has no cgroup v2.
    pub(super) fn events(&self, cgroup: Option<&str>) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join(cgroup?.trim_start_matches('/')).join("cgroup.events"))
    }
}

/// Returns `true` if the cgroup or a child has a process (`populated 1`, cgroups(7)); `None` if unknown.
pub(super) fn populated(events: &Path) -> Option<bool> {
    read_field(events, "populated")
}

fn read_field(events: &Path, name: &str) -> Option<bool> {
    let text = fs::read_to_string(events).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(|n| n != "0")
}

/// Returns the mount point of cgroup v2, preferably one under /sys/fs/cgroup. `mountinfo` is the text of
/// proc_pid_mountinfo(5).
fn cgroup2_mount(mountinfo: &str) -> Option<PathBuf> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| fields.split(' ').nth(4)).flatten()
    });
    let mut mounts: Vec<&str> = mounts.collect();
    mounts.sort_by_key(|mount| !mount.starts_with("/sys/fs/cgroup"));
    mounts.first().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_version_2_is_found() {
        let v1 = "31 23 0:27 / /sys/fs/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd\n";
        let hybrid = format!("{v1}30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
        let both = format!("9 1 0:9 / /mnt/x rw - cgroup2 none rw\n{hybrid}");
        for (text, expect) in
            [(v1, None), (&hybrid, Some("/sys/fs/cgroup/unified")), (&both, Some("/sys/fs/cgroup/unified"))]
        {
            assert_eq!(cgroup2_mount(text), expect.map(PathBuf::from));
        }
    }

    #[test]
    fn a_cgroup_is_populated_or_empty_or_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = Cgroups { root: Some(dir.path().to_owned()) };
        let events = cgroups.events(Some("/a.slice/b.service")).unwrap();
        assert_eq!(populated(&events), None);
        fs::create_dir_all(events.parent().unwrap()).unwrap();
        for (text, expect) in
            [("populated 0\nfrozen 0\n", Some(false)), ("populated 1\nfrozen 0\n", Some(true)), ("", None)]
        {
            fs::write(&events, text).unwrap();
            assert_eq!(populated(&events), expect);
        }
        let frozen = |text: &str| {
            fs::write(&events, text).unwrap();
            cgroups.frozen_by(Some("/a.slice/b.service"))
        };
        assert_eq!(frozen("populated 1\nfrozen 1\n"), None);
        fs::write(dir.path().join("a.slice/cgroup.freeze"), "1\n").unwrap();
        assert_eq!(frozen("populated 1\nfrozen 1\n").as_deref(), Some("a.slice"));
        assert_eq!(frozen("populated 1\nfrozen 0\n"), None);
        assert_eq!(Cgroups { root: None }.events(Some("/a")), None);
        assert_eq!(cgroups.events(None), None);
    }
}
