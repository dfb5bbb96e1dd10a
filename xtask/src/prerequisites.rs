//! Prerequisites of the system before a build, and their installation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::dist::Kind;
use crate::{cargo, privilege, stages::print_line};

/// Prerequisite: any one of these files or programs, and the packages that provide one.
struct Need {
    any: &'static [&'static str],
    debian: &'static str,
    fedora: &'static str,
}

const fn need(any: &'static [&'static str], debian: &'static str, fedora: &'static str) -> Need {
    Need { any, debian, fedora }
}

/// Prerequisites of nodes: for demos, benches and tests.
const NODES: [Need; 9] = [
    need(&["/usr/lib/systemd/systemd"], "systemd", "systemd"),
    need(&["dbus-daemon", "dbus-broker-launch"], "dbus", "dbus-daemon"),
    need(&["ip"], "iproute2", "iproute"),
    need(&["nsenter"], "util-linux", "util-linux"),
    need(&["unshare"], "util-linux", "util-linux"),
    need(&["setpriv"], "util-linux", "util-linux"),
    need(&["find"], "findutils", "findutils"),
    need(&["awk"], "mawk", "gawk"),
    // The store is SQLite, and TLS is ring: both are built from C.
    need(&["cc"], "gcc libc6-dev", "gcc"),
];

/// Prerequisites of the tests, in addition to those of the nodes.
const TESTS: [Need; 33] = [
    // The test of dnf installs the .rpm files into a root.
    need(&["dnf"], "dnf", "dnf"),
    // The tests call the daemons' sockets in plain Python, and read the store.
    need(&["python3"], "python3", "python3"),
    need(&["sqlite3"], "sqlite3", "sqlite"),
    // The controller's figures and the alert rules are shown to Prometheus' own tool.
    need(&["promtool"], "prometheus", "golang-github-prometheus"),
    // The controller's page is shown to a browser without a screen.
    need(&["chromium", "chromium-browser"], "chromium", "chromium"),
    need(&["chromedriver"], "chromium-driver", "chromedriver"),
    // The hooks are tested with the real Slurm.
    need(&["slurmctld"], "slurmctld", "slurm-slurmctld"),
    need(&["slurmd"], "slurmd slurm-client", "slurm-slurmd slurm"),
    need(&["munged"], "munge", "munge"),
    need(&["pgrep"], "procps", "procps-ng"),
    // Judges of the manual pages and completions that packages install.
    need(&["mandoc"], "mandoc", "mandoc"),
    need(&["groff"], "groff-base", "groff-base"),
    need(&["zsh"], "zsh", "zsh"),
    need(&["fish"], "fish", "fish"),
    // Judges of the scripts and of the Python module that packages install.
    need(&["shellcheck"], "shellcheck", "ShellCheck"),
    need(&["mypy"], "mypy", "python3-mypy"),
    // `perilog -H` is tested with the real ssh and sshd.
    need(&["sshd"], "openssh-server", "openssh-server"),
    need(&["ssh-keygen"], "openssh-client", "openssh-clients"),
    // Judge of what verbs print, for the python3 that nodes have.
    need(&["/usr/bin/jsonschema"], "python3-jsonschema", "python3-jsonschema"),
    // The role for Ansible runs on nodes; its judges. 30 MiB with all that they need.
    need(&["ansible-playbook"], "ansible-core", "ansible-core"),
    need(&["ansible-lint"], "ansible-lint", "python3-ansible-lint"),
    // A prolog mounts a file system of FUSE.
    need(&["bindfs"], "bindfs", "bindfs"),
    // Scripts call su and runuser on nodes, whose sessions logind moves into scopes of their own, as on any host.
    need(&PAM_SYSTEMD, "libpam-systemd", "systemd-pam"),
    // Two hosts for the controller: the real Pacemaker moves the controller with a disk and an address.
    need(&["pacemakerd"], "pacemaker pacemaker-cli-utils", "pacemaker"),
    need(&["corosync"], "corosync", "corosync"),
    need(&["crm"], "crmsh", "crmsh"),
    need(&["/usr/lib/ocf/resource.d/heartbeat/Filesystem"], "resource-agents", "resource-agents"),
    need(&["/usr/lib/ocf/resource.d/pacemaker/ping"], "pacemaker-resource-agents", "pacemaker"),
    // Programs that these resource agents call: without one, an agent says "not installed".
    need(&["modprobe"], "kmod", "kmod"),
    need(&["fuser"], "psmisc", "psmisc"),
    need(&["ping"], "iputils-ping", "iputils"),
    need(&["mkfs.ext4"], "e2fsprogs", "e2fsprogs"),
    need(&["losetup"], "mount", "util-linux"),
];

/// The PAM module of logind's sessions, where Debian (by architecture) and Fedora have it.
const PAM_SYSTEMD: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/security/pam_systemd.so",
    "/usr/lib/aarch64-linux-gnu/security/pam_systemd.so",
    "/usr/lib64/security/pam_systemd.so",
];

/// Prerequisites to collect the source files for a package, .deb or .rpm: git lists the files, tar packs them.
const SOURCES: [Need; 2] = [need(&["git"], "git", "git"), need(&["tar"], "tar", "tar")];

/// Prerequisites to make and check .deb.
const DEB: [Need; 4] = [
    need(&["dpkg-buildpackage"], "dpkg-dev", "dpkg-dev"),
    need(&["dh"], "debhelper", "debhelper"),
    need(&["strip"], "binutils", "binutils"),
    need(&["lintian"], "lintian", "lintian"),
];

/// Prerequisites to make and check .rpm. Debian has packages of them, too, so it can make both kinds.
const RPM: [Need; 3] = [
    need(&["rpmbuild"], "rpm", "rpm-build"),
    need(&["rpmlint"], "rpmlint", "rpmlint"),
    // rpmlint reads the package's archive with cpio.
    need(&["cpio"], "cpio", "cpio"),
];

/// Prerequisites to make roots of other distributions, and to build programs for systems older than this one.
const ROOTS: [Need; 2] = [need(&["mmdebstrap"], "mmdebstrap", "mmdebstrap"), need(&["zstd"], "zstd", "zstd")];

/// Disk space in `target` that a whole build of the tests takes, in MiB.
const BUILD_MIB: u64 = 10 * 1024;
/// Disk space that packages and nodes of the tests take beside the build, in MiB.
const NODES_MIB: u64 = 2 * 1024;

/// Installs missing prerequisites of nodes, after printing their names; then checks the features of the kernel that no
/// package provides.
pub(crate) fn ensure_nodes() -> Result<()> {
    privilege::obtain()?;
    ensure_there(&[&NODES])?;
    kernel()
}

/// Installs missing prerequisites of the tests, including those of [`ensure_nodes`].
pub(crate) fn ensure_tests() -> Result<()> {
    room()?;
    privilege::obtain()?;
    rust_components()?;
    match packages_are_tested() {
        true => ensure_there(&[&NODES, &TESTS, &SOURCES, &DEB, &RPM, &ROOTS])?,
        false => ensure_there(&[&NODES, &TESTS])?,
    }
    kernel()
}

/// Returns `true` if tests can install packages here: the nodes run this machine's system, and the tests use apt.
pub(crate) fn packages_are_tested() -> bool {
    is_there(&["apt-get"])
}

/// Returns `true` if roots of Debian can be made here: apt fetches their packages.
pub(crate) fn makes_roots() -> bool {
    is_there(&["apt-get"])
}

/// Installs missing prerequisites for making packages of these kinds, after printing their names.
pub(crate) fn ensure_packagers(kinds: &[Kind]) -> Result<()> {
    let of = |kind: &Kind| -> &'static [Need] {
        match kind {
            Kind::Deb => &DEB,
            Kind::Rpm => &RPM,
        }
    };
    let roots = if makes_roots() { &ROOTS[..] } else { &[] };
    let needs: Vec<&[Need]> = [&SOURCES[..], roots].into_iter().chain(kinds.iter().map(of)).collect();
    ensure_there(&needs)
}

fn ensure_there(needs: &[&[Need]]) -> Result<()> {
    let missing: Vec<&Need> = needs.iter().copied().flatten().filter(|need| !is_there(need.any)).collect();
    if !missing.is_empty() {
        install(&missing)?;
        let still: Vec<&str> = missing.iter().filter(|need| !is_there(need.any)).map(|need| need.any[0]).collect();
        ensure!(still.is_empty(), "installed, and still not there: {}", still.join(", "));
    }
    Ok(())
}

fn is_there(any: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Not in every user's PATH, but in root's.
    directories.extend(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from));
    any.iter().any(|name| match name.starts_with('/') {
        true => Path::new(name).exists(),
        false => directories.iter().any(|directory| directory.join(name).is_file()),
    })
}

fn install(missing: &[&Need]) -> Result<()> {
    let tools: Vec<&str> = missing.iter().map(|need| need.any[0]).collect();
    print_line(&format!("this system lacks: {}", tools.join(", ")))?;
    let packages = |of: fn(&Need) -> &'static str| -> Vec<&'static str> {
        let mut packages: Vec<_> = missing.iter().flat_map(|need| of(need).split(' ')).collect();
        packages.sort_unstable();
        packages.dedup();
        packages
    };
    if is_there(&["apt-get"]) {
        as_root("apt-get", &["update", "-q"], &[])?;
        as_root("apt-get", &["install", "-q", "-y", "--no-install-recommends"], &packages(|need| need.debian))
    } else if is_there(&["dnf"]) {
        as_root("dnf", &["install", "-y"], &packages(|need| need.fedora))
    } else {
        bail!("neither apt-get nor dnf is here: install what brings {}", tools.join(", "))
    }
}

fn as_root(program: &str, arguments: &[&str], packages: &[&str]) -> Result<()> {
    print_line(&format!("{program} {} {}", arguments.join(" "), packages.join(" ")))?;
    let mut command = privilege::command(Path::new("env"))?;
    command.arg("DEBIAN_FRONTEND=noninteractive").arg(program).args(arguments).args(packages);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("running {program}"))?;
    ensure!(status.success(), "`{program} {}` failed", arguments.join(" "));
    Ok(())
}

/// Checks that the disk has space for a build, and for the packages and nodes of the tests: a compiler without space
/// ends with a bus error.
fn room() -> Result<()> {
    let target = cargo::root().join("target");
    std::fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
    let kib = |program: &str, arguments: &[&str], field: usize| -> Result<u64> {
        let output = Command::new(program).args(arguments).arg(&target).output();
        let output = output.with_context(|| format!("running {program}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let word = text.lines().last().and_then(|line| line.split_whitespace().nth(field));
        word.and_then(|word| word.parse().ok()).with_context(|| format!("`{program}` of {}: {text}", target.display()))
    };
    let free = kib("df", &["-Pk"], 3)?;
    let used = kib("du", &["-sk"], 0)?;
    let lacks = lacking_mib(free, used);
    ensure!(lacks == 0, "{} lacks {lacks} MiB of room for the build and the nodes: free some", target.display());
    Ok(())
}

/// Returns the disk space in MiB that the tests lack. `free`: free space of the disk, `built`: size of the present
/// build, both in KiB.
fn lacking_mib(free: u64, built: u64) -> u64 {
    let missing_of_build = (BUILD_MIB * 1024).saturating_sub(built);
    (missing_of_build + NODES_MIB * 1024).saturating_sub(free).div_ceil(1024)
}

fn rust_components() -> Result<()> {
    for (component, subcommand) in [("clippy", "clippy"), ("rustfmt", "fmt")] {
        let mut command = cargo::command();
        let status = command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let there = status.is_ok_and(|status| status.success());
        ensure!(there, "no `cargo {subcommand}`: `rustup component add {component}` brings it");
    }
    Ok(())
}

/// Checks the kernel for overlays, cgroup v2, and the right to make namespaces.
fn kernel() -> Result<()> {
    let has = |kind: &str| -> Result<bool> {
        let kinds = std::fs::read_to_string("/proc/filesystems").context("reading /proc/filesystems")?;
        Ok(kinds.lines().any(|line| line.split_whitespace().last() == Some(kind)))
    };
    if !has("overlay")? {
        // Loads a module that may be absent; the check below shows whether that helped.
        let _ = privilege::command(Path::new("modprobe"))?.arg("overlay").stderr(Stdio::null()).status();
    }
    for kind in ["overlay", "cgroup2"] {
        ensure!(has(kind)?, "this kernel has no {kind} file system, which the nodes need");
    }
    let mut command: Command = privilege::command(Path::new("unshare"))?;
    let output = command.args(["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "true"]).output();
    let output = output.context("running unshare")?;
    ensure!(
        output.status.success(),
        "root may not make namespaces here ({}): a container needs to be privileged for this",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_is_there_needs_less_room() {
        let gib = 1024 * 1024;
        assert_eq!(lacking_mib(12 * gib, 0), 0);
        assert_eq!(lacking_mib(3 * gib, 0), 9 * 1024);
        assert_eq!(lacking_mib(3 * gib, 9 * gib), 0);
        assert_eq!(lacking_mib(3 * gib, 20 * gib), 0);
        assert_eq!(lacking_mib(2 * gib - 1, 20 * gib), 1);
    }
}
