//! Roots of other distributions, from which nodes of the tests boot. mmdebstrap(1) makes them, and `target/roots`
//! keeps each as one archive.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::stages::print_line;
use crate::{cargo, privilege};

/// Environment variable: mirror of Debian's packages, instead of this machine's own, or of the one that mmdebstrap
/// knows.
const MIRROR_VARIABLE: &str = "PERILOG_MIRROR";
/// Packages of a root, beside Debian's essential ones and apt: what nodes and the tests' commands on them need, and
/// Slurm.
const PACKAGES: &str = "systemd,libpam-systemd,dbus,iproute2,procps,python3,sqlite3,munge,slurmctld,slurmd,\
    slurm-client,bindfs";
/// Time limit in seconds for making a root, which takes half a minute: a mirror that does not answer must not hang CI.
const LIMIT_SECONDS: &str = "300";
/// mmdebstrap's own hook for a root whose /lib is a link to /usr/lib.
const MERGED_USR: &str = "/usr/share/mmdebstrap/hooks/merged-usr/setup00.sh";
/// Keeps what the packages of the C library and the compiler's say of their symbols, which dpkg-shlibdeps reads, as
/// /usr/symbols.
const KEEP_SYMBOLS: &str = concat!(
    r#"for name in libc6 libgcc-s1; do dpkg-deb --ctrl-tarfile "$1/var/cache/apt/archives/$name"_*.deb | "#,
    r#"tar -xO ./symbols; done >"$1/usr/symbols""#
);
/// Status of timeout(1) for a command that passed its limit.
const TIMED_OUT: i32 = 124;
/// Age at which an archive of a distribution that changes every day is made again.
const STALE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Texts of apt by which a mirror that is not reached is known from a mirror that has not what was asked for.
const UNREACHED: [&str; 7] = [
    // mmdebstrap keeps to itself what apt printed before this.
    "E: apt-get update ",
    "Could not resolve",
    "Temporary failure resolving",
    "Could not connect",
    "Unable to connect",
    "Connection failed",
    "connection timed out",
];

/// A release of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    Bullseye,
    Bookworm,
    Trixie,
    Sid,
}

impl Release {
    pub(crate) const ALL: [Self; 4] = [Self::Bullseye, Self::Bookworm, Self::Trixie, Self::Sid];
    /// The oldest release for which there are packages.
    pub(crate) const OLDEST: Self = Self::Bullseye;
    pub(crate) const NEWEST: Self = Self::Sid;

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|release| release.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bullseye => "bullseye",
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Sid => "sid",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Result of mmdebstrap for a release.
#[derive(Debug, Clone, Copy)]
struct Content {
    /// Name of the archive.
    name: &'static str,
    release: Release,
    /// Value of `--variant`.
    variant: &'static str,
    /// Value of `--include`.
    packages: &'static str,
}

/// Returns the archive of a root of this release, from which nodes boot; makes it first if there is none. `None`: its
/// mirror was not reached, which this function has reported.
pub(crate) fn archive(release: Release) -> Result<Option<PathBuf>> {
    make(Content { name: release.name(), release, variant: "minbase", packages: PACKAGES })
}

/// Returns the archive of the files of these packages of the oldest release, for building.
/// `None`: as for [`archive`].
pub(crate) fn c_library(packages: &'static str) -> Result<Option<PathBuf>> {
    make(Content { name: "c-library", release: Release::OLDEST, variant: "extract", packages })
}

/// Returns the directory of roots.
pub(crate) fn directory() -> Result<PathBuf> {
    Ok(cargo::target()?.join("roots"))
}

fn make(content: Content) -> Result<Option<PathBuf>> {
    let directory = directory()?;
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let archive = directory.join(format!("{}.tar.zst", content.name));
    // What an archive was made of is beside it.
    let (beside, wanted) = (archive.with_extension("made"), format!("{content:?}\n"));
    let same = std::fs::read_to_string(&beside).is_ok_and(|made| made == wanted);
    let there = archive.metadata().ok().filter(|_| same);
    let age = there.and_then(|archive| archive.modified().ok()).and_then(|time| time.elapsed().ok());
    if age.is_some_and(|age| content.release != Release::NEWEST || age < STALE) {
        return Ok(Some(archive));
    }
    print_line(&format!("making {}: mmdebstrap, {}", archive.display(), content.release))?;
    let new = archive.with_extension("new");
    match debootstrap(content, &new)? {
        None => {
            std::fs::rename(&new, &archive).with_context(|| format!("making {}", archive.display()))?;
            std::fs::write(&beside, wanted).with_context(|| format!("writing {}", beside.display()))?;
            Ok(Some(archive))
        }
        Some(why) if age.is_some() => {
            print_line(&format!("the mirror of {} is not reached, its root is a week old: {why}", content.release))?;
            Ok(Some(archive))
        }
        Some(why) => {
            print_line(&format!("the mirror of {} is not reached: {why}", content.release))?;
            Ok(None)
        }
    }
}

/// Makes an archive by mmdebstrap as root, compressed as this user. Returns why the mirror is not reached; `None`: the
/// archive is made.
fn debootstrap(content: Content, archive: &Path) -> Result<Option<String>> {
    let mut command = privilege::command(Path::new("timeout"))?;
    command.args(["--foreground", "-k", "10", LIMIT_SECONDS, "mmdebstrap", "--quiet", "--mode=root", "--format=tar"]);
    command.arg(format!("--variant={}", content.variant)).arg(format!("--include={}", content.packages));
    // What an old release says of its own validity has passed. A mirror that is away is tried for a minute, not six.
    command.args(["--aptopt=Acquire::Check-Valid-Until \"false\"", "--aptopt=Acquire::http::Timeout \"20\""]);
    if content.release == Release::Bullseye && content.variant == "minbase" {
        // Its installer makes /lib a link to /usr/lib, as later releases do by their packages.
        command.arg(format!("--setup-hook={MERGED_USR}"));
    }
    if content.variant == "extract" {
        command.arg(format!("--extract-hook={KEEP_SYMBOLS}"));
    }
    command.args([content.release.name(), "-"]).args(mirror());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("running mmdebstrap")?;
    let (out, mut err) = (child.stdout.take().context("its output")?, child.stderr.take().context("its errors")?);
    let file = File::create(archive).with_context(|| format!("making {}", archive.display()))?;
    let mut zstd = Command::new("zstd");
    let mut packing = zstd.args(["-q", "-3", "-c"]).stdin(out).stdout(file).spawn().context("running zstd")?;
    let mut message = String::new();
    err.read_to_string(&mut message).context("reading what mmdebstrap says")?;
    let (made, packed) = (child.wait()?, packing.wait()?);
    if made.success() {
        ensure!(packed.success(), "zstd: {packed}");
        return Ok(None);
    }
    if made.code() == Some(TIMED_OUT) {
        return Ok(Some(format!("no root within {LIMIT_SECONDS} s")));
    }
    match unreached(&message) {
        Some(line) => Ok(Some(line.to_owned())),
        None => bail!("mmdebstrap of {}: {made}\n{}", content.release, message.trim()),
    }
}

/// Returns the mirror from which roots are made: that of the variable, or that of this machine's own apt. Without an
/// archive of security updates: what an old release has there is no longer whole.
fn mirror() -> Option<String> {
    if let Ok(mirror) = std::env::var(MIRROR_VARIABLE) {
        return Some(mirror);
    }
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]);
    let output = command.stderr(Stdio::null()).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().find_map(|line| line.strip_prefix("Debian ")).map(str::to_owned)
}

/// Returns the line in which apt says that it does not reach a mirror.
fn unreached(message: &str) -> Option<&str> {
    message.lines().map(str::trim).find(|line| UNREACHED.iter().any(|text| line.contains(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_that_is_away_is_known_from_one_that_lacks_something() {
        let away = "I: running apt-get update...\nErr:1 http://mirror.invalid sid InRelease\n  Could not resolve \
                    'mirror.invalid'\nE: apt-get update failed";
        assert_eq!(unreached(away), Some("Could not resolve 'mirror.invalid'"));
        assert!(unreached("E: apt-get update --error-on=any failed\nE: mmdebstrap failed to run\n").is_some());
        assert_eq!(unreached("E: Unable to locate package slurmd\n"), None);
    }

    #[test]
    fn releases_have_their_names() {
        for release in Release::ALL {
            assert_eq!(Release::named(release.name()), Some(release));
        }
        assert_eq!(Release::named("buster"), None);
    }
}
