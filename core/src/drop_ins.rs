//! Drop-ins of a task's unit: which files may change the unit in spite of the package's own drop-in, and whose they
//! are.
//!
//! systemd reads the drop-ins of all directories in the order of their file names, and the last assignment of a
//! property wins. So a file that sorts before [`PIN`] changes nothing that the package's drop-in fixes.
//!
//! | file that sorts after the package's drop-in, or replaces it | is |
//! |---|---|
//! | `perilog-task-.service.d/zzz-site.conf` | the site's wish for tasks: in force and shown |
//! | `service.d/zzz-site.conf`, `perilog-.service.d/...` | meant for other services |

/// File name of the package's drop-in, which fixes what a task's unit must be. The package's other drop-in,
/// `shutdown.conf`, overrides nothing.
pub const PIN: &str = "zz-perilog.conf";
/// Beginning of the names of directories whose drop-ins are meant for tasks, such as `perilog-task-.service.d` for all
/// tasks and `perilog-task-prolog-.service.d` for those of one action.
const OF_TASKS: &str = "perilog-task-";

/// The drop-ins that may override the package's drop-in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overriding {
    /// Whether the package's drop-in, or a file that replaces it, is among the drop-ins.
    pub is_pinned: bool,
    /// Paths of drop-ins for tasks.
    pub of_tasks: Vec<String>,
    /// Paths of drop-ins for other units, which change tasks as well.
    pub of_others: Vec<String>,
}

impl Overriding {
    /// Sorts out the drop-ins of a task's unit, as systemd's property `DropInPaths` names them.
    pub fn among<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let paths: Vec<(&str, &str, &str)> = paths.into_iter().filter_map(split).collect();
        let is_pinned = paths.iter().any(|(_, dir, name)| *name == PIN && dir.starts_with(OF_TASKS));
        let mut overriding = Self { is_pinned, ..Self::default() };
        for (path, dir, name) in paths {
            let is_packaged = path.starts_with("/usr/lib/") || path.starts_with("/lib/");
            let is_for_tasks = dir.starts_with(OF_TASKS);
            // A file of the package's name elsewhere replaces the package's.
            if (is_pinned && name < PIN) || (is_for_tasks && is_packaged && matches!(name, PIN | "shutdown.conf")) {
                continue;
            }
            let list = if is_for_tasks { &mut overriding.of_tasks } else { &mut overriding.of_others };
            list.push(path.to_owned());
        }
        overriding
    }
}

/// Returns a drop-in's path, the name of its directory, and its own.
fn split(path: &str) -> Option<(&str, &str, &str)> {
    let (dir, name) = path.rsplit_once('/')?;
    Some((path, dir.rsplit_once('/').map_or(dir, |(_, dir)| dir), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/usr/lib/systemd/system/perilog-task-.service.d/zz-perilog.conf";
    const SHUTDOWN: &str = "/usr/lib/systemd/system/perilog-task-.service.d/shutdown.conf";

    #[test]
    fn who_may_override_the_package() {
        let of_all = "/etc/systemd/system/service.d/50-site.conf";
        let of_all_late = "/etc/systemd/system/service.d/zzz-site.conf";
        let of_perilog = "/etc/systemd/system/perilog-.service.d/zz-perilog.conf";
        let early = "/etc/systemd/system/perilog-task-.service.d/10-site.conf";
        let late = "/etc/systemd/system/perilog-task-.service.d/zzz-site.conf";
        let of_prologs = "/etc/systemd/system/perilog-task-prolog-.service.d/zzz-site.conf";
        let replaced = "/etc/systemd/system/perilog-task-.service.d/zz-perilog.conf";
        for (paths, of_tasks, of_others) in [
            (vec![SHUTDOWN, OURS], vec![], vec![]),
            (vec![early, of_all, SHUTDOWN, OURS], vec![], vec![]),
            (vec![SHUTDOWN, OURS, late, of_prologs], vec![late, of_prologs], vec![]),
            (vec![of_all, SHUTDOWN, OURS, of_all_late], vec![], vec![of_all_late]),
            (vec![of_all, SHUTDOWN, replaced], vec![replaced], vec![]),
            // The package's drop-in is gone, or a file for more than tasks has its name.
            (vec![early, of_all, SHUTDOWN], vec![early], vec![of_all]),
            (vec![SHUTDOWN, of_perilog], vec![], vec![of_perilog]),
        ] {
            let found = Overriding::among(paths.clone());
            assert_eq!((found.of_tasks, found.of_others), (owned(&of_tasks), owned(&of_others)), "{paths:?}");
        }
    }

    fn owned(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }
}
