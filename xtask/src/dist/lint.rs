//! Lint of packages: lintian and rpmlint. Overrides are listed, with reasons, in `packaging/deb/*.lintian-overrides`,
//! in `packaging/rpm/rpmlint.toml`, and here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo;

pub(crate) fn check(packages: &[PathBuf]) -> Result<()> {
    let of = |extension: &str| -> Vec<&PathBuf> {
        packages.iter().filter(|package| package.extension().is_some_and(|found| found == extension)).collect()
    };
    let (debs, rpms) = (of("deb"), of("rpm"));
    if !debs.is_empty() {
        let mut lintian = Command::new("lintian");
        // Any user may run it; as root it would otherwise only warn.
        lintian.args(["--allow-root", "--no-tag-display-limit", "--info", "--fail-on", "error,warning,info,pedantic"]);
        // The spelling check also reads machine code, where a found word ("wtH") differs from build to build.
        lintian.args(["--suppress-tags", "spelling-error-in-binary"]);
        run_linter("lintian", lintian.args(["--display-info", "--pedantic"]).args(debs))?;
    }
    if !rpms.is_empty() {
        let rules: &Path = &cargo::root().join("packaging/rpm/rpmlint.toml");
        run_linter("rpmlint", Command::new("rpmlint").arg("--strict").arg("--config").arg(rules).args(rpms))?;
    }
    Ok(())
}

fn run_linter(name: &str, command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("running {name}"))?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{name} ({}):\n{text}", output.status);
    Ok(())
}
