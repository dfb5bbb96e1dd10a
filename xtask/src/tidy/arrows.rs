//! Allowed dependencies between packages (ARCHITECTURE.md).

use super::Findings;
use crate::cargo::Package;

/// Each package of the workspace, and the packages of the workspace that it may name in any kind of dependency. `None`:
/// any.
const ARROWS: [(&str, Option<&[&str]>); 17] = [
    ("perilog-core", Some(&[])),
    ("perilog-proto", Some(&["perilog-core"])),
    ("perilog-host", Some(&[])),
    ("perilog-agent", Some(&["perilog-core", "perilog-proto", "perilog-host"])),
    ("perilog-controller", Some(&["perilog-core", "perilog-proto", "perilog-host"])),
    ("perilog", Some(&["perilog-core", "perilog-proto", "perilog-host"])),
    ("perilog-flux", Some(&["perilog-core", "perilog-host", "perilog-terms"])),
    ("perilog-hold", Some(&["perilog-terms"])),
    ("perilog-terms", Some(&[])),
    ("perilog-sim", Some(&["perilog-core", "perilog-proto"])),
    // Every `cargo xtask` builds it first: what it depends on is what README's first command waits for.
    ("perilog-tests", Some(&["perilog-core"])),
    (
        "perilog-disk",
        Some(&["perilog-core", "perilog-proto", "perilog-host", "perilog-agent", "perilog-controller", "perilog-shim"]),
    ),
    ("perilog-shim", Some(&[])),
    (
        "perilog-fuzz",
        Some(&[
            "perilog-core",
            "perilog-proto",
            "perilog-host",
            "perilog-agent",
            "perilog-controller",
            "perilog-flux",
            "perilog-terms",
            "perilog-tests",
        ]),
    ),
    (
        "perilog-bench",
        Some(&[
            "perilog-core",
            "perilog-proto",
            "perilog-host",
            "perilog-controller",
            "perilog-agent",
            "perilog-tests",
        ]),
    ),
    (
        "perilog-pages",
        Some(&["perilog-core", "perilog-host", "perilog-agent", "perilog-controller", "perilog-flux", "perilog"]),
    ),
    ("xtask", None),
];

/// Packages for development, each with the only packages that may depend on it.
const NAMED_ONLY_BY: [(&str, &[&str]); 8] = [
    ("perilog-fuzz", &[]),
    ("perilog-disk", &[]),
    ("perilog-shim", &["perilog-disk"]),
    ("perilog-tests", &["xtask", "perilog-bench", "perilog-fuzz"]),
    ("perilog-sim", &["xtask"]),
    ("perilog-bench", &[]),
    ("perilog-pages", &[]),
    ("xtask", &[]),
];

/// Crates that the core may depend on. Any other crate counts as I/O, a clock, a thread or an executor until proven
/// harmless.
const CORE: [&str; 6] = ["proptest", "serde", "serde_json", "serde_path_to_error", "thiserror", "uuid"];

/// Packages that Flux loads into rank 0: they depend on no registry crate.
const INSIDE_FLUX: [&str; 2] = ["perilog-hold", "perilog-terms"];

pub(super) fn check(packages: &[Package], findings: &mut Findings) {
    for package in packages {
        let name = package.name.as_str();
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            findings.errors.push(format!("{name}: a package that no arrow is drawn for (xtask/src/tidy/arrows.rs)"));
            continue;
        };
        for dependency in &package.dependencies {
            let ours = packages.iter().any(|package| package.name == *dependency);
            let drawn = allowed.is_none_or(|allowed| allowed.contains(&dependency.as_str()));
            let hidden = NAMED_ONLY_BY.iter().any(|(to, by)| to == dependency && !by.contains(&name));
            if ours && (!drawn || hidden) {
                findings
                    .errors
                    .push(format!("{name} -> {dependency}: an arrow that is not drawn (xtask/src/tidy/arrows.rs)"));
            }
            if name == "perilog-core" && !ours && !CORE.contains(&dependency.as_str()) {
                findings.errors.push(format!("{name} -> {dependency}: the core is made of {} only", CORE.join(", ")));
            }
            if INSIDE_FLUX.contains(&name) && !ours {
                findings
                    .errors
                    .push(format!("{name} -> {dependency}: Flux loads this into rank 0, without other crates"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn only_drawn_arrows_are_let_through() {
        let all =
            ["perilog-core", "perilog-proto", "perilog-host", "perilog-agent", "perilog", "perilog-tests", "xtask"];
        let cases = [
            ("perilog-core", "serde", true),
            ("perilog-core", "tokio", false),
            ("perilog-core", "perilog-host", false),
            ("perilog-proto", "perilog-core", true),
            ("perilog-proto", "tokio", true),
            ("perilog-proto", "perilog-host", false),
            ("perilog-host", "perilog-core", false),
            ("perilog-agent", "perilog-proto", true),
            ("perilog-agent", "perilog-tests", false),
            ("perilog", "perilog-proto", true),
            ("perilog", "perilog-agent", false),
            ("perilog-tests", "perilog-core", true),
            ("perilog-tests", "perilog-host", false),
            ("perilog-tests", "xtask", false),
            ("xtask", "perilog-tests", true),
            ("perilog-bench", "perilog-tests", true),
            ("perilog-bench", "perilog", false),
            ("perilog-new", "serde", false),
            ("perilog-terms", "serde", false),
            ("perilog-terms", "perilog-core", false),
            ("perilog-hold", "perilog-core", false),
            ("perilog-hold", "libc", false),
        ];
        for (from, to, allowed) in cases {
            let package = |name: &str, dependencies: &[&str]| Package {
                name: name.to_owned(),
                directory: PathBuf::new(),
                dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
                mains: Vec::new(),
            };
            let mut packages: Vec<_> =
                all.iter().filter(|name| **name != from).map(|name| package(name, &[])).collect();
            packages.push(package(from, &[to]));
            let mut findings = Findings::default();
            check(&packages, &mut findings);
            assert_eq!(findings.errors.is_empty(), allowed, "{from} -> {to}: {:?}", findings.errors);
        }
    }
}
