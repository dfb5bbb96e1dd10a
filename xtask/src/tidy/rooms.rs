//! Check of the rooms of the controller's machine: no room may be part of a circle of calls.
//!
//! A room is a file with acts: functions that change the machine or one of its parts. In a circle of calls no room can
//! be understood before the others. Questions (`&self`) change nothing and do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::circle::circle;
use super::rust::{Token, tokens};

const FOLDER: &str = "core/src/controller/";
/// The types of the machine and of its parts, each with the name of the variable or field through which code calls it:
/// `jobs` in `self.jobs.drop_hold()`.
const PARTS: [(&str, &str); 6] = [
    ("Machine", "machine"),
    ("Jobs", "jobs"),
    ("Nodes", "nodes"),
    ("Drains", "drains"),
    ("Recovery", "recovery"),
    ("Quiesce", "quiesce"),
];
/// Maximum number of functions of `Machine` itself: a function that changes only one part belongs to that part.
const MACHINE_FUNCTIONS: usize = 53;

/// A function of the machine or of a part: the type (`Jobs`), and the function's name.
type Function = (String, String);

/// The acts (functions with `&mut self`) of the machine and its parts, each with its room; and the functions that each
/// room calls.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    acts: BTreeMap<Function, String>,
    called: BTreeMap<String, BTreeSet<Function>>,
    of_machine: usize,
}

impl Rooms {
    pub(super) fn read(&mut self, name: &str, text: &str) {
        let room = name.strip_prefix(FOLDER).and_then(|name| name.strip_suffix(".rs"));
        let Some(room) = room.filter(|room| !room.starts_with("tests/")) else { return };
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let tokens = tokens(text);
        let mut called = BTreeSet::new();
        for (part, body) in parts(&tokens) {
            for (function, is_act) in functions(body) {
                self.of_machine += usize::from(part == "Machine");
                if is_act {
                    self.acts.insert((part.to_owned(), function), room.to_owned());
                }
            }
            called.extend(calls(part, body));
        }
        self.called.insert(room.to_owned(), called);
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        let rooms = self.calls();
        let circle = circle(&rooms);
        if self.of_machine > MACHINE_FUNCTIONS {
            let text =
                format!("{FOLDER}: the machine has {} functions, more than {MACHINE_FUNCTIONS}", self.of_machine);
            findings.errors.push(format!("{text}: an act on one part belongs to that part (docs/decisions/0018)"));
        }
        if self.acts.is_empty() {
            findings.errors.push(format!("{FOLDER}: no function of the machine was found"));
        } else if !circle.is_empty() {
            let text = format!("{FOLDER}: {} rooms call each other in a circle (docs/decisions/0018)", circle.len());
            findings.errors.push(format!("{text}: {}", circle.join(", ")));
        }
    }

    /// Returns for each room the other rooms that it calls.
    fn calls(&self) -> BTreeMap<String, BTreeSet<String>> {
        let of = |(room, called): (&String, &BTreeSet<Function>)| {
            let rooms = called.iter().filter_map(|function| self.acts.get(function)).filter(|other| *other != room);
            (room.clone(), rooms.cloned().collect())
        };
        self.called.iter().map(of).collect()
    }
}

/// Returns each `impl PART { ... }` of a part: the part, and the tokens within the braces.
fn parts(tokens: &[Token]) -> Vec<(&str, &[Token])> {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let Some((part, _)) = PARTS.iter().find(|(part, _)| word(at) == "impl" && word(at + 1) == *part) else {
            continue;
        };
        if word(at + 2) == "{" {
            let (mut depth, mut end) = (1_u32, at + 3);
            while depth > 0 && end < tokens.len() {
                depth = match word(end) {
                    "{" => depth + 1,
                    "}" => depth - 1,
                    _ => depth,
                };
                end += 1;
            }
            found.push((*part, &tokens[at + 3..end]));
        }
    }
    found
}

/// Returns the functions of an impl block with their names; `true`: the function takes `&mut self`.
fn functions(body: &[Token]) -> Vec<(String, bool)> {
    let word = |at: usize| body.get(at).map_or("", |token| token.text.as_str());
    let (mut found, mut depth) = (Vec::new(), 0_u32);
    for at in 0..body.len() {
        match word(at) {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            "fn" if depth == 0 => {
                let is_act = word(at + 3) == "&" && word(at + 4) == "mut" && word(at + 5) == "self";
                found.push((word(at + 1).to_owned(), is_act));
            }
            _ => {}
        }
    }
    found
}

/// Returns the functions that this impl block of the part `own` calls on itself or on another part.
fn calls(own: &str, body: &[Token]) -> BTreeSet<Function> {
    let part = |receiver: &str| match receiver {
        "self" => Some(own),
        name => PARTS.iter().find(|(_, of)| *of == name).map(|(part, _)| *part),
    };
    let called = body.windows(4).filter(|w| w[1].text == "." && w[3].text == "(");
    called.filter_map(|w| Some((part(&w[0].text)?.to_owned(), w[2].text.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_calls_is_found() {
        let mut rooms = Rooms::default();
        for (room, text) in [
            ("a", "impl Machine { fn one(&mut self) { self.jobs.two(); self.own(); } fn own(&mut self) {} }"),
            (
                "job/b",
                "impl Jobs { fn two(&mut self) { if x { self.three() } } }\nimpl Other { fn own() { self.one() } }",
            ),
            ("c", "impl Jobs { fn three(&mut self) { machine.one() } fn asks(&self) {} }"),
            (
                "d",
                "impl Machine { fn four(&mut self) { self.one() } }\n#[cfg(test)]\nimpl Machine \
                 { fn no() { self.four() } }",
            ),
            // A question is no act: a room that asks one stands in no circle for that.
            ("e", "impl Nodes { fn five(&mut self) { jobs.asks() } }"),
            ("tests/f", "impl Machine { fn six(&mut self) { self.four() } }"),
        ] {
            rooms.read(&format!("{FOLDER}{room}.rs"), text);
        }
        rooms.read("core/src/agent/a.rs", "impl Machine { fn one(&mut self) {} }");
        assert_eq!(circle(&rooms.calls()), ["a", "c", "job/b"]);
        assert_eq!((rooms.acts.len(), rooms.of_machine), (6, 3));
    }
}
