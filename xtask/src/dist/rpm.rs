//! Makes .rpm packages with rpmbuild(8), from `packaging/rpm/perilog.spec`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Contents, collect, succeed, tree, version};
use crate::git;

/// Macros with which neither the time nor the host of a build gets into a package. The second is rpm's name before
/// 4.20, the third from then on (rpm's `docs/manual/buildprocess`).
const REPRODUCIBLE: [&str; 4] = [
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "build_mtime_policy clamp_to_source_date_epoch",
    "_buildhost localhost",
];

pub(super) fn pack(contents: &Contents<'_>, directory: &Path) -> Result<Vec<PathBuf>> {
    let top = directory.join("rpm");
    let name = format!("perilog-{}", version());
    tree::copy(&top.join(&name))?;
    let sources = top.join("SOURCES");
    std::fs::create_dir_all(&sources).with_context(|| format!("making {}", sources.display()))?;
    let archive = sources.join(format!("{name}.tar.gz"));
    succeed(Command::new("tar").arg("-C").arg(&top).arg("-czf").arg(&archive).args(["--owner=0", "--group=0", &name]))?;
    let define = |name: &str, value: &Path| [String::from("--define"), format!("{name} {}", value.display())];
    let mut command = Command::new("rpmbuild");
    // As for .deb: the build must not depend on a package named cargo on this machine.
    command.args(["-bb", "--nodeps", "--quiet"]).args(define("_topdir", &top));
    command.args(define("perilog_binaries", contents.binaries)).args(define("perilog_pages", contents.pages));
    command.envs(git::epoch());
    // The same source makes the same package: no host's name, no time but that of SOURCE_DATE_EPOCH.
    for line in REPRODUCIBLE {
        command.args(["--define", line]);
    }
    if contents.loosely {
        command.args(["--define", "_binary_payload w1.gzdio"]);
    }
    succeed(command.arg(top.join(&name).join("packaging/rpm/perilog.spec")))?;
    let architecture = succeed(Command::new("rpm").args(["--eval", "%{_target_cpu}"]))?;
    collect(&top.join("RPMS").join(architecture.trim()), "rpm", directory)
}

#[cfg(test)]
mod tests {
    const SPEC: &str = include_str!("../../../packaging/rpm/perilog.spec");
    /// Programs of the packages that `/usr/bin/python3` runs: 3.6 on el8.
    const PROGRAMS: [(&str, &str); 3] = [
        ("slurm/drain", include_str!("../../../docs/examples/slurm/drain")),
        ("flux/drain", include_str!("../../../docs/examples/flux/drain")),
        ("10-perilog", include_str!("../../../flux/rc1/10-perilog")),
    ];
    /// What the programs could use, and Python has since 3.7 or 3.9.
    const NEWER: [&str; 5] = ["capture_output", ", text=True", "removesuffix", "removeprefix", ":="];

    #[test]
    fn each_description_says_on_what_packages_were_not_run() {
        let descriptions: Vec<&str> = SPEC.split("\n%description").skip(1).collect();
        assert_eq!(descriptions.len(), 4);
        for description in descriptions {
            let text = description.split("\n%p").next().unwrap_or_default();
            assert!(text.trim_end().ends_with("\n%{not_run}"), "{text}");
        }
    }

    #[test]
    fn programs_run_with_the_python3_of_el8() {
        for (name, text) in PROGRAMS {
            assert!(text.starts_with("#!/usr/bin/python3\n"), "{name}");
            for newer in NEWER {
                assert!(!text.contains(newer), "{name}: {newer}");
            }
        }
    }
}
