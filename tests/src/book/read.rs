//! Parser of a page of the book: from Markdown to steps that a test runs.

use anyhow::{Context, Result, bail};
use perilog_core::HostList;

/// A page of the book whose commands a test can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Name with the folder, such as `docs/quickstart.md`.
    pub name: String,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Line of the step in the page, counted from 1.
    pub line: usize,
    pub what: What,
}

/// Kind and content of a step. A host of `None` is the page's one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    File { path: String, text: String, mode: u32, hosts: Vec<Option<String>> },
    Command { command: String, expected: Vec<String>, hosts: Vec<Option<String>> },
    StandIn(String),
    NotRun(String),
}

/// A block of the page between two lines of three backticks.
struct Fence<'t> {
    kind: &'t str,
    /// Line number of the block's first line in the page, counted from 1.
    line: usize,
    lines: Vec<&'t str>,
}

impl Page {
    /// Reads and parses a page of the book; `name` is a file name in docs/, for example `quickstart.md`.
    ///
    /// # Errors
    /// The page does not exist, or one of the errors of [`parse`](Self::parse).
    pub fn open(name: &str) -> Result<Self> {
        Self::parse(&format!("docs/{name}"), &text(name)?)
    }

    /// Returns the text of a file that the page has the reader write.
    ///
    /// # Errors
    /// The page has no file of this path.
    pub fn file(&self, path: &str) -> Result<&str> {
        let found = self.steps.iter().find_map(|step| match &step.what {
            What::File { path: written, text, .. } if written == path => Some(text.as_str()),
            _ => None,
        });
        found.with_context(|| format!("{} has no file {path}", self.name))
    }

    /// Parses the Markdown of a page into steps; `name` is for messages.
    ///
    /// # Errors
    /// For example, a block is neither executable nor marked (`not run`, `stand-in`), or a mark has no block. The error
    /// has the line.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut steps = Vec::new();
        let mut mark: Option<What> = None;
        let mut lines = text.lines().zip(1..);
        while let Some((line, number)) = lines.next() {
            if let Some(kind) = line.strip_prefix("```") {
                let block =
                    lines.by_ref().take_while(|(line, _)| !line.starts_with("```")).map(|(line, _)| line).collect();
                let fence = Fence { kind: kind.trim(), line: number + 1, lines: block };
                let found = match mark.take() {
                    Some(mark) => vec![Step { line: number, what: mark }],
                    None => fence.steps().with_context(|| format!("{name}:{number}"))?,
                };
                steps.extend(found);
            } else if let Some(comment) = line.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")) {
                mark = match comment.trim().split_once(": ") {
                    Some(("not run", why)) => Some(What::NotRun(why.to_owned())),
                    Some(("stand-in", what)) => Some(What::StandIn(what.to_owned())),
                    _ => bail!("{name}:{number}: neither `not run: why` nor `stand-in: name`: {line}"),
                };
            } else if !line.trim().is_empty() && mark.is_some() {
                bail!("{name}:{number}: a mark is for the block that follows it at once");
            }
        }
        Ok(Self { name: name.to_owned(), steps })
    }
}

fn text(name: &str) -> Result<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// Returns the commands of a table's row in a page of the book: all that is between backticks behind its first cell.
///
/// # Errors
/// The page has no row, or several, with this first cell.
pub fn row(name: &str, first: &str) -> Result<Vec<String>> {
    let row = only(name, &text(name)?, &format!("| {first} | "))?;
    Ok(row.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Returns the command behind the prompt `# ` that a page of the book has in one line of a `text` block. `start`: the
/// beginning of the command.
///
/// # Errors
/// The page has no such line, or several.
pub fn illustrated(name: &str, start: &str) -> Result<String> {
    Ok(format!("{start}{}", only(name, &text(name)?, &format!("# {start}"))?))
}

/// Returns the rest of the one line of a page that begins with `start`.
fn only(name: &str, text: &str, start: &str) -> Result<String> {
    let mut rests = text.lines().filter_map(|line| line.strip_prefix(start));
    match (rests.next(), rests.next()) {
        (Some(rest), None) => Ok(rest.to_owned()),
        (None, _) => bail!("docs/{name} has no line that begins with {start:?}"),
        (Some(_), Some(_)) => bail!("docs/{name} has several lines that begin with {start:?}"),
    }
}

impl Fence<'_> {
    fn steps(&self) -> Result<Vec<Step>> {
        match self.kind {
            "text" => Ok(Vec::new()),
            "console" => self.commands(),
            "toml" | "ini" | "sh" | "json" => {
                let Some((path, mode, hosts)) = self.lines.iter().take(2).find_map(|line| file(line)) else {
                    bail!(
                        "a {} block without `# /path` or `# /path on HOSTS` in its first two lines: mark it `not run: \
                         why`",
                        self.kind
                    );
                };
                let text = self.lines.iter().flat_map(|line| [*line, "\n"]).collect();
                Ok(vec![Step { line: self.line, what: What::File { path, text, mode, hosts: hosts? } }])
            }
            other => bail!("a block of kind {other:?}: mark it `not run: why`, or make it `text`"),
        }
    }

    fn commands(&self) -> Result<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::new();
        let mut lines = self.lines.iter().zip(self.line..);
        while let Some((line, number)) = lines.next() {
            if let Some((host, command)) = prompt(line) {
                let mut command = command.to_owned();
                while command.ends_with('\\') {
                    let (more, _) = lines.next().context("a command that goes on and does not")?;
                    command.push('\n');
                    command.push_str(more);
                }
                let what = What::Command { command, expected: Vec::new(), hosts: hosts(host)? };
                steps.push(Step { line: number, what });
            } else if let Some(Step { what: What::Command { expected, .. }, .. }) = steps.last_mut() {
                expected.push((*line).to_owned());
            } else {
                bail!("does not begin with a prompt that says where (`n0# `): {line:?}");
            }
        }
        Ok(steps)
    }
}

/// Splits a typed line of a page, `n[0-3]# command` or `# command`, into host and command. `None`: the line is none of
/// these. A host of `None`: the line names no host.
fn prompt(line: &str) -> Option<(Option<&str>, &str)> {
    let (host, command) = line.split_once("# ")?;
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"[],-".contains(&b);
    host.bytes().all(fits).then(|| ((!host.is_empty()).then_some(host), command.trim()))
}

/// File mode where the page names none: the mode that an editor gives.
const MODE: u32 = 0o644;

/// Parses the line that names a file of the page, such as `# /etc/x.toml on n[0-3]` or `# /etc/x.d/10-y, mode 0755`,
/// into path, mode and hosts. `None`: the line names no file. A host of `None` is the page's one machine.
fn file(line: &str) -> Option<(String, u32, Result<Vec<Option<String>>>)> {
    let rest = line.strip_prefix("# /")?;
    let (rest, mode) = match rest.split_once(", mode ") {
        Some((rest, mode)) => (rest, u32::from_str_radix(mode, 8).ok()?),
        None => (rest, MODE),
    };
    let mut words = rest.split(' ');
    let path = format!("/{}", words.next()?);
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Some((path, mode, hosts(None))),
        (Some("on"), Some(on), None) => Some((path, mode, hosts(Some(on)))),
        _ => None,
    }
}

fn hosts(text: Option<&str>) -> Result<Vec<Option<String>>> {
    let Some(text) = text else { return Ok(vec![None]) };
    let list: HostList = text.parse().with_context(|| format!("the hosts {text}"))?;
    Ok(list.iter().map(|host| Some(host.to_string())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_block() {
        let text = "# T\n```console\nn[0-1]# one \\\n  two\nout\n\n# three\n```\n\n```toml\n# /etc/x.toml on ctl\na = \
                    1\n```\n\
            ```sh\n#!/bin/sh\n# /x/y, mode 0755\n```\n<!-- not run: needs a network -->\n```console\n$ apt\n```\n<!-- \
            stand-in: keys -->\n\n```sh\nx\n```\n```text\nx\n```\n";
        let page = Page::parse("docs/x.md", text).unwrap();
        let on = |hosts: &[&str]| {
            hosts.iter().map(|host| (!host.is_empty()).then(|| (*host).to_owned())).collect::<Vec<_>>()
        };
        let command = |text: &str, expected: &[&str], hosts: &[&str]| What::Command {
            command: text.to_owned(),
            expected: expected.iter().map(|line| (*line).to_owned()).collect(),
            hosts: on(hosts),
        };
        let file = |path: &str, text: &str, mode, hosts: &[&str]| What::File {
            path: path.to_owned(),
            text: text.to_owned(),
            mode,
            hosts: on(hosts),
        };
        let expect = [
            (3, command("one \\\n  two", &["out", ""], &["n0", "n1"])),
            (7, command("three", &[], &[""])),
            (11, file("/etc/x.toml", "# /etc/x.toml on ctl\na = 1\n", 0o644, &["ctl"])),
            (15, file("/x/y", "#!/bin/sh\n# /x/y, mode 0755\n", 0o755, &[""])),
            (19, What::NotRun("needs a network".to_owned())),
            (24, What::StandIn("keys".to_owned())),
        ];
        assert_eq!(page.steps, expect.map(|(line, what)| Step { line, what }));
        for (text, part) in [
            ("```console\nx\n```", "does not begin with a prompt"),
            ("```toml\na = 1\n```", "`# /path`"),
            ("```\nx\n```", "a block of kind"),
            ("<!-- later -->", "neither `not run"),
            ("<!-- not run: x -->\nprose\n```text\n```", "a mark is for the block"),
        ] {
            let error = format!("{:#}", Page::parse("docs/x.md", text).unwrap_err());
            assert!(error.contains(part) && error.starts_with("docs/x.md:"), "{error}");
        }
        assert_eq!(page.file("/x/y").unwrap(), "#!/bin/sh\n# /x/y, mode 0755\n");
        assert!(page.file("/x/z").is_err());
    }

    #[test]
    fn one_line_is_found_and_not_one_of_two() {
        let text = "| stop it | `one` and `two` |\n| start it | x |\n| start it | y |\n";
        assert_eq!(only("x.md", text, "| stop it | ").unwrap(), "`one` and `two` |");
        for start in ["| start it | ", "| move it | "] {
            assert!(only("x.md", text, start).unwrap_err().to_string().contains("docs/x.md has"), "{start}");
        }
    }
}
