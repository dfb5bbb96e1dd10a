//! Check of the links in comments that begin with `super` or `crate`: each leads to a module, or to something in one.
//! Rustdoc would find more, but it would need a build of the whole workspace.
//!
//! The check follows a link module by module, from file to file. The first segment without a file must be a word in the
//! code of the module before it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Findings;

/// All source files, by path from the root of the source.
#[derive(Debug, Default)]
pub(super) struct Links {
    files: BTreeMap<PathBuf, String>,
}

impl Links {
    pub(super) fn read(&mut self, name: &str, text: &str) {
        self.files.insert(name.into(), text.to_owned());
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        for (file, text) in &self.files {
            let text = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
            for (number, line) in (1..).zip(text.lines()) {
                let dead = links(line).into_iter().filter(|link| !self.leads_somewhere(file, link));
                findings.errors.extend(dead.map(|link| {
                    let file = file.display();
                    format!("{file}:{number}: the link [`{link}`] leads nowhere: name the module that has it")
                }));
            }
        }
    }

    /// Returns `true` if the link in `file` names a module, or something in a module.
    fn leads_somewhere(&self, file: &Path, link: &str) -> bool {
        let mut module = module_of(file);
        for segment in link.split("::") {
            match segment {
                "super" => module = module.parent().unwrap_or(Path::new("")).to_owned(),
                "crate" => {
                    let is_root = |at: &&Path| ["lib.rs", "main.rs"].iter().any(|of| self.has(&at.join(of)));
                    module = file.ancestors().skip(1).find(is_root).unwrap_or(Path::new("")).to_owned();
                }
                _ if self.source(&module.join(segment)).is_some() => module.push(segment),
                _ => return self.source(&module).is_some_and(|text| has_word(text, segment)),
            }
        }
        true
    }

    fn has(&self, file: &Path) -> bool {
        self.files.contains_key(file)
    }

    /// Returns the text of a module. `module`: its path without the end `.rs`, or the folder of `mod.rs`, `lib.rs` or
    /// `main.rs`.
    fn source(&self, module: &Path) -> Option<&String> {
        let index = ["mod.rs", "lib.rs", "main.rs"].map(|index| module.join(index));
        let file = PathBuf::from(format!("{}.rs", module.display()));
        index.iter().chain([&file]).find_map(|file| self.files.get(file))
    }
}

fn module_of(file: &Path) -> PathBuf {
    let is_index = file.file_name().is_some_and(|name| ["mod.rs", "lib.rs", "main.rs"].iter().any(|of| name == *of));
    if is_index { file.parent().unwrap_or(Path::new("")).to_owned() } else { file.with_extension("") }
}

/// Returns the links in a line of documentation that begin with `super` or `crate`.
fn links(line: &str) -> Vec<&str> {
    let line = line.trim_start();
    if !(line.starts_with("///") || line.starts_with("//!")) {
        return Vec::new();
    }
    let linked = line.split("[`").skip(1).filter_map(|rest| rest.split_once("`]").map(|(link, _)| link));
    let is_path = |link: &&str| {
        let is_plain = link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte));
        is_plain && (link.starts_with("super::") || link.starts_with("crate::"))
    };
    linked.filter(is_path).collect()
}

/// Returns `true` if the code in `text` has this word. Comments do not count.
fn has_word(text: &str, word: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')).any(|other| other == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_module_that_is_gone_is_found() {
        let mut all = Links::default();
        for (name, text) in [
            ("a/src/lib.rs", "//! See [`crate::b::C`], [`crate::b::gone`].\nmod b;\nmod d;\n"),
            ("a/src/b.rs", "/// As [`super::d::e`], [`super::d::e::F::new`].\n// Is gone.\npub struct C;\n"),
            ("a/src/d/mod.rs", "mod e;\n/// [`super::b`], but `super::x` is no link.\nmod g;\n"),
            ("a/src/d/e.rs", "//! [`super::g`], [`super::clock`] and [`crate::z`].\npub struct F;\n"),
            ("a/src/d/g.rs", "#[cfg(test)]\nmod tests {\n    /// [`super::nothing`]\n}\n"),
        ] {
            all.read(name, text);
        }
        let mut findings = Findings::default();
        all.check(&mut findings);
        let dead: Vec<&str> = findings.errors.iter().filter_map(|error| error.split('`').nth(1)).collect();
        assert_eq!(dead, ["super::clock", "crate::z", "crate::b::gone"], "{findings:?}");
        assert!(findings.errors[0].starts_with("a/src/d/e.rs:1: "), "{findings:?}");
    }
}
