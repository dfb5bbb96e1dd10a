//! Interfaces in the Varlink language: what programs may notice of a change.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, bail, ensure};

use super::Change;

/// An interface: its methods, errors and named types.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    name: String,
    /// Parameters and members of the reply of each method.
    methods: BTreeMap<String, (Fields, Fields)>,
    errors: BTreeMap<String, Fields>,
    types: BTreeMap<String, Kind>,
}

/// Names and types, in their order.
type Fields = Vec<(String, Kind)>;

/// Type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// A type of the language, or the name of one of the interface.
    Plain(String),
    Optional(Box<Kind>),
    List(Box<Kind>),
    Map(Box<Kind>),
    Struct(Fields),
    /// One of these words.
    Words(Vec<String>),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) => f.write_str(name),
            Self::Optional(kind) => write!(f, "?{kind}"),
            Self::List(kind) => write!(f, "[]{kind}"),
            Self::Map(kind) => write!(f, "[string]{kind}"),
            Self::Words(words) => write!(f, "({})", words.join(", ")),
            Self::Struct(fields) => {
                let fields: Vec<String> = fields.iter().map(|(name, kind)| format!("{name}: {kind}")).collect();
                write!(f, "({})", fields.join(", "))
            }
        }
    }
}

/// Who writes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// A program, as a parameter: it may leave out what is optional.
    Program,
    /// A daemon, in a reply or an error: what is there now must stay.
    Daemon,
    /// Either, in a named type.
    Either,
}

/// Returns what programs that know the old interface may notice.
pub(super) fn changes(old: &Interface, new: &Interface) -> Vec<Change> {
    let mut found = Vec::new();
    let name = &old.name;
    if old.name != new.name {
        found.push(Change::new(name, format!("the interface is called {} now", new.name)));
    }
    for (method, (parameters, reply)) in &old.methods {
        let Some((new_parameters, new_reply)) = new.methods.get(method) else {
            found.push(Change::new(format!("{name}.{method}"), "the method is gone"));
            continue;
        };
        let parameter = |of: &str| format!("{name}.{method}({of})");
        fields(&parameter, parameters, new_parameters, Side::Program, &mut found);
        let member = |of: &str| format!("{name}.{method} -> {of}");
        fields(&member, reply, new_reply, Side::Daemon, &mut found);
    }
    for (error, members) in &old.errors {
        let Some(new_members) = new.errors.get(error) else {
            found.push(Change::new(format!("{name}.{error}"), "the error is gone"));
            continue;
        };
        fields(&|of| format!("{name}.{error}({of})"), members, new_members, Side::Daemon, &mut found);
    }
    for (of, old) in &old.types {
        let place = format!("{name}.{of}");
        match new.types.get(of) {
            Some(new) => kind(&place, old, new, Side::Either, &mut found),
            None => found.push(Change::new(place, "the type is gone")),
        }
    }
    found
}

/// Compares members. `place`: the place of a member by its name.
fn fields(place: &dyn Fn(&str) -> String, old: &Fields, new: &Fields, side: Side, found: &mut Vec<Change>) {
    let of = |fields: &Fields, name: &str| fields.iter().find(|(of, _)| of == name).map(|(_, kind)| kind.clone());
    for (name, old) in old {
        match of(new, name) {
            Some(new) => kind(&place(name), old, &new, side, found),
            None => found.push(Change::new(place(name), "is gone")),
        }
    }
    let is_added = |(name, kind): &&(String, Kind)| of(old, name).is_none() && !matches!(kind, Kind::Optional(_));
    for (name, kind) in new.iter().filter(is_added).filter(|_| side != Side::Daemon) {
        found.push(Change::new(place(name), format!("is new and required: make it ?{kind}")));
    }
}

fn kind(place: &str, old: &Kind, new: &Kind, side: Side, found: &mut Vec<Change>) {
    match (old, new) {
        (Kind::Optional(old), Kind::Optional(new)) => kind(place, old, new, side, found),
        (_, Kind::Optional(new)) if side == Side::Program => kind(place, old, new, side, found),
        (Kind::Optional(_), _) if side != Side::Daemon => {
            found.push(Change::new(place, format!("is required now, and was optional: {old}")));
        }
        (Kind::List(old), Kind::List(new)) | (Kind::Map(old), Kind::Map(new)) => {
            kind(&format!("{place}[]"), old, new, side, found);
        }
        (Kind::Struct(old), Kind::Struct(new)) => fields(&|of| format!("{place}.{of}"), old, new, side, found),
        (Kind::Words(old), Kind::Words(new)) => {
            let gone = old.iter().filter(|word| !new.contains(word));
            found.extend(gone.map(|word| Change::new(format!("{place}: {word}"), "the word is gone")));
        }
        _ if old == new => {}
        _ => found.push(Change::new(place, format!("is {new} now, and was {old}"))),
    }
}

impl Interface {
    /// Parses the text of an interface.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut reader = Reader { tokens: tokens(text), at: 0 };
        reader.expect("interface")?;
        let mut interface = Self { name: reader.word()?, ..Self::default() };
        while reader.at < reader.tokens.len() {
            match (reader.word()?.as_str(), reader.word()?) {
                ("method", name) => {
                    let parameters = reader.fields()?;
                    reader.expect("->")?;
                    interface.methods.insert(name, (parameters, reader.fields()?));
                }
                ("error", name) => drop(interface.errors.insert(name, reader.fields()?)),
                ("type", name) => drop(interface.types.insert(name, reader.kind()?)),
                (word, _) => bail!("line {}: expected method, error or type, not {word}", reader.line()),
            }
        }
        ensure!(!interface.methods.is_empty(), "the interface {} has no methods", interface.name);
        Ok(interface)
    }
}

/// Returns the tokens of a text, each with the number of its line: words, `->`, and single characters. Leaves out
/// comments.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let mut rest = text.split('#').next().unwrap_or_default().trim_start();
        while let Some(first) = rest.chars().next() {
            let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            let length = match first {
                _ if rest.starts_with("->") => 2,
                _ if is_of_word(first) => rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            found.push((line, rest[..length].to_owned()));
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// Tokens, and how many of them were read.
struct Reader {
    tokens: Vec<(usize, String)>,
    at: usize,
}

impl Reader {
    /// Returns the line of the next token, or of the last one.
    fn line(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(line, _)| *line)
    }

    /// Reads the next token if it is this one.
    fn skip(&mut self, token: &str) -> bool {
        let is_next = self.tokens.get(self.at).is_some_and(|(_, next)| next == token);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        let is_next = self.skip(token);
        ensure!(is_next, "line {}: expected {token}", self.line());
        Ok(())
    }

    fn word(&mut self) -> Result<String> {
        let line = self.line();
        let next = self.tokens.get(self.at).map(|(_, word)| word.clone());
        let is_word = |word: &String| word.starts_with(|c: char| c.is_ascii_alphabetic());
        let word = next.filter(is_word).with_context(|| format!("line {line}: expected a name"))?;
        self.at += 1;
        Ok(word)
    }

    fn fields(&mut self) -> Result<Fields> {
        match self.group()? {
            Kind::Struct(fields) => Ok(fields),
            _ => bail!("line {}: expected members with types", self.line()),
        }
    }

    /// Reads members or words in parentheses.
    fn group(&mut self) -> Result<Kind> {
        let (mut fields, mut words) = (Vec::new(), Vec::new());
        self.expect("(")?;
        while !self.skip(")") {
            let name = self.word()?;
            if self.skip(":") {
                fields.push((name, self.kind()?));
            } else {
                words.push(name);
            }
            if !self.skip(",") {
                self.expect(")")?;
                break;
            }
        }
        ensure!(fields.is_empty() || words.is_empty(), "line {}: a member has no type", self.line());
        Ok(if words.is_empty() { Kind::Struct(fields) } else { Kind::Words(words) })
    }

    fn kind(&mut self) -> Result<Kind> {
        if self.skip("?") {
            return Ok(Kind::Optional(Box::new(self.kind()?)));
        }
        if self.skip("[") {
            let is_map = self.skip("string");
            self.expect("]")?;
            let of = Box::new(self.kind()?);
            return Ok(if is_map { Kind::Map(of) } else { Kind::List(of) });
        }
        if self.tokens.get(self.at).is_some_and(|(_, next)| next == "(") {
            return self.group();
        }
        self.word().map(Kind::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "# A comment: method No() -> ()
interface a.B
type Mode (fast, slow)
type Pair (left: int, right: ?int)

method Run(
  job: string, nodes: ?string, env: ?[string]string, source: ?(name: string, at: ?int), mode: (go, stop)
) -> (id: string, ranks: ?string, rows: []object) # What was begun.
method Stop() -> ()
error Refused(code: string)
error Busy()
";

    fn found(new: &str) -> Vec<String> {
        let changes = changes(&Interface::parse(OLD).unwrap(), &Interface::parse(new).unwrap());
        changes.into_iter().map(|Change { place, what }| format!("{place}: {what}")).collect()
    }

    #[test]
    fn what_a_program_may_notice_is_found() {
        for (from, to, expect) in [
            // What programs do not notice.
            ("", "", ""),
            ("# A comment", "# Another", ""),
            ("method Stop() -> ()", "method Stop(why: ?string) -> (tasks: int)", ""),
            ("error Busy()", "error Busy(limit: int)\nerror Away()\nmethod Go() -> ()", ""),
            ("job: string, nodes: ?string", "nodes: ?string, job: ?string", ""),
            ("(name: string, at: ?int)", "(name: string, at: ?int, zone: ?string)", ""),
            ("(go, stop)", "(go, stop, wait)", ""),
            ("type Mode (fast, slow)", "type Mode (fast, slow, idle)", ""),
            // A method, an error, a type or a word that is gone, or has another name.
            ("method Stop() -> ()", "", "a.B.Stop: the method is gone"),
            ("method Stop", "method Halt", "a.B.Stop: the method is gone"),
            ("error Busy()", "error Full()", "a.B.Busy: the error is gone"),
            ("type Mode (fast, slow)", "", "a.B.Mode: the type is gone"),
            ("(fast, slow)", "(fast, sluggish)", "a.B.Mode: slow: the word is gone"),
            ("(go, stop)", "(go)", "a.B.Run(mode): stop: the word is gone"),
            ("interface a.B", "interface a.C", "a.B: the interface is called a.C now"),
            // Members.
            (", nodes: ?string", "", "a.B.Run(nodes): is gone"),
            ("nodes: ?string", "hosts: ?string", "a.B.Run(nodes): is gone"),
            ("id: string, ", "", "a.B.Run -> id: is gone"),
            ("id: string, ", "number: string, ", "a.B.Run -> id: is gone"),
            ("code: string", "number: string", "a.B.Refused(code): is gone"),
            ("(name: string, at: ?int)", "(name: string)", "a.B.Run(source).at: is gone"),
            // Types.
            ("nodes: ?string", "nodes: ?int", "a.B.Run(nodes): is int now, and was string"),
            ("id: string", "id: int", "a.B.Run -> id: is int now, and was string"),
            ("id: string", "id: ?string", "a.B.Run -> id: is ?string now, and was string"),
            ("ranks: ?string", "ranks: string", "a.B.Run -> ranks: is string now, and was ?string"),
            ("rows: []object", "rows: object", "a.B.Run -> rows: is object now, and was []object"),
            ("rows: []object", "rows: []string", "a.B.Run -> rows[]: is string now, and was object"),
            ("[string]string", "[string]int", "a.B.Run(env)[]: is int now, and was string"),
            ("[string]string", "[]string", "a.B.Run(env): is []string now, and was [string]string"),
            ("code: string", "code: int", "a.B.Refused(code): is int now, and was string"),
            ("left: int", "left: ?int", "a.B.Pair.left: is ?int now, and was int"),
            // What a program may leave out.
            ("nodes: ?string", "nodes: string", "a.B.Run(nodes): is required now, and was optional: ?string"),
            ("job: string", "job: string, by: int", "a.B.Run(by): is new and required: make it ?int"),
            ("at: ?int", "at: int", "a.B.Run(source).at: is required now, and was optional: ?int"),
            ("at: ?int", "at: ?int, zone: string", "a.B.Run(source).zone: is new and required: make it ?string"),
            ("left: int", "left: int, top: int", "a.B.Pair.top: is new and required: make it ?int"),
            ("right: ?int", "right: int", "a.B.Pair.right: is required now, and was optional: ?int"),
        ] {
            assert!(OLD.contains(from), "{from}");
            let found = found(&OLD.replacen(from, to, 1));
            assert_eq!(found, if expect.is_empty() { vec![] } else { vec![expect] }, "{from} -> {to}");
        }
    }

    #[test]
    fn what_is_no_interface_is_named_with_its_line() {
        for (text, expect) in [
            ("method A() -> ()", "line 1: expected interface"),
            ("interface a.B", "the interface a.B has no methods"),
            ("interface a.B\nmethod A() (x: int)", "line 2: expected ->"),
            ("interface a.B\n\nmethod A(x: int, y) -> ()", "line 3: a member has no type"),
            ("interface a.B\nmethod A(x, y) -> ()", "line 2: expected members with types"),
            ("interface a.B\nmethod A(x: ) -> ()", "line 2: expected a name"),
            ("interface a.B\nverb A() -> ()", "line 2: expected method, error or type, not verb"),
            ("interface a.B\nmethod A(x: int -> ()", "line 2: expected )"),
        ] {
            assert_eq!(Interface::parse(text).unwrap_err().to_string(), expect, "{text}");
        }
    }
}
