//! Check of the pages that say where code is: each path that they name in backticks or link to exists. A path is
//! written in full, from the root of the source.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Findings;

const PAGES: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];
/// Ends of the names of files that count as paths without a `/`.
const KINDS: [&str; 5] = [".rs", ".md", ".py", ".json", ".varlink"];

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<()> {
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).with_context(|| format!("reading {page}"))?;
        let named = paths(&text);
        ensure!(!named.is_empty(), "{page}: no path was found (xtask/src/tidy/paths.rs)");
        let missing = named.into_iter().filter(|(_, path)| !root.join(path).exists());
        findings.errors.extend(missing.map(|(line, path)| {
            format!("{page}:{line}: there is no `{path}`; write paths in full, from the root of the source")
        }));
    }
    Ok(())
}

/// Returns the paths in backticks and the targets of links outside of code blocks, each with the number of its line. A
/// text in backticks is a path if it is relative, has only the characters of our file names, and has a `/` or ends as
/// one of [`KINDS`]. A link is to a path if it has no scheme (`https:`); its anchor (`#keys`) is cut off.
fn paths(page: &str) -> Vec<(usize, &str)> {
    let is_path = |text: &&str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
        let is_relative = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        is_plain && is_relative && (text.contains('/') || KINDS.iter().any(|kind| text.ends_with(kind)))
    };
    let mut found = Vec::new();
    let mut in_block = false;
    for (line, number) in page.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            found.extend(line.split('`').skip(1).step_by(2).filter(is_path).map(|path| (number, path)));
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            found.extend(targets.filter(|to| !to.is_empty() && !to.contains(':')).map(|path| (number, path)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_outside_of_code_blocks() {
        let page =
            "The file `core/src/judge.rs`, `cli/`\n```text\n`a/b.rs`\n```\n`/etc/perilog/x.toml`, `mod.rs`, `<x>/y.rs`";
        assert_eq!(paths(page), [(1, "core/src/judge.rs"), (1, "cli/"), (5, "mod.rs")]);
        let links = "[a](docs/x.md#keys), [b](https://x.org/y), [c](#keys), [`d`](core/src/d.rs)";
        assert_eq!(paths(links), [(1, "docs/x.md"), (1, "core/src/d.rs")]);
        let others = "`Input::Policy`, `--json`, `agent.toml`, `handle(input, now) -> effects`, `.varlink`";
        assert!(paths(others).is_empty(), "{:?}", paths(others));
    }

    #[test]
    fn a_missing_path_is_a_finding() {
        let dir = std::env::temp_dir().join(format!("perilog-paths-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("core/src")).unwrap();
        for (page, text) in PAGES.iter().zip(["`core/src/`", "`core/src`", "`core/gone.rs` and `core/`"]) {
            std::fs::write(dir.join(page), text).unwrap();
        }
        let mut findings = Findings::default();
        check(&dir, &mut findings).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let [error] = &findings.errors[..] else { panic!("{findings:?}") };
        assert!(error.starts_with("README.md:1: there is no `core/gone.rs`"), "{error}");
    }
}
