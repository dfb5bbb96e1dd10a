//! Two builds of the packages of one commit, and their comparison
//! (<https://reproducible-builds.org/docs/>). Each is made in a clone of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::stages::print_line;
use crate::{cargo, dist, git};

/// The two clones, with paths of different lengths: a path that gets into a program then changes its size, too.
const CLONES: [&str; 2] = ["one", "another-with-a-longer-path"];
/// Another name of cargo's directory, for the second build: another user has another one.
const HOME: &str = "cargo-of-another-user";
/// File of the sums of the packages.
const SUMS: &str = "SHA256SUMS";
/// File that says of what packages were made: the commit, then the tools. Written last, so that what is there is whole.
const BUILT: &str = "BUILT";
/// Tools on whose versions the bytes of packages depend, each with the option that prints its version.
const TOOLS: [(&str, &str); 5] =
    [("rustc", "-V"), ("cc", "--version"), ("ld", "--version"), ("dpkg-deb", "--version"), ("rpmbuild", "--version")];
/// Setting of git for a source tree that is another user's, as in `git::at`, which git hands to no child.
const ANY_OWNER: &str = "safe.directory=*";
/// Variables of the environment that change where packages are made, or which time they get.
const OWN: [&str; 3] = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", git::EPOCH];

/// Makes the packages of a commit of the source tree at `root` twice, and puts them and their sums into `directory`;
/// returns the sums.
///
/// # Errors
/// The packages are not the same byte for byte: the clones stay for a look at them.
pub(super) fn make(root: &Path, commit: &str, directory: &Path) -> Result<String> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let (own, another) = (cargo::home()?, directory.join(HOME));
    std::os::unix::fs::symlink(&own, &another).with_context(|| format!("linking {}", another.display()))?;
    let mut built = Vec::new();
    for (clone, home) in CLONES.iter().zip([&own, &another]) {
        built.push(packages(root, commit, &directory.join(clone), home)?);
    }
    let [first, second] = built.as_slice() else { bail!("not two builds") };
    compare(first, second)?;
    let sums = keep(first, directory)?;
    let mut text = format!("commit {commit}\n");
    for (tool, option) in TOOLS {
        let version = dist::succeed(Command::new(tool).arg(option).env("LC_ALL", "C"))?;
        text.push_str(&format!("{}\n", version.lines().next().unwrap_or_default()));
    }
    for clone in CLONES {
        std::fs::remove_dir_all(directory.join(clone)).with_context(|| format!("removing {clone}"))?;
    }
    std::fs::remove_file(&another).with_context(|| format!("removing {}", another.display()))?;
    std::fs::write(directory.join(BUILT), text).with_context(|| format!("writing {BUILT}"))?;
    Ok(sums)
}

/// Returns the sums of the packages that an earlier run made of this commit. `None`: it made none, made them of another
/// commit, or they have changed since.
pub(super) fn sums(directory: &Path, commit: &str) -> Option<String> {
    let built = std::fs::read_to_string(directory.join(BUILT)).ok()?;
    if built.lines().next()? != format!("commit {commit}") {
        return None;
    }
    dist::succeed(Command::new("sha256sum").args(["--check", "--strict", SUMS]).current_dir(directory)).ok()?;
    std::fs::read_to_string(directory.join(SUMS)).ok()
}

/// Copies packages to `directory` with a file of their sums; returns these.
fn keep(packages: &[PathBuf], directory: &Path) -> Result<String> {
    let mut names: Vec<OsString> = Vec::new();
    for package in packages {
        let name = package.file_name().context("a package's name")?;
        std::fs::copy(package, directory.join(name)).with_context(|| format!("copying {}", package.display()))?;
        names.push(name.to_owned());
    }
    let sums = dist::succeed(Command::new("sha256sum").args(&names).current_dir(directory))?;
    std::fs::write(directory.join(SUMS), &sums).with_context(|| format!("writing {SUMS}"))?;
    Ok(sums)
}

/// Clones the source tree at this commit to `clone`, and makes its packages there with this directory of cargo; returns
/// their paths, sorted.
fn packages(root: &Path, commit: &str, clone: &Path, home: &Path) -> Result<Vec<PathBuf>> {
    print_line(&format!("== packages in {}", clone.display()))?;
    for mut command in cloning(root, commit, clone) {
        dist::succeed(&mut command)?;
    }
    let status = packing(clone, home).status().context("running cargo")?;
    ensure!(status.success(), "the packages cannot be made in {}", clone.display());
    let made = clone.join("target/dist");
    let entries = std::fs::read_dir(&made).with_context(|| format!("reading {}", made.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut packages = paths.with_context(|| format!("reading {}", made.display()))?;
    packages.retain(|path| path.extension().is_some_and(|end| end == "deb" || end == "rpm"));
    packages.sort();
    Ok(packages)
}

/// Returns the commands that clone the source tree at `root` to `clone`, at this commit.
fn cloning(root: &Path, commit: &str, clone: &Path) -> [Command; 2] {
    let mut git = Command::new("git");
    git.args(["-c", ANY_OWNER, "clone", "--quiet", "--no-checkout", "--upload-pack"]);
    git.arg(format!("git -c '{ANY_OWNER}' upload-pack")).arg(root).arg(clone);
    let mut checkout = git::at(clone);
    checkout.args(["checkout", "--quiet", "--detach", commit]);
    [git, checkout]
}

/// Returns the command that makes the packages of a clone.
fn packing(clone: &Path, home: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["xtask", "dist", dist::PORTABLE]).current_dir(clone).env("CARGO_HOME", home).stdin(Stdio::null());
    for name in OWN {
        command.env_remove(name);
    }
    command
}

/// Compares the packages of two builds byte for byte.
///
/// # Errors
/// Names each package that differs, or that one build lacks.
fn compare(first: &[PathBuf], second: &[PathBuf]) -> Result<()> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let names = |packages: &[PathBuf]| packages.iter().map(|path| name(path)).collect::<Vec<_>>();
    ensure!(!first.is_empty() && names(first) == names(second), "{:?}, then {:?}", names(first), names(second));
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    let mut differ = Vec::new();
    for (one, two) in first.iter().zip(second) {
        if read(one)? != read(two)? {
            differ.push(format!("diffoscope {} {}", one.display(), two.display()));
        }
    }
    ensure!(differ.is_empty(), "not reproducible; to see what differs:\n{}", differ.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::Repository;
    use super::*;

    #[test]
    fn packages_that_differ_or_are_missing_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = [put("one/a.deb", "a"), put("one/b.rpm", "b")];
        let same = [put("two/a.deb", "a"), put("two/b.rpm", "b")];
        let other = [put("three/a.deb", "a"), put("three/b.rpm", "x")];
        compare(&first, &same).unwrap();
        let error = compare(&first, &other).unwrap_err().to_string();
        assert!(error.contains("three/b.rpm") && !error.contains("a.deb"), "{error}");
        assert!(compare(&first, &same[..1]).is_err() && compare(&[], &[]).is_err());
    }

    #[test]
    fn a_clone_has_the_commit_although_head_moved_and_another_user_owns_the_tree() {
        let (repository, directory) = (Repository::make(), tempfile::tempdir().unwrap());
        let (first, clone) = (repository.git(&["rev-parse", "HEAD^"]), directory.path().join("clone"));
        for mut command in cloning(repository.path(), &first, &clone) {
            // git's own tests have this variable: the tree is then as one of another user.
            dist::succeed(command.env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")).unwrap();
        }
        assert_eq!(std::fs::read_to_string(clone.join("a")).unwrap(), "first");
        assert_eq!(std::fs::read_to_string(repository.path().join("a")).unwrap(), "second");
    }

    #[test]
    fn a_clone_makes_portable_packages_with_the_time_of_its_commit() {
        let command = packing(Path::new("/w/one"), Path::new("/w/home"));
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["xtask", "dist", "--portable"]);
        assert_eq!(command.get_current_dir(), Some(Path::new("/w/one")));
        let set: Vec<_> = command.get_envs().map(|(name, value)| (name.to_str().unwrap(), value.is_some())).collect();
        let expected = [
            ("CARGO_BUILD_TARGET_DIR", false),
            ("CARGO_HOME", true),
            ("CARGO_TARGET_DIR", false),
            ("SOURCE_DATE_EPOCH", false),
        ];
        assert_eq!(set, expected);
    }

    #[test]
    fn packages_that_are_there_are_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a.deb"), directory.path().join("to"));
        std::fs::create_dir(&to).unwrap();
        std::fs::write(&from, "a").unwrap();
        let kept = keep(&[from], &to).unwrap();
        assert!(kept.ends_with("  a.deb\n"), "{kept}");
        assert_eq!(sums(&to, "c0ffee"), None);
        std::fs::write(to.join(BUILT), "commit c0ffee\nrustc\n").unwrap();
        assert_eq!(sums(&to, "c0ffee"), Some(kept));
        assert_eq!(sums(&to, "c0ffe"), None);
        std::fs::write(to.join("a.deb"), "b").unwrap();
        assert_eq!(sums(&to, "c0ffee"), None);
    }
}
