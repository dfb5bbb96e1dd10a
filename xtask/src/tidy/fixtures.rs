//! Check of the files that show what releases write: bytes of messages, files of tasks, tables of stores, interfaces.
//! Later releases must read all of it. So once a release has its tag, no such file changes: a new version adds a file.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};

use super::Findings;
use crate::{dist, git};

/// The files, as paths for git(1).
const FIXTURES: [&str; 4] =
    ["proto/golden", "agent/src/spool/tests/golden", "controller/src/store/tests/store-*", "schema/frozen"];

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<()> {
    let Some(tag) = newest_release(root) else { return Ok(()) };
    let arguments = ["diff", "--no-renames", "--diff-filter=a", "--name-only", "-z", &tag, "--"];
    let changed = dist::succeed(git::at(root).args(arguments).args(FIXTURES)).context("comparing with a tag")?;
    findings.errors.extend(changed.split_terminator('\0').map(|file| {
        format!(
            "{file}: differs from that of {tag}, which later releases must read: restore it (git checkout {tag} -- \
             {file}), and add a file for the new version, which a test reads beside it"
        )
    }));
    Ok(())
}

/// Returns the tag of the newest release that is part of the tree's history; `None`: there is none, or no history.
fn newest_release(root: &Path) -> Option<String> {
    let mut command = git::at(root);
    command.args(["tag", "--merged", "HEAD", "--list", "v[0-9]*", "--sort=-version:refname"]);
    let output = command.stderr(Stdio::null()).output().ok()?;
    let tags = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    tags.lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &str = "proto/golden/ack.hex";
    const TABLES: &str = "controller/src/store/tests/store-14.sql";

    /// A repository of its own.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn empty() -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            tree.git(&["init", "--quiet"]);
            tree
        }

        /// Makes a repository with a commit that has two fixtures and another file.
        fn new() -> Self {
            let tree = Self::empty();
            for file in [BYTES, TABLES, "proto/src/lib.rs"] {
                tree.write(file, "1\n");
            }
            tree.commit();
            tree
        }

        fn git(&self, arguments: &[&str]) {
            let mut command = git::at(self.0.path());
            // A hook of git that runs this test would name its own repository.
            for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
                command.env_remove(variable);
            }
            let options = ["user.name=a", "user.email=a@localhost", "commit.gpgsign=false", "tag.gpgsign=false"];
            command.args(options.iter().flat_map(|option| ["-c", option])).args(arguments);
            dist::succeed(&mut command).unwrap();
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn commit(&self) {
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--allow-empty", "--message", "x"]);
        }

        /// Returns the files that the check finds.
        fn found(&self) -> Vec<String> {
            let mut findings = Findings::default();
            check(self.0.path(), &mut findings).unwrap();
            findings.errors.iter().filter_map(|error| Some(error.split_once(": ")?.0.to_owned())).collect()
        }
    }

    /// A change of a tree after its release.
    type Change = fn(&Tree);

    #[test]
    fn what_a_release_has_never_changes() {
        let table: [(Change, &[&str]); 7] = [
            (|_| (), &[]),
            (|tree| tree.write(BYTES, "2\n"), &[BYTES]),
            (|tree| std::fs::remove_file(tree.0.path().join(BYTES)).unwrap(), &[BYTES]),
            (|tree| tree.git(&["mv", TABLES, "controller/src/store/tests/tables-15.txt"]), &[TABLES]),
            (|tree| tree.write("controller/src/store/tests/tables-15.txt", "2\n"), &[]),
            (|tree| tree.write("proto/src/lib.rs", "2\n"), &[]),
            (|tree| tree.write("schema/frozen/0.2.0/names.txt", "2\n"), &[]),
        ];
        for (number, (change, expected)) in table.into_iter().enumerate() {
            let tree = Tree::new();
            tree.git(&["tag", "v0.1.0"]);
            change(&tree);
            assert_eq!(tree.found(), expected, "{number}, before a commit");
            tree.commit();
            assert_eq!(tree.found(), expected, "{number}, after a commit");
        }
    }

    #[test]
    fn nothing_is_frozen_before_a_release_of_this_history() {
        let tree = Tree::new();
        tree.git(&["tag", "nightly"]);
        tree.git(&["branch", "--quiet", "other"]);
        tree.write(BYTES, "2\n");
        tree.commit();
        assert_eq!(tree.found(), [""; 0]);
        // A release of a later commit is none of the history of the branch.
        tree.git(&["tag", "v0.1.0"]);
        tree.git(&["checkout", "--quiet", "other"]);
        assert_eq!(tree.found(), [""; 0]);
        assert_eq!(newest_release(Tree::empty().0.path()), None);
    }

    #[test]
    fn the_newest_release_counts_by_its_numbers() {
        let tree = Tree::new();
        tree.git(&["tag", "v0.9.0"]);
        tree.write("proto/golden/begin.hex", "1\n");
        tree.commit();
        tree.git(&["tag", "v0.10.0"]);
        tree.write("proto/golden/begin.hex", "2\n");
        assert_eq!(tree.found(), ["proto/golden/begin.hex"]);
        assert_eq!(newest_release(tree.0.path()).as_deref(), Some("v0.10.0"));
    }
}
