//! What a release is refused for: texts that name another version or none, and a repository that is not ready. Each
//! rule returns its faults, one clear text each, so that all are named at once.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::dist::{self, earlier};

pub(super) const CHANGELOG: &str = "CHANGELOG.md";
const SPEC: &str = "packaging/rpm/perilog.spec";

/// Each place that names the version: its file, its name there, and the function that reads all versions in it.
const VERSIONS: [(&str, &str, fn(&str) -> Vec<&str>); 5] = [
    ("Cargo.toml", "[workspace.package]", of_workspace),
    ("packaging/deb/changelog", "the first entry", of_deb),
    (SPEC, "`Version:`", of_spec),
    (SPEC, "the first entry of %changelog", of_rpm),
    ("docs/building.md", "a command", of_commands),
];

/// Returns the faults of the texts of a commit. `read`: returns the text of a file.
pub(super) fn of_texts(read: &dyn Fn(&str) -> Result<String>, version: &str) -> Result<Vec<String>> {
    let changelog = read(CHANGELOG)?;
    let mut faults: Vec<String> = notes(&changelog, version).err().map(|error| error.to_string()).into_iter().collect();
    faults.extend(unreleased(&changelog));
    for (file, place, named) in VERSIONS {
        let text = read(file)?;
        faults
            .extend(other(&named(&text), version).map(|found| format!("{file}: {place} names {found}, not {version}")));
    }
    Ok(faults)
}

/// Returns the faults of the repository: changes, the tag `tag`, and no name for it.
pub(super) fn of_repository(git: &dyn Fn() -> Command, tag: &str) -> Result<Vec<String>> {
    let output = |arguments: &[&str]| dist::succeed(git().args(arguments));
    let mut faults = Vec::new();
    let changed = output(&["status", "--porcelain"])?;
    if !changed.is_empty() {
        faults.push(format!("a release is of a commit, and the tree has changes:\n{}", changed.trim_end()));
    }
    if !output(&["tag", "--list", tag])?.is_empty() {
        faults.push(format!("the tag {tag} exists: a new release has a new version (docs/building.md)"));
    }
    if output(&["var", "GIT_COMMITTER_IDENT"]).is_err() {
        faults.push("git has no name for the tag: git config user.name NAME; git config user.email ADDRESS".to_owned());
    }
    Ok(faults)
}

/// Returns the fault of the commit from which the tests upgrade: it must be that of the release before this version, if
/// there is one.
pub(super) fn of_former(git: &dyn Fn() -> Command, changelog: &str, version: &str) -> Option<String> {
    let former = former(changelog, version)?;
    if let Some(fault) = not_from(former, earlier::VERSION) {
        return Some(fault);
    }
    let tagged = format!("v{former}^{{commit}}");
    match dist::succeed(git().args(["rev-parse", "--verify", "--quiet", &tagged])) {
        Err(_) => Some(format!("the tag v{former} of the former release is not here: git fetch --tags")),
        Ok(commit) if commit.trim() != earlier::COMMIT => {
            Some(format!("{}: COMMIT is not v{former}, which is {}", earlier::FILE, commit.trim()))
        }
        Ok(_) => None,
    }
}

/// Returns the fault of tests that upgrade from another version than the former release.
fn not_from(former: &str, earlier: &str) -> Option<String> {
    (former != earlier).then(|| {
        format!("{}: tests upgrade from {earlier}, and the release before this version is {former}", earlier::FILE)
    })
}

/// Returns what tag and notes say of a release: a subject, and its section of the changelog.
pub(super) fn message(changelog: &str, version: &str) -> Result<String> {
    Ok(format!("perilog {version}\n\n{}\n", notes(changelog, version)?))
}

/// Returns the section of the changelog about this version, without its heading.
///
/// # Errors
/// There is no such section, it has no date (`## [0.1.0] - 2026-01-31`), or it is empty.
fn notes<'a>(changelog: &'a str, version: &str) -> Result<&'a str> {
    let heading = format!("## [{version}]");
    let section = section(changelog, version);
    let (date, text) = section.with_context(|| format!("{CHANGELOG} has no section `{heading} - DATE`"))?;
    ensure!(
        date.strip_prefix(" - ").is_some_and(is_date),
        "{CHANGELOG}: `{heading}` has no date: {heading} - YYYY-MM-DD"
    );
    ensure!(!text.is_empty(), "{CHANGELOG}: `{heading}` says nothing");
    Ok(text)
}

/// Returns the fault of entries that are in no release.
fn unreleased(changelog: &str) -> Option<String> {
    let (_, text) = section(changelog, "Unreleased")?;
    (!text.is_empty()).then(|| format!("{CHANGELOG}: `## [Unreleased]` has entries: they belong to the new version"))
}

/// Returns a section of the changelog: the rest of its heading, and its text.
fn section<'a>(changelog: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let heading = format!("## [{name}]");
    let mut places = changelog.match_indices(&heading);
    let (start, _) = places.find(|(at, _)| *at == 0 || changelog[..*at].ends_with('\n'))?;
    let rest = &changelog[start + heading.len()..];
    let whole = rest.find("\n## ").map_or(rest, |end| &rest[..end]);
    let (date, text) = whole.split_once('\n').unwrap_or((whole, ""));
    Some((date.trim_end(), text.trim()))
}

/// Returns the newest release beside this version.
fn former<'a>(changelog: &'a str, version: &str) -> Option<&'a str> {
    let released = |line: &'a str| {
        let (name, date) = line.strip_prefix("## [")?.split_once("] - ")?;
        is_date(date.trim_end()).then_some(name)
    };
    changelog.lines().filter_map(released).find(|name| *name != version)
}

fn is_date(date: &str) -> bool {
    let parts: Vec<&str> = date.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [4, 2, 2] && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the first of these versions that is another than `version`, or what to print if there are none.
fn other<'a>(named: &[&'a str], version: &str) -> Option<&'a str> {
    match named {
        [] => Some("no version"),
        named => named.iter().copied().find(|name| *name != version),
    }
}

/// Reads the first version of the workspace's Cargo.toml, which all packages have.
fn of_workspace(text: &str) -> Vec<&str> {
    let first = text.lines().find_map(|line| line.strip_prefix("version = \"")?.split_once('"'));
    first.map(|(version, _)| version).into_iter().collect()
}

/// Reads the version of the first entry of a Debian changelog.
fn of_deb(text: &str) -> Vec<&str> {
    let first = text.lines().next().and_then(|line| line.strip_prefix("perilog (")?.split_once(") "));
    first.map(|(version, _)| version).into_iter().collect()
}

/// Reads the version of a spec.
fn of_spec(text: &str) -> Vec<&str> {
    text.lines().find_map(|line| line.strip_prefix("Version:")).map(str::trim).into_iter().collect()
}

/// Reads the version of the first entry of a spec's changelog: `* Sat Nov 21 2026 NAME <ADDRESS> - 0.1.0-1`.
fn of_rpm(text: &str) -> Vec<&str> {
    let entries = text.split_once("\n%changelog\n").map_or("", |(_, entries)| entries);
    let first = entries.lines().find(|line| line.starts_with("* ")).and_then(|line| line.rsplit_once(" - "));
    first.and_then(|(_, release)| release.trim_end().rsplit_once('-')).map(|(version, _)| version).into_iter().collect()
}

/// Reads the versions in names of files, such as `perilog-0.1.0.tar.gz`.
fn of_commands(text: &str) -> Vec<&str> {
    let length = |after: &str| after.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(after.len());
    let names = text.split("perilog-").skip(1).map(|after| after[..length(after)].trim_matches('.'));
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Repository;
    use super::*;

    /// A changelog, and the other texts that name a version, all for 0.1.10.
    const READY: &str = "# Changelog\n\n## [Unreleased]\n\n## [0.1.10] - 2026-11-30\n\n### Added\n- a\n\n## [0.1.1] - \
                         2026-01-01\n- b\n";
    const WORKSPACE: &str = "[workspace.package]\nversion = \"0.1.10\"\n\n[workspace.dependencies]\nx = \"0.1.1\"\n";
    const DEB: &str = "perilog (0.1.10) unstable; urgency=medium\n\nperilog (0.1.1) unstable; urgency=medium\n";
    const RPM: &str = "Name: perilog\nVersion:   0.1.10\n%changelog\n* Mon Nov 30 2026 A B <a@b> - 0.1.10-1\n- c\n\n\
                       * Thu Jan 01 2026 A B <a@b> - 0.1.1-1\n- d\n";
    const BOOK: &str = "`perilog-agent`: perilog-0.1.10.tar.gz, perilog-0.1.10/ and perilog-0.1.10-vendor.tar.gz.\n";

    /// Returns the faults of these texts, of which one is changed.
    fn faults(file: &str, from: &str, to: &str) -> Vec<String> {
        let read = |name: &str| {
            let text = match name {
                CHANGELOG => READY,
                "Cargo.toml" => WORKSPACE,
                "packaging/deb/changelog" => DEB,
                SPEC => RPM,
                _ => BOOK,
            };
            if name == file {
                assert!(text.contains(from), "{text}");
            }
            Ok(if name == file { text.replacen(from, to, 1) } else { text.to_owned() })
        };
        of_texts(&read, "0.1.10").unwrap()
    }

    #[test]
    fn each_place_names_the_version_exactly() {
        assert_eq!(faults("", "", ""), [] as [&str; 0]);
        for (file, from, to, expect) in [
            ("Cargo.toml", "0.1.10", "0.1.1", "Cargo.toml: [workspace.package] names 0.1.1, not 0.1.10"),
            ("Cargo.toml", "version", "name", "Cargo.toml: [workspace.package] names no version, not 0.1.10"),
            (
                "packaging/deb/changelog",
                "(0.1.10)",
                "(0.1.100)",
                "packaging/deb/changelog: the first entry names 0.1.100, not 0.1.10",
            ),
            (
                "packaging/deb/changelog",
                "perilog (0.1.10)",
                "perilog (0.1.1)",
                "packaging/deb/changelog: the first entry names 0.1.1, not 0.1.10",
            ),
            (
                SPEC,
                "Version:   0.1.10",
                "Version: 0.1.1",
                "packaging/rpm/perilog.spec: `Version:` names 0.1.1, not 0.1.10",
            ),
            (
                SPEC,
                "- 0.1.10-1",
                "- 0.1.1-10",
                "packaging/rpm/perilog.spec: the first entry of %changelog names 0.1.1, not 0.1.10",
            ),
            ("docs/building.md", "0.1.10-", "0.1.9-", "docs/building.md: a command names 0.1.9, not 0.1.10"),
        ] {
            assert_eq!(faults(file, from, to), [expect], "{file}: {from} {to}");
        }
    }

    #[test]
    fn all_entries_of_the_changelog_are_in_a_release() {
        let entry = faults(CHANGELOG, "[Unreleased]\n", "[Unreleased]\n\n### Fixed\n- e\n");
        assert!(entry.len() == 1 && entry[0].contains("`## [Unreleased]` has entries"), "{entry:?}");
        assert_eq!(faults(CHANGELOG, "## [Unreleased]\n\n", ""), [] as [&str; 0]);
        let missing = faults(CHANGELOG, "## [0.1.10]", "## [0.1.9]");
        assert!(missing.len() == 1 && missing[0].contains("no section `## [0.1.10] - DATE`"), "{missing:?}");
    }

    #[test]
    fn notes_are_the_section_of_the_version() {
        let of = |text: &str| notes(text, "0.1.0").map(str::to_owned).map_err(|error| error.to_string());
        let whole =
            "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-30\n\n### Added\n- a\n\n## [0.0.1] - 2026-01-01\n";
        assert_eq!(of(whole).unwrap(), "### Added\n- a");
        assert_eq!(message(whole, "0.1.0").unwrap(), "perilog 0.1.0\n\n### Added\n- a\n");
        for (text, expected) in [
            ("## [Unreleased]\n- a\n", "no section `## [0.1.0] - DATE`"),
            ("### [0.1.0] - 2026-11-30\n- a\n", "no section `## [0.1.0] - DATE`"),
            ("## [0.1.0]\n- a\n", "has no date"),
            ("## [0.1.0] - soon\n- a\n", "has no date"),
            ("## [0.1.0] - 2026-11-30\n\n## [0.0.1] - 2026-01-01\n- a\n", "says nothing"),
            ("## [0.1.0] - 2026-11-30\n## [0.0.1] - 2026-01-01\n- a\n", "says nothing"),
        ] {
            assert!(of(text).unwrap_err().contains(expected), "{text:?}: {:?}", of(text));
        }
    }

    #[test]
    fn the_repository_has_no_changes_no_tag_and_a_name() {
        let repository = Repository::make();
        let faults = |git: &dyn Fn() -> Command| of_repository(git, "v0.1.0").unwrap();
        assert_eq!(faults(&|| repository.command()), [] as [&str; 0]);
        let found = faults(&|| repository.nameless());
        assert!(found.len() == 1 && found[0].contains("git config user.name"), "{found:?}");
        std::fs::write(repository.path().join("new"), "x").unwrap();
        repository.git(&["tag", "v0.1.0"]);
        let found = faults(&|| repository.command());
        assert!(found.len() == 2 && found[0].ends_with("?? new") && found[1].contains("v0.1.0 exists"), "{found:?}");
    }

    #[test]
    fn tests_upgrade_from_the_former_release() {
        let repository = Repository::make();
        let of = |changelog: &str| of_former(&|| repository.command(), changelog, "99.2");
        assert_eq!(of("## [Unreleased]\n\n## [99.2] - 2027-01-01\n- a\n"), None);
        assert_eq!(former(READY, "0.1.10"), Some("0.1.1"));
        let other = of("## [99.2] - 2027-01-01\n\n## [99.1] - 2026-11-30\n\n## [0.0.1] - 2026-01-01\n").unwrap();
        assert!(other.contains("the release before this version is 99.1"), "{other}");
        // The version is right from here on.
        let changelog = format!("## [{}] - 2026-01-01\n- a\n", earlier::VERSION);
        assert!(of(&changelog).unwrap().contains("git fetch --tags"));
        repository.git(&["tag", &format!("v{}", earlier::VERSION)]);
        assert!(of(&changelog).unwrap().contains("COMMIT is not v"));
    }

    /// The tree between two releases: a bump of the version that forgets a file, entries under a version that is
    /// released, and tests that still upgrade from the release before the last.
    #[test]
    fn this_tree_names_one_version_and_upgrades_from_the_former_release() {
        let version = env!("CARGO_PKG_VERSION");
        let read = |name: &str| {
            std::fs::read_to_string(crate::cargo::root().join(name)).with_context(|| format!("reading {name}"))
        };
        for (file, place, named) in VERSIONS {
            assert_eq!(other(&named(&read(file).unwrap()), version), None, "{file}: {place}");
        }
        let changelog = read(CHANGELOG).unwrap();
        if section(&changelog, version).is_some() {
            assert_eq!(unreleased(&changelog), None, "{version} is released: a new entry is of a new version");
        }
        let former = former(&changelog, version);
        assert_eq!(former.and_then(|former| not_from(former, earlier::VERSION)), None);
    }
}
