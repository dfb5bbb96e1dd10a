use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Deserialize, PartialEq, Default)]
#[serde(rename_all = "kebab-case", default)]
struct Limits {
    timeout: Option<Even>,
    tasks: Option<u32>,
}

/// A type that refuses odd numbers: an example of a value with a check of its own.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(try_from = "String")]
struct Even(u32);

impl TryFrom<String> for Even {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse::<u32>() {
            Ok(number) if number % 2 == 0 => Ok(Self(number)),
            _ => Err(format!("`{text}` is no even number")),
        }
    }
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
struct Action {
    scripts: Vec<String>,
    #[serde(default)]
    limits: Limits,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
struct Config {
    address: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    action: BTreeMap<String, Action>,
    #[serde(default)]
    rule: Vec<Limits>,
}

fn messages(text: &str) -> String {
    parse::<Config>("a.toml", text).expect_err("must be refused").to_string()
}

#[test]
fn a_good_file_is_its_value() {
    let text = "address = 'a'\n[action.prolog]\nscripts = ['/x']\nlimits.timeout = '4'\n[[rule]]\ntasks = 1\n";
    let config: Config = parse("a.toml", text).unwrap();
    assert_eq!(config.action["prolog"].limits.timeout, Some(Even(4)));
    assert_eq!(config.rule[0].tasks, Some(1));
}

#[test]
fn errors_point_at_the_character() {
    for (text, expect) in [
        // A wrong type.
        (
            "address = 'a'\nport = 'x'\n",
            "a.toml:2:8: port: invalid type: string \"x\", expected u16\n   |\n 2 | port = 'x'\n   |        ^^^",
        ),
        // A check of a value's own type, deep inside.
        (
            "address = 'a'\n[action.prolog]\nscripts = []\n[action.prolog.limits]\n\ttimeout = \"3\"\n",
            "a.toml:5:12: action.prolog.limits.timeout: `3` is no even number\n   |\n 5 | \ttimeout = \"3\"\n   \
             | \t          ^^^",
        ),
        // A missing key, in a table and in the whole.
        (
            "address = 'a'\n\n[action.epilog]\n",
            "a.toml:3:1: action.epilog: missing key `scripts`\n   |\n 3 | [action.epilog]\n   | ^^^^^^^^^^^^^^^",
        ),
        ("port = 1\n", "a.toml: missing key `address`"),
        // A typo, an unknown key, and an unknown key inside an array of tables.
        (
            "address = 'a'\n[action.p]\nscripts = []\nlimits.time-out = '5'\n",
            "a.toml:4:8: action.p.limits.time-out: unknown key `time-out` in `action.p.limits`; did you mean \
             `timeout`?\n   |\n 4 | limits.time-out = '5'\n   |        ^^^^^^^^",
        ),
        (
            "address = 'a'\nzebra = 1\n",
            "a.toml:2:1: zebra: unknown key `zebra`; known are `address`, `port`, `action`, `rule`\n   |\n 2 | zebra = \
             1\n   | ^^^^^",
        ),
        (
            "address = 'a'\n[[rule]]\n[[rule]]\ntask = 1\n",
            "a.toml:4:1: rule[1].task: unknown key `task` in `rule[1]`; did you mean `tasks`?\n   |\n 4 | task = 1\n   \
             | ^^^^",
        ),
        // Wrong syntax.
        (
            "address = 'a'\nport = \n",
            "a.toml:2:8: string values must be quoted, expected literal string\n   |\n 2 | port = \n   |        ^",
        ),
    ] {
        assert_eq!(messages(text), expect, "{text}");
    }
}

#[test]
fn all_that_is_wrong_comes_at_once() {
    let error = parse::<Config>(
        "a.toml",
        "address = 7\nprot = 1\nport = 'x'\n[action.a]\nscripts = 3\n[action.b]\nscripts = []\nlimits = \
         { timeout = '1', tasks = -1 }\n",
    )
    .unwrap_err();
    let found: Vec<_> =
        error.problems().iter().map(|p| (p.position.unwrap().0, p.key.clone().unwrap_or_default())).collect();
    let expect = [(1, "address"), (2, "prot"), (3, "port"), (5, "action.a.scripts"), (8, "action.b.limits.timeout")];
    for (line, key) in expect {
        assert!(found.contains(&(line, key.to_owned())), "{line} {key} not in {found:?}");
    }
    assert!(found.contains(&(8, "action.b.limits.tasks".to_owned())), "{found:?}");
    assert!(!error.to_string().contains("missing"), "what we took out is not missing: {error}");
}

#[test]
fn a_hopeless_file_ends_in_a_short_report() {
    let text: String = (0..5000).map(|i| format!("key{i} = 1\n")).collect();
    let error = parse::<Config>("a.toml", &text).unwrap_err();
    assert!(error.problems().len() <= MAX_PROBLEMS + 1);
    // 64 KiB of this took 39 s of CPU.
    let error = parse::<Config>("a.toml", &"=".repeat(65_536)).unwrap_err();
    assert_eq!(error.problems().len(), MAX_PROBLEMS + 1);
    let text = error.to_string();
    assert!(text.contains("the first 20 of ") && text.len() < 16_384, "{text}");
}

#[test]
fn odd_texts_are_refused_without_a_panic() {
    for text in [
        "\u{feff}x",
        "a = \"\u{1b}[31m\"",
        "é = \"é",
        "[",
        "=",
        "a.b = 1\na = 2",
        "\"\" = 1",
        "x = \"\"\"\n\n",
        "[[a]]\n[a]",
        "日本 = 1",
        "address = 'é' port",
        &"[".repeat(10_000),
        &"a.".repeat(10_000),
        "x = 0x",
        "\r\n\r\n=\r\n",
    ] {
        let report = messages(text);
        assert!(!report.contains('\u{1b}'), "{report}");
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::set_permissions(dir.path().join("d"), Permissions::from_mode(0o755)).unwrap();
        let files_ = Self(dir);
        for (name, text) in files {
            fs::write(files_.path(name), text).unwrap();
            files_.mode(name, 0o644);
        }
        files_
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    fn load(&self) -> Result<Loaded<Config>, ConfigError> {
        load(&self.path("main.toml"), MainFile::Required, Some(&self.path("d")))
    }
}

#[test]
fn drop_ins_replace_and_merge_in_byte_order() {
    let files = Files::new(&[
        ("main.toml", "address = 'main'\nport = 1\n[action.a]\nscripts = ['1', '2']\nlimits.tasks = 7\n"),
        ("d/90.toml", "address = '90'\n"),
        ("d/10.toml", "address = '10'\naction.a = { scripts = ['3'], limits.timeout = '8' }\n"),
        ("d/.hidden.toml", "="),
        ("d/note.txt", "="),
    ]);
    let loaded = files.load().unwrap();
    assert_eq!(loaded.files, [files.path("main.toml"), files.path("d/10.toml"), files.path("d/90.toml")]);
    let config = loaded.value;
    assert_eq!((config.address.as_str(), config.port), ("90", 1));
    assert_eq!(config.action["a"].scripts, ["3"]);
    assert_eq!(config.action["a"].limits, Limits { timeout: Some(Even(8)), tasks: Some(7) });
}

#[test]
fn a_required_key_may_be_in_any_file() {
    let files = Files::new(&[("main.toml", "port = 1\n"), ("d/1.toml", "address = 'x'\n")]);
    assert_eq!(files.load().unwrap().value.address, "x");
}

#[test]
fn every_file_is_checked_even_where_another_replaces_it() {
    let files = Files::new(&[
        ("main.toml", "address = 'x'\nport = 'wrong'\n"),
        ("d/1.toml", "port = 5\n"),
        ("d/2.toml", "poort = 5\n"),
        ("d/3.toml", "port =\n"),
    ]);
    let error = files.load().unwrap_err();
    let found: Vec<_> = error.problems().iter().map(|p| (p.file.clone(), p.position)).collect();
    assert_eq!(
        found,
        [
            (files.path("main.toml"), Some((2, 8))),
            (files.path("d/2.toml"), Some((1, 1))),
            (files.path("d/3.toml"), Some((1, 7))),
        ]
    );
}

#[test]
fn a_fault_of_the_whole_points_into_the_file_that_made_it() {
    let files = Files::new(&[("main.toml", "address = 'x'\n"), ("d/1.toml", "\n[action.z]\n")]);
    let error = files.load().unwrap_err();
    assert_eq!(error.problems().len(), 1, "{error}");
    assert_eq!(error.problems()[0].file, files.path("d/1.toml"));
    assert_eq!(error.problems()[0].position, Some((2, 1)));
}

#[test]
fn files_that_others_can_write_are_refused() {
    let text = "address = 'x'\n";
    let files = Files::new(&[("main.toml", text), ("d/1.toml", text)]);
    files.load().unwrap();
    for (name, mode) in [("main.toml", 0o664), ("d/1.toml", 0o646), ("d", 0o775), ("", 0o777)] {
        let before = fs::metadata(files.path(name)).unwrap().permissions();
        files.mode(name, mode);
        let error = files.load().unwrap_err().to_string();
        assert!(error.contains(&format!("mode {mode:04o}")), "{error}");
        fs::set_permissions(files.path(name), before).unwrap();
    }
}

#[test]
fn the_main_file_is_missed_only_where_it_is_required() {
    let files = Files::new(&[("d/1.toml", "address = 'x'\n")]);
    assert!(files.load().unwrap_err().to_string().contains("required"));
    let loaded = load::<Config>(&files.path("main.toml"), MainFile::Optional, Some(&files.path("d"))).unwrap();
    assert_eq!(loaded.value.address, "x");
    let none = load::<Config>(&files.path("main.toml"), MainFile::Optional, Some(&files.path("none"))).unwrap_err();
    assert_eq!(none.problems()[0].message, "missing key `address`");
}

#[test]
fn what_is_no_text_file_is_refused() {
    let files = Files::new(&[("d/1.toml", "")]);
    fs::create_dir(files.path("main.toml")).unwrap();
    assert!(files.load().unwrap_err().to_string().contains("regular file"));
    let files = Files::new(&[("main.toml", "")]);
    fs::write(files.path("main.toml"), b"a = '\xff'").unwrap();
    assert!(files.load().unwrap_err().to_string().contains("UTF-8 at byte 5"));
    fs::write(files.path("main.toml"), vec![b'#'; 2 << 20]).unwrap();
    assert!(files.load().unwrap_err().to_string().contains("larger"));
}

#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Default)]
#[serde(rename_all = "kebab-case", default)]
struct Node {
    max_tasks: u32,
    names: Vec<String>,
    log: String,
    action: BTreeMap<String, BTreeMap<String, String>>,
}

fn node(files: &Files) -> Loaded<Node> {
    load(&files.path("main.toml"), MainFile::Required, Some(&files.path("d"))).unwrap()
}

#[test]
fn printed_values_name_their_line_and_read_back() {
    let files = Files::new(&[
        ("main.toml", "max-tasks = 3\n[action.'a b']\nuser = 'x # \"y\"'\ncwd = '/'\n"),
        ("d/10.toml", "\n\nmax-tasks = 4\naction.'a b'.user = 'u\\n'\nnames = ['1',\n '2']\n"),
    ]);
    let loaded = node(&files);
    let text = loaded.print().unwrap();
    let (main, dropin) = (files.path("main.toml"), files.path("d/10.toml"));
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key}: {text}"));
    for (key, origin) in [
        ("max-tasks = 4 ", format!("# {}:3", dropin.display())),
        ("names = [\"1\", \"2\"] ", format!("# {}:5", dropin.display())),
        ("log = \"\" ", "# default".to_owned()),
        ("cwd = \"/\" ", format!("# {}:4", main.display())),
        ("user = ", format!("# {}:4", dropin.display())),
    ] {
        assert!(line(key).ends_with(&origin), "{key}: {text}");
    }
    assert!(text.starts_with(&format!("# read: {}\n# read: {}\n", main.display(), dropin.display())), "{text}");
    assert_eq!(parse::<Node>("printed", &text).unwrap(), loaded.value, "{text}");
}

#[test]
fn a_reload_logs_what_counts_now_and_what_at_the_next_start() {
    let files = Files::new(&[("main.toml", "max-tasks = 3\nlog = 'info'\n[action.a]\nuser = 'x'\n")]);
    let started = node(&files).value;
    let keys = |changes: &[Change]| changes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let main = files.path("main.toml").display().to_string();
    let late = ["max-tasks", "act"];

    fs::write(files.path("main.toml"), "log = 'debug'\nmax-tasks = 4\n").unwrap();
    let second = node(&files);
    let changes = Changes::between(&started, &started, &second, &late).unwrap();
    assert_eq!(keys(&changes.applied), ["action.a.user (default)".to_owned(), format!("log ({main}:1)")]);
    assert_eq!(keys(&changes.waiting), [format!("max-tasks ({main}:2)")]);
    assert_eq!(changes.remark().as_deref(), Some("restart needed for max-tasks"));

    // A second read reports no new change, but still the waiting change. Reverting the key removes the waiting change.
    let changes = Changes::between(&started, &second.value, &second, &late).unwrap();
    assert_eq!((changes.applied.len(), changes.waiting.len()), (0, 1));
    fs::write(files.path("main.toml"), "log = 'debug'\nmax-tasks = 3\n").unwrap();
    assert_eq!(Changes::between(&started, &second.value, &node(&files), &late).unwrap(), Changes::default());
}
