//! Checks of the drop-ins that change the unit of every task: the package's own, the site's for tasks, and those for
//! all services that override the package's drop-in.

use std::path::Path;

use perilog_core::drop_ins::{Overriding, PIN};

use super::Finding;

const ABOUT: &str = "drop-ins";
/// Directories of units, in the order of precedence (systemd.unit(5)).
const ROOTS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Directories of drop-ins for the unit of every task, the most special first.
const LEVELS: [&str; 3] = ["perilog-task-.service.d", "perilog-.service.d", "service.d"];

/// Returns the drop-ins of this host that may change the unit of every task.
pub(in crate::verb) fn overriding() -> Overriding {
    Overriding::among(paths(Path::new("/")).iter().map(String::as_str))
}

pub(super) fn inspect(findings: &mut Vec<Finding>) {
    findings.extend(judge(&paths(Path::new("/"))));
}

/// Returns the drop-ins that systemd reads for a task's unit: of files with one name, only the first.
fn paths(root: &Path) -> Vec<String> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (level, above) in LEVELS.iter().flat_map(|level| ROOTS.iter().map(move |above| (level, above))) {
        let dir = format!("{above}/{level}");
        let names = std::fs::read_dir(root.join(dir.trim_start_matches('/'))).into_iter().flatten().flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            if name.ends_with(".conf") && !found.iter().any(|(known, _)| *known == name) {
                found.push((name.clone(), format!("{dir}/{name}")));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn judge(paths: &[String]) -> Vec<Finding> {
    let overriding = Overriding::among(paths.iter().map(String::as_str));
    let is_pinned = paths.iter().any(|path| path.ends_with(&format!("perilog-task-.service.d/{PIN}")));
    let mut findings = Vec::new();
    if !is_pinned {
        let what = format!(
            "perilog-task-.service.d/{PIN} is missing or replaced: any drop-in for all services changes the units of \
             tasks"
        );
        findings.push(Finding::wrong(ABOUT, what, "install the package perilog-agent again; systemctl daemon-reload"));
    }
    if !overriding.of_others.is_empty() {
        let what = format!("{} may change the unit of every task", overriding.of_others.join(", "));
        let todo = format!(
            "rename it so that it sorts before {PIN}, or, if it is meant for tasks, move it to \
             /etc/systemd/system/perilog-task-.service.d; then systemctl daemon-reload"
        );
        findings.push(Finding::wrong(ABOUT, what, todo));
    }
    if !overriding.of_tasks.is_empty() {
        let what = format!("the site's own drop-ins for task units are in effect: {}", overriding.of_tasks.join(", "));
        findings.push(Finding::ok(ABOUT, what));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(ABOUT, "no drop-in overrides the settings of task units"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_as_systemd_finds_them_and_named() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        let shown = || judge(&paths(root.path())).iter().map(Finding::shown).collect::<Vec<_>>().join("\n");
        assert!(shown().contains("wrong drop-ins: perilog-task-.service.d/zz-perilog.conf is missing"), "{}", shown());
        put("usr/lib/systemd/system/perilog-task-.service.d/zz-perilog.conf");
        put("usr/lib/systemd/system/perilog-task-.service.d/shutdown.conf");
        put("etc/systemd/system/service.d/50-hardening.conf");
        put("etc/systemd/system/service.d/zzz.txt");
        assert_eq!(shown(), "ok drop-ins: no drop-in overrides the settings of task units");
        put("etc/systemd/system/perilog-task-.service.d/zzz-site.conf");
        assert!(
            shown().starts_with("ok drop-ins: the site's own drop-ins for task units are in effect"),
            "{}",
            shown()
        );
        put("etc/systemd/system/service.d/zzzz-late.conf");
        put("etc/systemd/system/service.d/zzz-site.conf");
        let both = shown();
        assert!(both.contains("/etc/systemd/system/service.d/zzzz-late.conf may change"), "{both}");
        assert!(!both.contains("service.d/zzz-site.conf may"), "the more special directory hides it: {both}");
    }
}
