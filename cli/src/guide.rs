//! Guides a newcomer through the command line: verbs in groups, examples in `--help`, and the verb that a word of
//! another tool (`sacct`, `cordon`) stands for.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::fault::Fault;

/// The verbs of `perilog --help`, in groups.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "See what runs, and what failed",
        &["jobs", "ps", "show", "logs", "events", "timeline", "stats", "skew", "failed", "top", "wait"],
    ),
    ("Nodes", &["nodes", "why", "drain", "undrain", "node"]),
    ("Act on jobs", &["run", "cancel", "kill", "resolve"]),
    ("Controller", &["status", "quiesce", "resume", "controller", "export"]),
    ("Set up and check", &["init", "doctor", "lint", "try", "ca", "token"]),
    ("For resource managers and services", &["job", "action", "milestone", "hook"]),
];

/// Daily tasks, each with the command to type, for `perilog --help`.
const TASKS: [(&str, &str); 10] = [
    ("What failed last night?", "perilog jobs --failed --since 12h"),
    ("Which nodes are out, and why?", "perilog drain"),
    ("Why does n7 get no jobs?", "perilog why n7"),
    ("Take n3 out; put it back", "perilog drain n3 \"bad dimm\"; perilog undrain n3"),
    ("What ran in the last hour?", "perilog jobs --since 1h"),
    ("What hangs, and since when?", "perilog ps"),
    ("Follow the output of a job's scripts", "perilog logs JOB --follow"),
    ("End a hung epilog", "perilog kill JOB epilog --ranks n3 -s KILL"),
    ("Begin nothing new; begin again", "perilog quiesce; perilog resume"),
    ("On which nodes are prologs slow?", "perilog stats prolog --by node"),
];

/// Words of Slurm, kubectl and others for what a verb of perilog does, each with the command that is meant.
const WORDS: [(&[&str], &str); 17] = [
    (&["sacct", "history", "list", "ls"], "perilog jobs (also ended ones); perilog ps (unfinished work)"),
    (&["squeue", "queue"], "perilog ps (unfinished work); perilog jobs (also ended ones)"),
    (&["get"], "perilog jobs; perilog ps; perilog nodes"),
    (&["sinfo"], "perilog nodes; perilog drain (drained nodes with their reasons)"),
    (&["describe", "info", "inspect"], "perilog show JOB; perilog why NODE"),
    (&["scontrol"], "perilog show JOB; perilog why NODE; perilog drain NODE \"REASON\"; perilog undrain NODE"),
    (&["cordon", "down", "offline"], "perilog drain NODE \"REASON\""),
    (&["uncordon", "up", "online", "return"], "perilog undrain NODE"),
    (&["log", "tail", "journal", "journalctl"], "perilog logs JOB (with --follow: new lines as they come)"),
    (&["scancel", "stop", "terminate"], "perilog cancel JOB (scripts may clean up); perilog kill JOB (sends a signal)"),
    (&["start", "restart", "rerun", "retry"], "perilog run ACTION --job JOB"),
    (&["delete", "remove", "forget"], "perilog node forget NODE; perilog job forget JOB; perilog job cancel JOB"),
    (&["release"], "perilog job finish JOB (hands its nodes to the epilog)"),
    (&["restore", "backup", "recover", "take-over"], "perilog controller backup, restore or recover"),
    (
        &["enroll", "enrol", "join"],
        "perilog init node (on the node); perilog token create NODE (on the controller's host)",
    ),
    (&["pause", "suspend", "unpause", "continue"], "perilog quiesce (begin nothing new); perilog resume (begin again)"),
    (&["check", "health", "diagnose", "sdiag", "test"], "perilog doctor; perilog status; perilog try DIRECTORY"),
];

/// Adds the groups of verbs and the daily tasks to `--help`, and examples to the `--help` of each verb.
pub(crate) fn guided(mut root: Command) -> Command {
    let about = |name: &str| {
        let verb = root.find_subcommand(name);
        verb.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default()
    };
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        text.push_str(&format!("{group}:\n"));
        verbs.iter().for_each(|name| text.push_str(&format!("  {name:<11}{}\n", about(name))));
        text.push('\n');
    }
    text.push_str("Daily tasks:\n");
    TASKS.iter().for_each(|(task, command)| text.push_str(&format!("  {task:<38}{command}\n")));
    root = root.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\n{{options}}{{after-help}}"
    ));
    let names: Vec<String> = root.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for name in names {
        let Some(examples) = examples(&name) else { continue };
        root = root.mut_subcommand(name, |verb| {
            let after = verb.get_after_help().map(|after| format!("\n\n{after}")).unwrap_or_default();
            verb.after_long_help(format!("Examples:\n{examples}{after}"))
        });
    }
    root
}

/// Returns the examples of a verb's manual page, indented.
fn examples(name: &str) -> Option<String> {
    // The page of a verb with a daemon's name has a name of its own.
    let pages = include_str!("../../pages/text/verbs.md").split("=== perilog-").skip(1);
    let page = pages.into_iter().find(|page| {
        let head = page.lines().next().unwrap_or_default();
        head == format!("{name}.1") || head == format!("{name}-verb.1")
    })?;
    let (_, after) = page.split_once("# EXAMPLES\n")?;
    let section = after.split("\n# ").next().unwrap_or_default();
    let commands = section.lines().filter(|line| line.starts_with("perilog "));
    let lines: Vec<String> = commands.map(|line| format!("  {line}")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Returns a better error about the command line than clap's: for a word of another tool, it names the command of
/// perilog; for a missing job, the verbs that list jobs. `None`: clap's own error stays.
pub(crate) fn advice(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let ContextValue::String(typed) = error.get(ContextKind::InvalidSubcommand)? else { return None };
            let (_, meant) = WORDS.iter().find(|(words, _)| words.contains(&typed.as_str()))?;
            Some(format!("perilog has no verb {typed}; use: {meant}"))
        }
        ErrorKind::MissingRequiredArgument => {
            let ContextValue::Strings(missing) = error.get(ContextKind::InvalidArg)? else { return None };
            let text =
                "name a job: perilog ps lists jobs with unfinished work, perilog jobs also those that have ended";
            (missing[..] == ["<JOB>"]).then(|| text.to_owned())
        }
        ErrorKind::UnknownArgument => {
            let ContextValue::String(typed) = error.get(ContextKind::InvalidArg)? else { return None };
            let usage = error.get(ContextKind::Usage)?.to_string();
            let is_of = |verb: &str| usage.contains(&format!("perilog {verb} ")) && !typed.starts_with('-');
            match () {
                () if is_of("show") => Some(format!("perilog show shows a job; for a node, type perilog why {typed}")),
                () if is_of("drain") => Some("put the reason in quotes: perilog drain NODES \"REASON\"".to_owned()),
                () => None,
            }
        }
        _ => None,
    }
}

/// Returns a remark on an error of the controller: a task of Slurm's job array (`12345_7`) is no job's name, because
/// each task has a JobId of its own. `None`: the error is about something else.
pub(crate) fn remark(fault: &Fault) -> Option<String> {
    let Fault::Refused { code, text } = fault else { return None };
    let is_task = |word: &&str| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        word.split_once('_').is_some_and(|(array, task)| digits(array) && digits(task))
    };
    let task = text.split_whitespace().find(is_task).filter(|_| code == "no-such-job")?;
    Some(format!(
        "perilog knows a task of a job array by the task's own JobId, which Slurm prints: squeue -h -j {task} -o %A"
    ))
}

/// Rewrites `perilog help VERB ...` as `perilog VERB ... --help`. The verb `help` that clap offers is off: it would
/// appear in the manual, in completions, and again below each verb that has verbs of its own.
pub(crate) fn help_of(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    fn parse(line: &str) -> Result<clap::ArgMatches, clap::Error> {
        command().try_get_matches_from(words(line))
    }

    /// Splits a command line as a shell does, as far as double quotes go.
    fn words(line: &str) -> Vec<String> {
        let quoted = line.split('"').enumerate();
        let parts = quoted.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        parts.collect()
    }

    #[test]
    fn each_verb_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        grouped.sort_unstable();
        let root = command();
        let mut verbs: Vec<&str> =
            root.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
    }

    /// The ten daily tasks of an administrator are in `--help`, each with a command that is understood.
    #[test]
    fn daily_tasks_are_in_help() {
        let help = guided(command()).render_long_help().to_string();
        for (task, command) in TASKS {
            assert!(help.contains(task) && help.contains(command), "{task}: {help}");
            for line in command.split("; ") {
                assert!(parse(line).is_ok(), "{line}");
            }
        }
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(120), "{widest:?}");
    }

    #[test]
    fn every_verb_shows_examples_that_it_understands() {
        let mut root = guided(command());
        for verb in root.get_subcommands_mut() {
            let name = verb.get_name().to_owned();
            let help = verb.render_long_help().to_string();
            let lines: Vec<&str> = help.lines().filter(|line| line.starts_with("  perilog ")).collect();
            assert!(!lines.is_empty(), "{name}: {help}");
            for line in examples(&name).unwrap_or_default().lines() {
                let command = line.split(" | ").next().unwrap_or_default();
                assert!(parse(command).is_ok(), "{name}: {line}");
            }
        }
    }

    /// Words of Slurm, kubectl and systemd are answered with the command that is meant.
    #[test]
    fn words_of_other_tools_are_answered() {
        for (words, meant) in WORDS {
            for word in words {
                let error = parse(&format!("perilog {word} n3")).unwrap_err();
                assert_eq!(advice(&error), Some(format!("perilog has no verb {word}; use: {meant}")));
            }
        }
        for verb in ["show", "logs", "timeline", "kill", "cancel", "failed", "wait"] {
            let advice = advice(&parse(&format!("perilog {verb}")).unwrap_err());
            assert!(advice.is_some_and(|text| text.contains("perilog jobs")), "{verb}");
        }
        for (line, part) in [
            ("perilog resume n3", "perilog undrain n3"),
            ("perilog ps n3", "perilog why n3"),
            ("perilog job add 1234[5].pbs01 --nodes n0", "1234_5.pbs01"),
            ("perilog show 12345+1", "squeue -h -j 12345+1 -o %A"),
            ("perilog show 12_[3-5]", "squeue -h -r -j \"12_[3-5]\" -o %A"),
            ("perilog jobs 101", "perilog show 101"),
            ("perilog why n[0-1]", "perilog nodes n[0-1]"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn words_too_many_are_answered() {
        for (line, part) in [("perilog show node n3", "perilog why n3"), ("perilog drain n1 bad dimm", "in quotes")] {
            let advice = advice(&parse(line).unwrap_err());
            assert!(advice.as_ref().is_some_and(|text| text.contains(part)), "{line}: {advice:?}");
        }
        assert_eq!(advice(&parse("perilog show f1 --node").unwrap_err()), None);
    }

    /// What an administrator types who knows squeue, sacct, scontrol, kubectl and journalctl.
    #[test]
    fn what_other_tools_take_is_taken() {
        for line in [
            "perilog drain n3 --reason x",
            "perilog drain n3 x",
            "perilog logs f1 -f",
            "perilog logs f1 --follow --since 5min",
            "perilog nodes --state drained,offline",
            "perilog nodes -t drained",
            "perilog jobs -S 2026-11-20 --failed -n 5",
            "perilog jobs --since 1w",
            "perilog events --all --since 2h -n 50",
            "perilog stats --since 2026-11-20",
            "perilog kill f1 epilog",
            "perilog kill f1 epilog --nodes n1",
            "perilog logs f1 --node n1",
            "perilog jobs --failed --since yesterday",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
    }
}
