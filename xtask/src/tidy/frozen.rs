//! Check of the interfaces that programs of a site use: what a release had is still there, with the same types.
//!
//! `schema/frozen/RELEASE/` has the Varlink interfaces, the schema of `--json` and a list of names as they were in that
//! release (`cargo xtask freeze`). A later tree may add to them. docs/compatibility.md says what may be removed when.

mod names;
mod schema;
mod varlink;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Findings;
use crate::stages::print_line;
use crate::{cargo, dist, git};

/// Folder with a folder for each release.
pub(super) const FOLDER: &str = "schema/frozen";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const CHANGELOG: &str = "CHANGELOG.md";
/// File of a release's folder with the list of names.
const NAMES: &str = "names.txt";
/// Files of a release's folder that are copies, each with the file in the tree.
const COPIES: [(&str, &str); 3] = [
    ("io.perilog.Agent.varlink", "agent/src/local/io.perilog.Agent.varlink"),
    ("io.perilog.Controller.varlink", "controller/src/api/io.perilog.Controller.varlink"),
    ("perilog.schema.json", "schema/perilog.schema.json"),
];

/// A difference from a release that programs of a site may notice.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    /// The place, such as `io.perilog.Controller.Run(timeout)` or `#/$defs/ps/properties/rows`.
    place: String,
    what: String,
}

impl Change {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<()> {
    let folder = root.join(FOLDER);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut releases = names.collect::<std::io::Result<Vec<String>>>()?;
    releases.sort();
    ensure!(!releases.is_empty(), "{FOLDER}: no release is there: cargo xtask freeze");
    let changelog = read(root, CHANGELOG)?;
    for release in releases {
        let Some(terms) = Terms::of(&release, VERSION) else {
            findings.errors.push(format!("{FOLDER}/{release}: a folder has the name of a release, such as 0.1.0"));
            continue;
        };
        let frozen = |name: &str| read(root, &format!("{FOLDER}/{release}/{name}"));
        for (name, file) in COPIES {
            let changes = compare(&frozen(name)?, &read(root, file)?).with_context(|| format!("{release}, {file}"))?;
            report(file, &release, terms, &changelog, changes, findings);
        }
        let changes = names::changes(&frozen(NAMES)?, &names::present(root)?);
        report("names", &release, terms, &changelog, changes, findings);
    }
    names::check_events(root, findings)
}

/// Compares the text of a release with the present one: both are JSON, or both Varlink.
fn compare(old: &str, new: &str) -> Result<Vec<Change>> {
    if old.trim_start().starts_with('{') {
        let [old, new] = [old, new].map(serde_json::from_str);
        return Ok(schema::changes(&old.context("the release's")?, &new.context("the present one")?));
    }
    let [old, new] = [old, new].map(varlink::Interface::parse);
    Ok(varlink::changes(&old.context("the release's")?, &new.context("the present one")?))
}

/// What a tree may change of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Terms {
    /// The release is the present version: once it has its tag, nothing.
    Present,
    /// Both have the same first two numbers: nothing.
    Patch,
    /// Both have the same first number, 1 or more: nothing, except keys that the changelog names.
    Stable,
    /// What the changelog names.
    Named,
}

impl Terms {
    /// Returns the terms between a release and the present version; `None`: one of them is no version.
    fn of(release: &str, present: &str) -> Option<Self> {
        let (old, new) = (numbers(release)?, numbers(present)?);
        Some(if old == new {
            Self::Present
        } else if old[..2] == new[..2] {
            Self::Patch
        } else if old[0] == new[0] && old[0] > 0 {
            Self::Stable
        } else {
            Self::Named
        })
    }
}

/// Returns the numbers of a version.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let numbers: Option<Vec<u32>> = version.split('.').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Reports the changes of a file that the terms do not allow.
fn report(file: &str, release: &str, terms: Terms, changelog: &str, changes: Vec<Change>, findings: &mut Findings) {
    for Change { place, what } in changes {
        let by_name = terms == Terms::Named || terms == Terms::Stable && place.starts_with(names::KEY);
        if by_name && changelog.contains(&format!("`{place}`")) {
            continue;
        }
        let otherwise = match terms {
            Terms::Present => format!("; while {release} is not released: cargo xtask freeze"),
            _ if by_name => format!(", or name `{place}` in {CHANGELOG}"),
            _ => String::new(),
        };
        findings.errors.push(format!(
            "{file}: `{place}`: {what}: programs rely on {release} ({FOLDER}/{release}, docs/compatibility.md); keep \
             it{otherwise}"
        ));
    }
}

fn read(root: &Path, name: &str) -> Result<String> {
    std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"))
}

/// `cargo xtask freeze`: writes the folder of the present version, until the version has its tag. Never returns
/// `false`: failures are errors.
pub(crate) fn freeze() -> Result<bool> {
    let tag = format!("v{VERSION}");
    let tags = dist::succeed(git::command().args(["tag", "--list", &tag]))?;
    ensure!(tags.is_empty(), "{tag} is released, and its folder does not change: set the next version first");
    let root = cargo::root();
    let folder = root.join(FOLDER).join(VERSION);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    for (name, text) in files(&root)? {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    print_line(&format!("{FOLDER}/{VERSION} has the interfaces of this tree"))?;
    Ok(true)
}

/// Checks, for a release, that the folder of its version has the interfaces of the tree.
pub(crate) fn check_release(root: &Path, version: &str) -> Result<()> {
    let stale: Vec<String> = files(root)?
        .into_iter()
        .map(|(name, text)| (PathBuf::from(FOLDER).join(version).join(name), text))
        .filter(|(path, text)| std::fs::read_to_string(root.join(path)).ok().as_ref() != Some(text))
        .map(|(path, _)| path.display().to_string())
        .collect();
    ensure!(stale.is_empty(), "{} not as this tree: cargo xtask freeze, and commit it", stale.join(", "));
    Ok(())
}

/// Returns the files that the folder of the present version has.
fn files(root: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut files = COPIES.into_iter().map(|(name, file)| Ok((name, read(root, file)?))).collect::<Result<Vec<_>>>()?;
    files.push((NAMES, names::present(root)?));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_change_goes_by_the_versions() {
        for (release, present, expect) in [
            ("0.1.0", "0.1.0", Some(Terms::Present)),
            ("0.1.0", "0.1.1", Some(Terms::Patch)),
            ("0.1.0", "0.2.0", Some(Terms::Named)),
            ("0.9.0", "1.0.0", Some(Terms::Named)),
            ("1.0.0", "1.3.0", Some(Terms::Stable)),
            ("1.3.0", "1.3.2", Some(Terms::Patch)),
            ("1.3.0", "2.0.0", Some(Terms::Named)),
            ("0.1", "0.1.0", None),
            ("names", "0.1.0", None),
        ] {
            assert_eq!(Terms::of(release, present), expect, "{release} {present}");
        }
    }

    #[test]
    fn a_change_is_reported_with_its_place_unless_the_changelog_names_it() {
        let place = "io.perilog.Agent.Status -> host";
        let named = format!("- `{place}` is gone");
        for (terms, changelog, expect) in [
            (Terms::Present, named.as_str(), Some("keep it; while 9.1.0 is not released: cargo xtask freeze")),
            (Terms::Patch, &named, Some("keep it")),
            (Terms::Stable, &named, Some("keep it")),
            (Terms::Named, "", Some("keep it, or name `io.perilog.Agent.Status -> host` in CHANGELOG.md")),
            (Terms::Named, &named, None),
        ] {
            let mut findings = Findings::default();
            report("a.varlink", "9.1.0", terms, changelog, vec![Change::new(place, "is gone")], &mut findings);
            let begin = "a.varlink: `io.perilog.Agent.Status -> host`: is gone: programs rely on 9.1.0 \
                         (schema/frozen/9.1.0, docs/compatibility.md); ";
            assert_eq!(findings.errors, expect.map(|end| format!("{begin}{end}")).into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_key_may_go_when_the_changelog_names_it() {
        for (terms, place, changelog, errors) in [
            (Terms::Stable, "key agent.toml tls.crl", "`key agent.toml tls.crl`", 0),
            (Terms::Stable, "key agent.toml tls.crl", "", 1),
            (Terms::Patch, "key agent.toml tls.crl", "`key agent.toml tls.crl`", 1),
            (Terms::Stable, "unit perilog.slice", "`unit perilog.slice`", 1),
        ] {
            let mut findings = Findings::default();
            report("names", "9.1.0", terms, changelog, vec![Change::new(place, "is gone")], &mut findings);
            assert_eq!(findings.errors.len(), errors, "{place}");
        }
    }

    /// A tree with one release: each file that is checked is there as it was frozen, and then one is changed.
    #[test]
    fn a_tree_is_compared_with_each_of_its_releases() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let interface = |name: &str| format!("interface {name}\nmethod Ps(job: ?string) -> (rows: []object)\n");
        write(COPIES[0].1, &interface("io.perilog.Agent"));
        write(COPIES[1].1, &interface("io.perilog.Controller"));
        write(COPIES[2].1, r##"{"$defs":{"ps":{"properties":{"rows":{"type":"array"}}}}}"##);
        write(CHANGELOG, "");
        names::tests::write_tree(root);
        assert!(check_release(root, VERSION).is_err());
        for (name, text) in files(root).unwrap() {
            write(&format!("{FOLDER}/{VERSION}/{name}"), &text);
        }
        let errors = || {
            let mut findings = Findings::default();
            check(root, &mut findings).unwrap();
            findings.errors
        };
        check_release(root, VERSION).unwrap();
        assert_eq!(errors(), [""; 0]);
        write(COPIES[0].1, "interface io.perilog.Agent\nmethod Ps(job: string) -> (rows: []object)\n");
        write(COPIES[2].1, r##"{"$defs":{"ps":{"properties":{}}}}"##);
        let places: Vec<String> = errors().iter().map(|error| error.split('`').nth(1).unwrap().to_owned()).collect();
        assert_eq!(places, ["io.perilog.Agent.Ps(job)", "#/$defs/ps/properties/rows"]);
        assert!(check_release(root, VERSION).is_err());
        write(&format!("{FOLDER}/next/x"), "");
        assert!(errors().last().unwrap().starts_with("schema/frozen/next: a folder has the name of a release"));
    }
}
