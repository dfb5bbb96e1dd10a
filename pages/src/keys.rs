//! Page of a configuration file. The text is from the example file, which explains each key; the defaults are from the
//! program itself.

use toml::{Table, Value};

use crate::page::{Block, Page};

/// Placeholder in a path for a key that a site chooses, such as the name of an action or a script.
const NAME: &str = "NAME";

/// A table of an example configuration file.
#[derive(Debug, Default)]
struct Part {
    /// Path of the table, with placeholders for names that a site chooses: `["action", "NAME"]`.
    path: Vec<String>,
    /// Path of the table as the example file has it: `["action", "prolog"]`.
    real: Vec<String>,
    intro: String,
    groups: Vec<Group>,
}

/// Keys of one table in the example file that share an explanation, the comment above them.
#[derive(Debug, Default)]
struct Group {
    text: String,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    name: String,
    /// The value that the example file gives the key, as TOML text.
    value: String,
}

/// An example configuration file, parsed.
#[derive(Debug)]
pub struct Example {
    /// The paragraphs at the head of the file, without the first.
    head: Vec<String>,
    parts: Vec<Part>,
}

impl Example {
    /// Reads an example. `maps`: tables whose keys a site chooses, as paths (`action`, `action.NAME.script`).
    ///
    /// # Errors
    /// The line that cannot be read.
    pub fn read(text: &str, maps: &[&str]) -> Result<Self, String> {
        let mut blocks = text.splitn(2, "\n\n");
        let head = comment(blocks.next().unwrap_or_default().lines()).split("\n").skip(1).map(str::to_owned).collect();
        let mut parts = vec![Part::default()];
        let (mut pending, mut group) = (Vec::new(), Group::default());
        for line in blocks.next().unwrap_or_default().lines() {
            let close = |group: &mut Group, parts: &mut Vec<Part>| {
                if let Some(part) = parts.last_mut().filter(|_| !group.keys.is_empty()) {
                    part.groups.push(std::mem::take(group));
                }
            };
            let bare = line.strip_prefix("#! ").unwrap_or(line);
            if line.trim().is_empty() {
                close(&mut group, &mut parts);
            } else if bare.starts_with('#') {
                close(&mut group, &mut parts);
                pending.push(bare);
            } else if let Some(name) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                close(&mut group, &mut parts);
                let real = header(name).ok_or_else(|| format!("not a table: {line}"))?;
                let (path, intro) = (general(&real, maps), comment(pending.drain(..)));
                parts.push(Part { path, real, intro, groups: Vec::new() });
            } else if let Some((name, value)) = bare.split_once(" = ") {
                if !pending.is_empty() {
                    close(&mut group, &mut parts);
                    group.text = comment(pending.drain(..));
                }
                group.keys.push(Key { name: name.to_owned(), value: value.to_owned() });
            } else {
                return Err(format!("neither a comment nor a key: {line}"));
            }
        }
        if let Some(part) = parts.last_mut().filter(|_| !group.keys.is_empty()) {
            part.groups.push(group);
        }
        Ok(Self { head, parts })
    }

    /// Returns every explained key, with its tables: `action.NAME.retries.count`.
    pub fn keys(&self) -> Vec<String> {
        let mut found = Vec::new();
        for part in &self.parts {
            for key in part.groups.iter().flat_map(|group| &group.keys) {
                let path = [part.path.join("."), key.name.clone()].into_iter().filter(|step| !step.is_empty());
                let path = path.collect::<Vec<_>>().join(".");
                let inner = format!("x = {}", key.value).parse::<Table>().ok();
                if let Some(Value::Table(inner)) = inner.and_then(|table| table.get("x").cloned()) {
                    found.extend(inner.keys().map(|key| format!("{path}.{key}")));
                }
                found.push(path);
            }
        }
        found
    }

    /// Adds to the manual page a section for each table of the example file, with an entry for each explained group of
    /// keys. `defaults`: the program's default values.
    pub fn add(&self, page: &mut Page, defaults: &Table) {
        page.add("DESCRIPTION", self.head.iter().map(|text| Block::Paragraph(text.clone())).collect());
        for part in &self.parts {
            let title = if part.path.is_empty() { "KEYS".to_owned() } else { format!("[{}]", part.path.join(".")) };
            if !part.intro.is_empty() {
                page.add(&title, vec![Block::Paragraph(part.intro.clone())]);
            }
            for group in &part.groups {
                page.add(&title, vec![explained(group, part, defaults)]);
            }
        }
    }
}

fn explained(group: &Group, part: &Part, defaults: &Table) -> Block {
    let mut table = Some(defaults);
    for step in &part.real {
        table = table.and_then(|table| table.get(step)).and_then(Value::as_table);
    }
    let default = |key: &Key| table.and_then(|table| table.get(&key.name));
    let mut tags: Vec<String> = Vec::new();
    let mut text = vec![group.text.trim_start_matches("Example. ").to_owned()];
    let mut unset = Vec::new();
    for key in &group.keys {
        let example = format!("`{} = {}`", key.name, key.value);
        if tags.iter().any(|tag| tag.starts_with(&format!("`{} ", key.name))) {
            text.push(format!("For example {example}."));
            continue;
        }
        match default(key) {
            Some(default) => tags.push(format!("`{} = {default}`", key.name)),
            None => {
                unset.push(format!("`{}`", key.name));
                tags.push(example);
            }
        }
    }
    match unset.len() {
        0 => {}
        1 if group.keys.len() == 1 => text.push("Not set by default; the value is an example.".to_owned()),
        _ => text.push(format!("Not set by default: {}; what is shown is an example.", unset.join(", "))),
    }
    let text = text.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    Block::Tagged(tags, vec![Block::Paragraph(text)])
}

/// Splits a table's header into the steps of its path: `action.prolog.script."50-x"` has four. `None`: `name` is no
/// valid TOML key.
fn header(name: &str) -> Option<Vec<String>> {
    let mut table: Table = format!("[{name}]").parse().ok()?;
    let mut path = Vec::new();
    while let Some((key, value)) = table.into_iter().next() {
        path.push(key);
        match value {
            Value::Table(inner) => table = inner,
            _ => return None,
        }
    }
    Some(path)
}

/// Returns the path with `NAME` in place of keys that a site chooses.
fn general(real: &[String], maps: &[&str]) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    for step in real {
        let chosen = maps.contains(&path.join(".").as_str());
        path.push(if chosen { NAME.to_owned() } else { step.clone() });
    }
    path
}

/// Joins the lines of a comment to paragraphs, each on one line of the result. An empty line ends a paragraph.
fn comment<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for line in lines {
        let line = line.trim_start_matches('#').trim();
        if line.is_empty() {
            text = text.trim_end().to_owned() + "\n";
        } else {
            text.push_str(line);
            text.push(' ');
        }
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r##"# x: the file. What is here is the default.
#
# Durations are long. SIGHUP reads
# everything.

# The host.
#! host = "n0"

# How much.
keep = 8
#! keep = 9

# A session.
[tls]
on = true
# Two paths.
ca = "/a"
cert = "/b"

#! [action.prolog]
# Example. A weight.
#! weight = 5
#! [action.prolog.script."50-x"]
#! retries = { count = 3, backoff = "1s" }
"##;

    #[test]
    fn an_example_is_read() {
        let example = Example::read(TEXT, &["action", "action.NAME.script"]).unwrap();
        assert_eq!(example.head, ["Durations are long. SIGHUP reads everything."]);
        let keys = [
            "host",
            "keep",
            "keep",
            "tls.on",
            "tls.ca",
            "tls.cert",
            "action.NAME.weight",
            "action.NAME.script.NAME.retries.backoff",
            "action.NAME.script.NAME.retries.count",
            "action.NAME.script.NAME.retries",
        ];
        assert_eq!(example.keys(), keys);
        assert!(Example::read("# x\n\nsomething else\n", &[]).is_err());
    }

    #[test]
    fn defaults_are_the_programs_own() {
        let example = Example::read(TEXT, &["action", "action.NAME.script"]).unwrap();
        let mut page = Page::new("x", 5, "y");
        example.add(&mut page, &"keep = 7\n[tls]\non = true\nca = \"/a\"".parse().unwrap());
        let tagged = |tags: &[&str], text: &str| {
            Block::Tagged(tags.iter().map(|tag| (*tag).to_owned()).collect(), vec![Block::Paragraph(text.to_owned())])
        };
        assert_eq!(
            page.sections[1],
            (
                "KEYS".to_owned(),
                vec![
                    tagged(&["`host = \"n0\"`"], "The host. Not set by default; the value is an example."),
                    tagged(&["`keep = 7`"], "How much. For example `keep = 9`."),
                ]
            )
        );
        let (title, tls) = &page.sections[2];
        assert_eq!((title.as_str(), &tls[0]), ("[tls]", &Block::Paragraph("A session.".to_owned())));
        assert_eq!(
            tls[2],
            tagged(
                &["`ca = \"/a\"`", "`cert = \"/b\"`"],
                "Two paths. Not set by default: `cert`; what is shown is an example."
            )
        );
        assert_eq!(page.sections[3].0, "[action.NAME]");
    }
}
