//! Finds calls in a shell script that let a daemon, such as atd or dockerd, start a process. That process is no
//! descendant of the script, so the task does not wait for it, and no limit or signal of the task reaches it.

use super::Finding;

/// A call of such a program. `words`: how the call begins. `by`: what starts the process. `instead`: what to write
/// instead. `unless`: an option with which the process is a descendant of the script after all; empty: there is none.
struct Call {
    words: &'static str,
    unless: &'static str,
    by: &'static str,
    instead: &'static str,
}

const CALLS: [Call; 8] = [
    call(
        "systemd-run",
        "--scope",
        "systemd",
        "use systemd-run --scope; for a service that outlives the task, use systemctl start",
    ),
    call("at", "", "atd", "run it in the script"),
    call("batch", "", "atd", "run it in the script"),
    call("crontab", "", "cron", "run it in the script, or install a systemd timer on the node"),
    call("docker run", "", "dockerd", "use podman run, whose processes descend from the script"),
    call("docker start", "", "dockerd", "use podman start, whose processes descend from the script"),
    call("docker exec", "", "dockerd", "use podman exec, whose processes descend from the script"),
    call("machinectl shell", "", "systemd", "use runuser -u USER -- COMMAND"),
];

const fn call(words: &'static str, unless: &'static str, by: &'static str, instead: &'static str) -> Call {
    Call { words, unless, by, instead }
}

/// Words that may come before a command in a line of a script, and are not part of the call.
const BEFORE: [&str; 14] =
    ["if", "then", "else", "elif", "while", "until", "do", "!", "{", "exec", "nohup", "setsid", "sudo", "time"];

/// Returns a warning for each entry of [`CALLS`] that the script contains; none if its first line names no shell.
/// `name`: the script's name, for the finding.
pub(super) fn inspect(name: &str, text: &str) -> Vec<Finding> {
    let first = text.lines().next().unwrap_or_default();
    let interpreter = first.split_ascii_whitespace().rfind(|word| !word.starts_with('-')).unwrap_or_default();
    if !first.starts_with("#!") || !interpreter.ends_with("sh") {
        return Vec::new();
    }
    let lines = || text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let calls =
        |of: &Call| lines().flat_map(|line| line.split([';', '|', '&', '(', ')', '`'])).any(|command| is(of, command));
    let found = CALLS.iter().filter(|of| calls(of));
    let reported = found.map(|of| {
        let what = format!(
            "{name}: {} starts the work of `{}`, so the task does not wait for it, and no signal of the task reaches \
             it",
            of.by, of.words
        );
        Finding::warning("outside", what, of.instead)
    });
    reported.collect()
}

/// Returns `true` if the command is this call.
fn is(call: &Call, command: &str) -> bool {
    let is_set = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
    };
    let words = command.split_ascii_whitespace().skip_while(|word| BEFORE.contains(word) || is_set(word));
    let words: Vec<&str> = words.map(|word| word.rsplit('/').next().unwrap_or(word)).collect();
    let wanted: Vec<&str> = call.words.split(' ').collect();
    words.starts_with(&wanted) && (call.unless.is_empty() || !words.contains(&call.unless))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_leave_the_task_are_named_once_each() {
        let found = |body: &str| {
            let findings = inspect("x", &format!("#!/bin/sh -e\n{body}\n"));
            let words = findings.iter().map(|finding| finding.shown().split('`').nth(1).unwrap_or_default().to_owned());
            words.collect::<Vec<_>>()
        };
        for (body, expect) in [
            ("systemd-run --unit=x sleep 8", &["systemd-run"][..]),
            ("systemd-run --scope sleep 8; /usr/bin/systemd-run true", &["systemd-run"]),
            ("systemd-run -q --scope sleep 8", &[]),
            ("echo rm | at now + 1 hour", &["at"]),
            ("look at this; # at now\n# at now\n  echo at", &[]),
            ("if ! X=1 crontab -l; then docker run -d x; fi", &["crontab", "docker run"]),
            ("y=$(docker ps); docker run x; docker run y", &["docker run"]),
            ("su - alice -c true; runuser -l alice -c true; podman run x", &[]),
        ] {
            assert_eq!(found(body), expect, "{body}");
        }
        assert!(inspect("x", "#!/usr/bin/python3\nat = 1\nat now\n").is_empty());
        assert_eq!(inspect("x", "#!/usr/bin/env bash\nbatch <x\n").len(), 1);
    }
}
