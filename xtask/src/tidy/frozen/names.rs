//! Names that a site's own files have: keys of configuration, units, metrics, events, exit statuses. Each is a line of
//! a list: what it is, and its name.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use perilog_core::milestone::EVENTS;

use super::{Change, read};
use crate::tidy::Findings;
use crate::tidy::rust::texts;
use crate::tidy::sources_of;

/// Beginning of the lines of keys.
pub(super) const KEY: &str = "key ";
/// Folder of the sources that write events into the logs of jobs.
const EVENTS_FROM: &str = "core/src/controller/";
/// Beginnings of calls that write an event; the second argument is the name.
const CALLS: [&str; 2] = [".event(", ".action_event("];
const METRICS: &str = "controller/src/metrics/figures.rs";
const EXITS: &str = "cli/src/exit.rs";
/// Configuration files, each with the example, which explains every key (a test of `pages/` holds that).
const CONFIGURATIONS: [(&str, &str); 3] = [
    ("agent.toml", "agent/agent.toml.example"),
    ("controller.toml", "controller/controller.toml.example"),
    ("edge.toml", "flux/edge/edge.toml.example"),
];
/// Tables whose keys are names that a site chooses.
const CHOSEN: [&str; 3] = ["action", "script", "external"];
/// Table whose keys are variables of a site.
const VARIABLES: &str = "env";
const UNITS: &str = "units";
const ENDS: [&str; 5] = [".service", ".socket", ".timer", ".slice", ".service.d"];

/// Returns the list of the tree's names.
pub(super) fn present(root: &Path) -> Result<String> {
    let mut lines = BTreeSet::new();
    let mut add = |kind: &str, from: &str, names: Vec<String>| -> Result<()> {
        ensure!(!names.is_empty(), "{from}: found no {kind} (xtask/src/tidy/frozen/names.rs)");
        lines.extend(names.into_iter().map(|name| format!("{kind} {name}\n")));
        Ok(())
    };
    add("event", EVENTS_FROM, events(root)?)?;
    add("metric", METRICS, metrics(&read(root, METRICS)?))?;
    add("exit", EXITS, exits(&read(root, EXITS)?))?;
    for (file, example) in CONFIGURATIONS {
        let keys = keys(&read(root, example)?);
        add(KEY.trim_end(), example, keys.into_iter().map(|key| format!("{file} {key}")).collect())?;
    }
    let entries = std::fs::read_dir(root.join(UNITS)).with_context(|| format!("reading {UNITS}"))?;
    let files = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut units = files.collect::<std::io::Result<Vec<String>>>()?;
    units.retain(|name| ENDS.iter().any(|end| name.ends_with(end)));
    add("unit", UNITS, units)?;
    Ok(lines.into_iter().collect())
}

/// Returns the names of a release that are gone.
pub(super) fn changes(old: &str, new: &str) -> Vec<Change> {
    let new: BTreeSet<&str> = new.lines().collect();
    old.lines().filter(|line| !new.contains(line)).map(|line| Change::new(line, "is gone")).collect()
}

/// Checks that each event that is written is in the list of events, from which the manual page is checked.
pub(super) fn check_events(root: &Path, findings: &mut Findings) -> Result<()> {
    let unlisted = events(root)?.into_iter().filter(|name| !EVENTS.contains(&name.as_str()));
    findings.errors.extend(unlisted.map(|name| format!("core/src/milestone.rs: EVENTS lacks the event `{name}`")));
    Ok(())
}

/// Returns the names of the events that the controller's machine writes.
fn events(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in sources_of(&root.join("core"))? {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        if name.starts_with(EVENTS_FROM) && !name.contains("/tests/") {
            found.extend(written(product(&read(root, &name)?)));
        }
    }
    Ok(found)
}

/// Returns a source without its tests.
fn product(source: &str) -> &str {
    source.split("#[cfg(test)]").next().unwrap_or_default()
}

/// Returns the texts in the second argument of each of [`CALLS`].
fn written(source: &str) -> Vec<String> {
    let calls = CALLS.iter().flat_map(|call| source.match_indices(*call).map(|(at, call)| &source[at + call.len()..]));
    calls.flat_map(|arguments| quoted(second(arguments))).collect()
}

/// Returns the second argument of a call. `arguments`: the source behind the call's parenthesis.
fn second(arguments: &str) -> &str {
    let (mut depth, mut begin, mut in_text) = (0_u32, None, false);
    for (at, letter) in arguments.char_indices() {
        match letter {
            '"' => in_text = !in_text,
            _ if in_text => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' | ',' if depth == 0 => match begin {
                Some(begin) => return &arguments[begin..at],
                None if letter == ',' => begin = Some(at + 1),
                None => return "",
            },
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    ""
}

fn quoted(source: &str) -> Vec<String> {
    let texts = texts(source).into_iter();
    texts.filter_map(|(_, text)| Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned())).collect()
}

fn metrics(source: &str) -> Vec<String> {
    let is_metric = |text: &String| text.strip_prefix("perilog_").is_some_and(|name| !name.contains([' ', '.']));
    quoted(product(source)).into_iter().filter(is_metric).collect()
}

/// Returns the rows of the table of exit statuses, such as `3 Timeout`.
fn exits(source: &str) -> Vec<String> {
    let row = |line: &str| {
        let mut cells = line.trim_start().strip_prefix("(Exit::")?.split(',').map(str::trim);
        let (name, code) = (cells.next()?, cells.next()?.parse::<u8>().ok()?);
        Some(format!("{code} {name}"))
    };
    product(source).lines().filter_map(row).collect()
}

/// Returns the keys of an example file, with their tables: `action.NAME.timeout`.
fn keys(example: &str) -> Vec<String> {
    let (mut found, mut table) = (Vec::new(), Vec::new());
    for line in example.lines() {
        let line = line.strip_prefix("#! ").unwrap_or(line);
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = general(header);
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with(['#', ' ']))
            && table.last().is_none_or(|last| last != VARIABLES)
        {
            found.push(table.iter().map(String::as_str).chain([key]).collect::<Vec<_>>().join("."));
        }
    }
    found
}

/// Returns the path of a table with `NAME` for each name that a site chooses.
fn general(header: &str) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    for step in header.split('.') {
        let is_chosen = path.last().is_some_and(|last| CHOSEN.contains(&last.as_str()));
        path.push(if is_chosen { "NAME".to_owned() } else { step.to_owned() });
    }
    path
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const EVENT: &str = "fn f(&mut self, cx: &mut Context) {
    self.event(&job, \"finish\", json!({\"a\": [1, 2]}), cx);
    self.jobs.action_event(
        task.of(a, \"none\"),
        if last { \"job-finish\" } else { \"job-hand-over\" },
        json!({\"ranks\": ranks}),
        cx,
    );
    self.event(&job, name, \"none\".into(), cx);
    log.event(\"none\");
}
#[cfg(test)]
fn g() { self.event(&job, \"none\", context, cx) }
";
    const METRIC: &str = "const A: &str = \"perilog run ends\";
text.metric(\"perilog_epoch\", Type::Gauge, \"The epoch of `perilog_epoch`.\");
for (name, help) in [(\"perilog_tasks_total\", \"Tasks.\")] {}
";
    const EXIT: &str = "const TABLE: &[(Exit, u8, &str)] = &[
    (Exit::Ok,       0,   \"ok, 1\"),
    (Exit::NotNow,   10,
     \"a long text\"),
];
#[cfg(test)]
    (Exit::Lost, 4),
";
    const EXAMPLE: &str = "# host = is a comment
#! host = \"n0\"
[tls]
ca = \"x\"
#! crl = \"y\"
#! [action.prolog]
#! command = [\"a = b\"]
#! [action.prolog.env]
#! SITE = \"west\"
#! [action.prolog.script.\"50-mount\"]
#! timeout = \"2m\"
";

    /// Writes the files from which names are read.
    pub(in crate::tidy::frozen) fn write_tree(root: &Path) {
        let files = [("core/src/controller/job/run.rs", EVENT), (METRICS, METRIC), (EXITS, EXIT)];
        let more = [("units/perilog.slice", ""), ("units/perilog-task-.service.d/a.conf", ""), ("units/a.preset", "")];
        for (name, text) in files.into_iter().chain(more).chain(CONFIGURATIONS.map(|(_, example)| (example, EXAMPLE))) {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn names_are_read_from_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        write_tree(tree.path());
        let present = present(tree.path()).unwrap();
        let is_of_others = |line: &&str| !line.contains("controller.toml") && !line.contains("edge.toml");
        let expect = [
            "event finish",
            "event job-finish",
            "event job-hand-over",
            "exit 0 Ok",
            "exit 10 NotNow",
            "key agent.toml action.NAME.command",
            "key agent.toml action.NAME.script.NAME.timeout",
            "key agent.toml host",
            "key agent.toml tls.ca",
            "key agent.toml tls.crl",
            "metric perilog_epoch",
            "metric perilog_tasks_total",
            "unit perilog-task-.service.d",
            "unit perilog.slice",
        ];
        assert_eq!(present.lines().filter(is_of_others).collect::<Vec<_>>(), expect);
        std::fs::write(tree.path().join(METRICS), "").unwrap();
        assert!(super::present(tree.path()).unwrap_err().to_string().contains("found no metric"));
    }

    #[test]
    fn a_name_that_is_gone_is_found() {
        let old = "event finish\nmetric perilog_epoch\n";
        for (new, expect) in [
            (old, vec![]),
            ("event finish\nevent start\nmetric perilog_epoch\n", vec![]),
            ("metric perilog_epoch\n", vec!["event finish"]),
            ("event finish\nmetric perilog_epochs\n", vec!["metric perilog_epoch"]),
        ] {
            let places: Vec<String> = changes(old, new).into_iter().map(|change| change.place).collect();
            assert_eq!(places, expect, "{new}");
        }
    }

    #[test]
    fn an_event_that_is_not_listed_is_found() {
        let tree = tempfile::tempdir().unwrap();
        write_tree(tree.path());
        let errors = || {
            let mut findings = Findings::default();
            check_events(tree.path(), &mut findings).unwrap();
            findings.errors
        };
        assert_eq!(errors(), [""; 0]);
        std::fs::write(tree.path().join("core/src/controller/a.rs"), "self.event(job, \"dance\", x, cx)").unwrap();
        assert_eq!(errors(), ["core/src/milestone.rs: EVENTS lacks the event `dance`"]);
    }
}
