//! Rooms of the controller's machine: which one calls which, and how many stand in one circle of calls.
//!
//! A room is a file with functions of `Machine`. One room calls another through `self.function()`. In a circle of calls
//! no room can be understood before the others, so no room may stand in one.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::rust::{Token, tokens};

const FOLDER: &str = "core/src/controller/";

/// The functions of the machine with their rooms, and the functions that each room calls on `self`.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    defined: BTreeMap<String, String>,
    called: BTreeMap<String, BTreeSet<String>>,
}

impl Rooms {
    pub(super) fn read(&mut self, name: &str, text: &str) {
        let room = name.strip_prefix(FOLDER).and_then(|name| name.strip_suffix(".rs"));
        let Some(room) = room.filter(|room| !room.starts_with("tests/")) else { return };
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let tokens = tokens(text);
        for function in functions(&tokens) {
            self.defined.insert(function, room.to_owned());
        }
        self.called.insert(room.to_owned(), calls(&tokens));
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        let circle = self.largest_circle();
        if self.defined.is_empty() {
            findings.errors.push(format!("{FOLDER}: no function of the machine was found"));
        } else if !circle.is_empty() {
            let rooms: Vec<&str> = circle.into_iter().collect();
            let text = format!("{FOLDER}: {} rooms call each other in a circle (docs/decisions/0016)", rooms.len());
            findings.errors.push(format!("{text}: {}", rooms.join(", ")));
        }
    }

    /// Returns the rooms that `room` calls.
    fn next<'a>(&'a self, room: &str) -> impl Iterator<Item = &'a str> {
        let called = self.called.get(room).into_iter().flatten();
        let rooms: BTreeSet<&str> =
            called.filter_map(|function| self.defined.get(function)).map(String::as_str).collect();
        let room = room.to_owned();
        rooms.into_iter().filter(move |other| *other != room)
    }

    fn reached<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let (mut found, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(room) = open.pop() {
            open.extend(self.next(room).filter(|next| found.insert(*next)));
        }
        found
    }

    fn largest_circle(&self) -> BTreeSet<&str> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.called.keys().map(|room| (room.as_str(), self.reached(room))).collect();
        let circle = |room: &str| -> BTreeSet<&str> {
            let Some(mine) = reached.get(room) else { return BTreeSet::new() };
            mine.iter().copied().filter(|other| reached.get(other).is_some_and(|back| back.contains(room))).collect()
        };
        self.called.keys().map(|room| circle(room)).max_by_key(BTreeSet::len).unwrap_or_default()
    }
}

/// Returns the functions in each `impl Machine { ... }`.
fn functions(tokens: &[Token]) -> Vec<String> {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let (mut found, mut depth) = (Vec::new(), 0_u32);
    for at in 0..tokens.len() {
        match word(at) {
            "{" if depth > 0 || (word(at.wrapping_sub(1)) == "Machine" && word(at.wrapping_sub(2)) == "impl") => {
                depth += 1
            }
            "}" if depth > 0 => depth -= 1,
            "fn" if depth == 1 => found.push(word(at + 1).to_owned()),
            _ => {}
        }
    }
    found
}

/// Returns the names of all functions that are called as `self.name(...)`.
fn calls(tokens: &[Token]) -> BTreeSet<String> {
    let is = |w: &[Token]| w[0].text == "self" && w[1].text == "." && w[3].text == "(";
    tokens.windows(4).filter(|window| is(window)).map(|window| window[2].text.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_calls_is_found() {
        let mut rooms = Rooms::default();
        for (room, text) in [
            ("a", "impl Machine { fn one(&self) { self.two(); self.own(); } fn own() {} }"),
            (
                "job/b",
                "impl Machine { fn two(&self) { if x { self.three() } } }\nimpl Jobs { fn own() { self.one() } }",
            ),
            ("c", "impl Machine { fn three(&self) { self.one() } }"),
            (
                "d",
                "impl Machine { fn four(&self) { self.one() } }\n#[cfg(test)]\nimpl Machine { fn no() { self.four() } }",
            ),
            ("tests/e", "impl Machine { fn five(&self) { self.four() } }"),
        ] {
            rooms.read(&format!("{FOLDER}{room}.rs"), text);
        }
        rooms.read("core/src/agent/a.rs", "impl Machine { fn one(&self) {} }");
        assert_eq!(rooms.largest_circle().into_iter().collect::<Vec<_>>(), ["a", "c", "job/b"]);
        assert_eq!(rooms.defined.len(), 5);
    }
}
