//! `cargo xtask release`: packages, their sums and the notes of the present version in `target/release-VERSION`, and
//! the tag `vVERSION`. It builds the packages twice, in two clones, and tags nothing unless they are equal byte for
//! byte (<https://reproducible-builds.org/docs/>).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::stages::print_line;
use crate::{cargo, dist, git, tidy};

const CHANGELOG: &str = "CHANGELOG.md";
/// Files that name the version beside `Cargo.toml`, each with the text before it.
const VERSIONS: [(&str, &str); 2] =
    [("packaging/deb/changelog", "perilog ("), ("packaging/rpm/perilog.spec", "Version:        ")];
/// The two clones, with paths of different lengths: a path that gets into a program then changes its size, too.
const CLONES: [&str; 2] = ["one", "another-with-a-longer-path"];

/// Makes the release of the present version. Never returns `false`: failures are errors.
pub(crate) fn run() -> Result<bool> {
    let version = env!("CARGO_PKG_VERSION");
    let (root, tag) = (cargo::root(), format!("v{version}"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
    let notes = notes(&read(CHANGELOG)?, version)?.to_owned();
    for (file, before) in VERSIONS {
        ensure!(read(file)?.contains(&format!("{before}{version}")), "{file} names another version than {version}");
    }
    tidy::check_release(&root, version)?;
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "a release is of a commit, and the tree has changes:\n{changed}");
    ensure!(git(&["tag", "--list", &tag])?.is_empty(), "the tag {tag} exists");

    let directory = cargo::target()?.join(format!("release-{version}"));
    if directory.exists() {
        std::fs::remove_dir_all(&directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let mut built = Vec::new();
    for clone in CLONES {
        built.push(packages(&root, &directory.join(clone))?);
    }
    let [first, second] = built.as_slice() else { bail!("not two builds") };
    compare(first, second)?;

    let mut names = Vec::new();
    for package in first {
        let name = package.file_name().context("a package's name")?;
        std::fs::copy(package, directory.join(name)).with_context(|| format!("copying {}", package.display()))?;
        names.push(name.to_owned());
    }
    let sums = dist::succeed(Command::new("sha256sum").args(&names).current_dir(&directory))?;
    let write =
        |name: &str, text: &str| std::fs::write(directory.join(name), text).with_context(|| format!("writing {name}"));
    write("SHA256SUMS", &sums)?;
    write("NOTES.md", &notes)?;
    for clone in CLONES {
        std::fs::remove_dir_all(directory.join(clone)).with_context(|| format!("removing {clone}"))?;
    }
    let notes = directory.join("NOTES.md");
    git(&["tag", "--annotate", "--cleanup=verbatim", "--file", &notes.display().to_string(), &tag])?;
    print_line(&format!("{sums}{} packages, twice the same, and {tag}: {}", names.len(), directory.display()))?;
    print_line(&format!("to publish it: git push origin {tag}"))?;
    Ok(true)
}

/// Returns the section of the changelog about this version, without its heading.
///
/// # Errors
/// There is no such section, it has no date (`## [0.1.0] - 2026-01-31`), or it is empty.
fn notes<'a>(changelog: &'a str, version: &str) -> Result<&'a str> {
    let heading = format!("## [{version}]");
    let start = changelog.find(&heading).with_context(|| format!("{CHANGELOG} has no section `{heading} - DATE`"))?;
    let section = &changelog[start + heading.len()..];
    let (date, text) = section.split_once('\n').unwrap_or((section, ""));
    let is_date = |date: &str| {
        let parts: Vec<&str> = date.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        lengths == [4, 2, 2] && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let dated = date.strip_prefix(" - ").map(str::trim_end).is_some_and(is_date);
    ensure!(dated, "{CHANGELOG}: `{heading}` has no date: {heading} - YYYY-MM-DD");
    let text = text.find("\n## ").map_or(text, |end| &text[..=end]).trim();
    ensure!(!text.is_empty(), "{CHANGELOG}: `{heading}` says nothing");
    Ok(text)
}

/// Clones the source tree to `clone`, and makes its packages there; returns their paths, sorted.
fn packages(root: &Path, clone: &Path) -> Result<Vec<PathBuf>> {
    print_line(&format!("== packages in {}", clone.display()))?;
    dist::succeed(Command::new("git").args(["clone", "--quiet"]).arg(root).arg(clone))?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["xtask", "dist"]).current_dir(clone).env_remove("CARGO_TARGET_DIR").stdin(Stdio::null());
    let status = command.status().context("running cargo")?;
    ensure!(status.success(), "the packages cannot be made in {}", clone.display());
    let made = clone.join("target/dist");
    let entries = std::fs::read_dir(&made).with_context(|| format!("reading {}", made.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut packages = paths.with_context(|| format!("reading {}", made.display()))?;
    packages.retain(|path| path.extension().is_some_and(|end| end == "deb" || end == "rpm"));
    packages.sort();
    Ok(packages)
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

fn git(arguments: &[&str]) -> Result<String> {
    dist::succeed(git::command().args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_the_section_of_the_version() {
        let of = |text: &str| notes(text, "0.1.0").map(str::to_owned).map_err(|error| error.to_string());
        let whole =
            "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-30\n\n### Added\n- a\n\n## [0.0.1] - 2026-01-01\n";
        assert_eq!(of(whole).unwrap(), "### Added\n- a");
        for (text, expected) in [
            ("## [Unreleased]\n- a\n", "no section `## [0.1.0] - DATE`"),
            ("## [0.1.0]\n- a\n", "has no date"),
            ("## [0.1.0] - soon\n- a\n", "has no date"),
            ("## [0.1.0] - 2026-11-30\n\n## [0.0.1] - 2026-01-01\n- a\n", "says nothing"),
        ] {
            assert!(of(text).unwrap_err().contains(expected), "{text:?}: {:?}", of(text));
        }
    }

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
}
