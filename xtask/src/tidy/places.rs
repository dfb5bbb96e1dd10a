//! Check of lists in which no compiler notices a missing entry (CONTRIBUTING.md). Each message between agent and
//! controller must be in the table of message numbers (proto/src/lib.rs) and among the samples of the encoding's tests.
//! Each method of a Varlink interface must have an arm in the `match` that dispatches the calls, or be a variant of the
//! requests. Each variable of a script must be in docs/scripts.md.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Findings;

/// The requests of the controller. A variant serves the method of its name.
const REQUESTS: &str = "core/src/controller/interface/request.rs";
/// Each Varlink interface, and the source file whose `match` must have an arm for each of its methods, except those of
/// [`REQUESTS`].
const INTERFACES: [(&str, &str); 2] = [
    ("controller/src/api/io.perilog.Controller.varlink", "controller/src/api/mod.rs"),
    ("agent/src/local/io.perilog.Agent.varlink", "agent/src/local/service.rs"),
];
/// Files that must name each message of the wire.
const OF_MESSAGES: [&str; 2] = ["proto/src/lib.rs", "proto/tests/common/samples.rs"];

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
    let mut lacks = |file: &str, what: &str, names: Vec<String>, is_there: &dyn Fn(&str) -> bool| -> Result<()> {
        ensure!(!names.is_empty(), "found no {what} that {file} could lack");
        let missing = names.into_iter().filter(|name| !is_there(name));
        findings.errors.extend(missing.map(|name| format!("{file}: lacks the {what} {name} (CONTRIBUTING.md)")));
        Ok(())
    };
    for (interface, dispatch) in INTERFACES {
        let (methods, text, requests) =
            (methods(&read(interface)?), read(dispatch)?, variants(&read(REQUESTS)?, "Request"));
        let is_served =
            |name: &str| text.contains(&format!(" \"{name}\" =>")) || requests.iter().any(|request| request == name);
        lacks(dispatch, "method", methods, &is_served)?;
    }
    let messages = read("core/src/message.rs")?;
    for file in OF_MESSAGES {
        let text = read(file)?;
        for direction in ["FromAgent", "ToAgent"] {
            lacks(file, "message", variants(&messages, direction), &|name| names(&text, name))?;
        }
    }
    let (file, own) = ("docs/scripts.md", variables(&read("core/src/environment.rs")?));
    let text = read(file)?;
    lacks(file, "variable", own, &|name| text.contains(&format!("`{name}`")))
}

/// Returns `true` if `text` contains `name` as a word.
fn names(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name)
}

/// Returns the names of the methods that `interface`, a definition in the Varlink language, contains.
fn methods(interface: &str) -> Vec<String> {
    let name = |line: &str| Some(line.strip_prefix("method ")?.split('(').next()?.trim().to_owned());
    interface.lines().filter_map(name).collect()
}

/// Returns the names of the variants of `pub enum NAME` in this source.
fn variants(source: &str, name: &str) -> Vec<String> {
    let Some((_, body)) = source.split_once(&format!("pub enum {name} {{\n")) else { return Vec::new() };
    let variant = |line: &str| {
        let line = line.strip_prefix("    ").filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))?;
        line.split(|c: char| !c.is_ascii_alphanumeric()).next().map(str::to_owned)
    };
    body.lines().take_while(|line| *line != "}").filter_map(variant).collect()
}

/// Returns the names of a script's variables, from the constant `OWN` in this source.
fn variables(source: &str) -> Vec<String> {
    let own = source.split_once("pub const OWN").and_then(|(_, rest)| rest.split_once("];"));
    let quoted = own.map(|(own, _)| own.split('"').skip(1).step_by(2).map(str::to_owned).collect());
    quoted.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_messages_and_variables_are_read() {
        assert_eq!(methods("# method No()\nmethod Ps(a: int) -> ()\nmethod Show() -> ()\n"), ["Ps", "Show"]);
        let source = "pub enum ToAgent \
                      {\n    /// A thing.\n    Start(Start),\n    Begin {\n        task: TaskId,\n    },\n    \
                      Probe,\n}\nenum X {\n    No,\n}";
        assert_eq!(variants(source, "ToAgent"), ["Start", "Begin", "Probe"]);
        assert_eq!(variables("x\npub const OWN: &[&str] = &[\n    \"A\",\n    \"B\",\n];\n\"C\""), ["A", "B"]);
        assert!(names("| 6 | Probed |", "Probed") && !names("Probed", "Probe"));
    }
}
