//! `cargo xtask release`: packages, their sums and the notes of the present version in `target/release-VERSION`, and
//! the tag `vVERSION`. It builds the packages of one commit twice ([`built`]), and tags that commit only if they are
//! equal byte for byte and nothing else speaks against it ([`rules`]). With `--rehearse` it does all but the tag.

mod built;
mod rules;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::stages::print_line;
use crate::{Usage, cargo, dist, git, tidy};

/// Option: all but the tag.
const REHEARSE: &str = "--rehearse";

/// Makes the release of the present version from the commit at HEAD. Never returns `false`: failures are errors.
pub(crate) fn run(options: &[&str]) -> Result<bool> {
    let is_rehearsal = is_rehearsal(options)?;
    let version = env!("CARGO_PKG_VERSION");
    let tag = format!("v{version}");
    // HEAD may move while packages are made.
    let commit = output(&["rev-parse", "--verify", "HEAD^{commit}"])?.trim().to_owned();
    let read = |name: &str| output(&["show", &format!("{commit}:{name}")]);
    let changelog = read(rules::CHANGELOG)?;
    let mut faults = rules::of_texts(&read, version)?;
    faults.extend(rules::of_repository(&git::command, &tag)?);
    faults.extend(rules::of_former(&git::command, &changelog, version));
    faults.extend(tidy::check_release(&cargo::root(), version).err().map(|error| format!("{error:#}")));
    if !faults.is_empty() {
        let text = format!("a release of {version} is refused:\n{}", faults.join("\n"));
        ensure!(is_rehearsal, "{text}");
        print_line(&text)?;
    }

    let directory = cargo::target()?.join(format!("release-{version}"));
    let sums = match built::sums(&directory, &commit) {
        Some(sums) => {
            print_line(&format!("the packages of this commit are there: {}", directory.display()))?;
            sums
        }
        None => built::make(&cargo::root(), &commit, &directory)?,
    };
    print_line(&format!("{sums}packages of {commit}, twice the same: {}", directory.display()))?;
    ensure!(faults.is_empty(), "the packages can be made, and the release is refused: see above");
    let (notes, text) = (directory.join("NOTES.md"), rules::message(&changelog, version)?);
    std::fs::write(&notes, text).with_context(|| format!("writing {}", notes.display()))?;
    if is_rehearsal {
        print_line(&format!("`cargo xtask release` on this commit makes the tag {tag}, and builds nothing again"))?;
        return Ok(true);
    }
    dist::succeed(&mut tagging(git::command(), &tag, &commit, &notes)).with_context(|| {
        format!("git makes no tag. The packages stay in {}: the next try builds nothing again", directory.display())
    })?;
    print_line(&format!("to publish {tag}: git push origin {tag}"))?;
    Ok(true)
}

fn is_rehearsal(options: &[&str]) -> Result<bool> {
    match options {
        [] => Ok(false),
        [REHEARSE] => Ok(true),
        other => Err(Usage(format!("release takes {REHEARSE} or nothing, not {}", other.join(" "))).into()),
    }
}

/// Returns the command that tags a commit. The lines of `message` stay as they are: git takes those with `#` for its
/// own otherwise.
fn tagging(mut git: Command, tag: &str, commit: &str, message: &Path) -> Command {
    git.args(["tag", "--annotate", "--cleanup=verbatim", "--file"]).arg(message).args([tag, commit]);
    git
}

/// Returns the output of git in this source tree.
fn output(arguments: &[&str]) -> Result<String> {
    dist::succeed(git::command().args(arguments))
}

/// A repository of git for tests.
#[cfg(test)]
mod testing {
    use std::path::Path;
    use std::process::Command;

    /// A repository with two commits: the file `a` has first the text `first`, then `second`.
    pub(super) struct Repository(tempfile::TempDir);

    impl Repository {
        pub(super) fn make() -> Self {
            let repository = Self(tempfile::tempdir().unwrap());
            repository.git(&["init", "--quiet"]);
            for text in ["first", "second"] {
                std::fs::write(repository.path().join("a"), text).unwrap();
                repository.git(&["add", "a"]);
                repository.git(&["commit", "--quiet", "--message", text]);
            }
            repository
        }

        pub(super) fn path(&self) -> &Path {
            self.0.path()
        }

        /// Returns git(1) without the settings of the user who runs the tests, and with a name.
        pub(super) fn command(&self) -> Command {
            let mut command = self.nameless();
            for kind in ["AUTHOR", "COMMITTER"] {
                command.env(format!("GIT_{kind}_NAME"), "A").env(format!("GIT_{kind}_EMAIL"), "a@localhost");
            }
            command
        }

        /// Returns git(1) as [`Self::command`], and without a name.
        pub(super) fn nameless(&self) -> Command {
            let mut command = crate::git::at(self.path());
            command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
            for name in ["GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "EMAIL"] {
                command.env_remove(name);
            }
            command.args(["-c", "user.useConfigOnly=true"]);
            command
        }

        pub(super) fn git(&self, arguments: &[&str]) -> String {
            crate::dist::succeed(self.command().args(arguments)).unwrap().trim().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Repository;
    use super::*;

    #[test]
    fn the_tag_is_on_the_commit_and_has_a_subject() {
        let repository = Repository::make();
        let (first, second) = (repository.git(&["rev-parse", "HEAD^"]), repository.git(&["rev-parse", "HEAD"]));
        let notes = repository.path().join("NOTES.md");
        let text = rules::message("## [0.1.0] - 2026-11-30\n\n### Added\n- a\n", "0.1.0").unwrap();
        std::fs::write(&notes, text).unwrap();
        dist::succeed(&mut tagging(repository.command(), "v0.1.0", &first, &notes)).unwrap();
        assert_eq!(repository.git(&["rev-parse", "v0.1.0^{commit}"]), first);
        assert!(repository.git(&["rev-parse", "HEAD"]) == second && first != second);
        let read = |format: &str| repository.git(&["for-each-ref", &format!("--format={format}"), "refs/tags"]);
        assert_eq!(read("%(contents:subject)"), "perilog 0.1.0");
        assert_eq!(read("%(contents:body)"), "### Added\n- a");
    }

    #[test]
    fn options_are_known() {
        assert!(!is_rehearsal(&[]).unwrap() && is_rehearsal(&["--rehearse"]).unwrap());
        assert!(is_rehearsal(&["--rehearsal"]).unwrap_err().is::<Usage>());
    }
}
