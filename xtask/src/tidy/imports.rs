//! Check of the imports within the controller's machine: its modules, and the files of its state, import each other in
//! one direction.
//!
//! A module is a folder, or a file beside the folders. An index (`mod.rs`) only names what is beside it, so no module
//! may import through it: the path of each import names the module.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::circle::circle;
use super::rust::tokens;

/// The places within which imports have one direction: the folder, and how the path of an import of it begins.
const PLACES: [(&str, &[&str]); 2] = [
    ("core/src/controller/", &["crate", "controller"]),
    ("core/src/controller/state/", &["crate", "controller", "state"]),
];

/// The modules of each place, each with the modules that it imports.
#[derive(Debug, Default)]
pub(super) struct Imports {
    places: [BTreeMap<String, BTreeSet<String>>; PLACES.len()],
}

impl Imports {
    pub(super) fn read(&mut self, name: &str, text: &str) {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for ((folder, path), modules) in PLACES.iter().zip(&mut self.places) {
            let Some(file) = name.strip_prefix(folder).and_then(|file| file.strip_suffix(".rs")) else { continue };
            let module = file.split('/').next().unwrap_or_default();
            if module != "mod" && module != "tests" {
                let imported = imported(text, path).into_iter().filter(|other| other != module);
                modules.entry(module.to_owned()).or_default().extend(imported);
            }
        }
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        for ((folder, _), modules) in PLACES.iter().zip(&self.places) {
            if modules.is_empty() {
                findings.errors.push(format!("{folder}: no file was found (xtask/src/tidy/imports.rs)"));
            }
            for (module, imported) in modules {
                for other in imported.iter().filter(|other| !modules.contains_key(*other)) {
                    let text = format!("{folder}{module}: imports {other} through an index; the path names the file");
                    findings.errors.push(text);
                }
            }
            let circle = circle(modules);
            if !circle.is_empty() {
                let text = format!("{folder}: {} import each other in a circle", circle.join(", "));
                findings.errors.push(format!("{text} (docs/decisions/0031)"));
            }
        }
    }
}

/// Returns the names that follow `path` in the file's imports and paths. A list in braces names several.
fn imported(text: &str, path: &[&str]) -> BTreeSet<String> {
    let tokens = tokens(text);
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut found = BTreeSet::new();
    for begin in 0..tokens.len() {
        let is_path =
            path.iter().enumerate().all(|(at, part)| word(begin + 2 * at) == *part && word(begin + 2 * at + 1) == "::");
        let first = begin + 2 * path.len();
        if !is_path {
            continue;
        }
        if word(first) != "{" {
            found.insert(word(first).to_owned());
            continue;
        }
        let (mut depth, mut at) = (1_u32, first + 1);
        while depth > 0 && at < tokens.len() {
            match word(at) {
                "{" => depth += 1,
                "}" => depth -= 1,
                name if depth == 1 && matches!(word(at - 1), "{" | ",") => {
                    found.insert(name.to_owned());
                }
                _ => {}
            }
            at += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: &str = "core/src/controller/";

    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let mut imports = Imports::default();
        imports.read("core/src/controller/state/action.rs", "");
        files.iter().for_each(|(file, text)| imports.read(&format!("{FOLDER}{file}.rs"), text));
        let mut findings = Findings::default();
        imports.check(&mut findings);
        findings.errors
    }

    #[test]
    fn imports_in_one_direction_pass() {
        let files = [
            ("mod", "pub use crate::controller::job::Job; mod job;"),
            (
                "job/finish",
                "use crate::controller::{state::{action::Action, jobs}, node};\nuse crate::controller::job::run;",
            ),
            ("state/jobs", "use crate::controller::state::action::Action;"),
            ("node", "// use crate::controller::job;\n#[cfg(test)]\nmod tests { use crate::controller::job::finish; }"),
            ("tests/all", "use crate::controller::job;"),
        ];
        assert_eq!(errors(&files), Vec::<String>::new());
    }

    #[test]
    fn circles_and_imports_through_an_index_are_found() {
        let circle = [
            ("job/finish", "use crate::controller::{io, node::Node};"),
            ("node", "fn of() { crate::controller::job::finish() }"),
            ("io", ""),
            ("show", "use crate::controller::node;"),
        ];
        let text = format!("{FOLDER}: job, node import each other in a circle (docs/decisions/0031)");
        assert_eq!(errors(&circle), [text]);
        let in_state = [
            ("state/jobs", "use crate::controller::state::table::Table;"),
            ("state/table", "use crate::controller::state::{action::Action, jobs::Jobs};"),
        ];
        let text = format!("{FOLDER}state/: jobs, table import each other in a circle (docs/decisions/0031)");
        assert_eq!(errors(&in_state), [text]);
        let index = [("node", "use crate::controller::{Machine, state};")];
        let text = format!("{FOLDER}node: imports Machine through an index; the path names the file");
        assert_eq!(errors(&index), [text]);
    }
}
