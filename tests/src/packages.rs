//! Packages of the product under test, and their installation on nodes. `cargo xtask test packages` makes the packages
//! (`xtask/src/dist.rs`).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::command::Output;
use crate::node::Node;

/// Environment variable: directory of the packages; set by xtask.
pub const PACKAGES_VARIABLE: &str = "PERILOG_PACKAGES";

/// Names of the product's packages.
const PRODUCT: [&str; 4] = ["perilog", "perilog-agent", "perilog-controller", "perilog-flux"];
/// Directory on a node to which a test copies packages.
const HANDED: &str = "/root/packages";
/// Time limit for apt-get. dpkg unpacks and configures in seconds; a postinst that waited for a script would never end.
const APT: Duration = Duration::from_secs(300);

/// Version of the packages that a test installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The packages of this source tree.
    Current,
    /// The packages of an earlier commit, with that commit's store tables and messages.
    Earlier,
}

/// Returns the path of a package on this machine. `name` is for example `perilog-agent`; `extension` is `deb` or `rpm`.
pub fn package(release: Release, name: &str, extension: &str) -> Result<PathBuf> {
    let Some(directory) = std::env::var_os(PACKAGES_VARIABLE).map(PathBuf::from) else {
        bail!(
            "there are no packages to install: `cargo xtask test packages` makes them and names their directory in \
             {PACKAGES_VARIABLE}"
        )
    };
    let directory = match release {
        Release::Current => directory,
        Release::Earlier => directory.join("earlier"),
    };
    let begins = format!("{name}{}", if extension == "deb" { "_" } else { "-0" });
    let entries = std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
    let found = entries.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&begins) && path.extension().is_some_and(|found| found == extension)
    });
    found.with_context(|| format!("no package {begins}*.{extension} in {}", directory.display()))
}

impl Node {
    /// Copies a package to the node; returns its path there.
    pub fn hand_over(&self, release: Release, name: &str, extension: &str) -> Result<String> {
        let path = package(release, name, extension)?;
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let there = format!("{HANDED}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        self.write_file(&there, bytes)?;
        Ok(there)
    }

    /// Copies all packages of the product of this kind (`deb`, `rpm`) to the node; returns their paths there.
    pub fn hand_over_all(&self, release: Release, extension: &str) -> Result<Vec<String>> {
        PRODUCT.iter().map(|name| self.hand_over(release, name, extension)).collect()
    }

    /// Installs or upgrades packages (.deb) on the node, without a network; returns the output of apt-get.
    pub fn install(&self, release: Release, names: &[&str]) -> Result<String> {
        let files = names.iter().map(|name| self.hand_over(release, name, "deb")).collect::<Result<Vec<_>>>()?;
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        self.apt(&[&["install"][..], &files].concat())?.ok()
    }

    /// Runs apt-get(8) unattended; the caller judges the status.
    pub fn apt(&self, arguments: &[&str]) -> Result<Output> {
        // Images of containers forbid packages to start anything; a node is a machine.
        // man-db would index all manual pages of this machine after each package, for half a minute.
        self.sh("rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update")?;
        // Skips the package lists: reading the lists takes longest and is useless without a network. A node's disk need
        // not survive a power failure of this machine, so fsync is off.
        let apt = [
            "env",
            "DEBIAN_FRONTEND=noninteractive",
            "apt-get",
            "-q",
            "-y",
            "--no-install-recommends",
            "-oDir::State::lists=/run/no-lists",
            "-oDpkg::Options::=--force-unsafe-io",
        ];
        let output = self.run_within(APT, &[&apt[..], arguments].concat())?;
        ensure!(output.code() != Some(124), "{output}");
        Ok(output)
    }
}
