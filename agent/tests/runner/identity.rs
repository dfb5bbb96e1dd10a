//! Identity of a script: its user, groups, environment and limits.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use perilog_core::ExitStatus::Exit;
use perilog_core::task::{Run, ScriptPlan, StepRecord};

use crate::bench::{BUILT, Task};

fn as_user(name: &str) -> ScriptPlan {
    ScriptPlan { user: Some(name.to_owned()), ..ScriptPlan::default() }
}

fn command(task: &mut Task, words: &[&str]) {
    task.intent.plan.run = Run::Command(words.iter().map(|w| (*w).to_owned()).collect());
}

/// Regression test: a list of 30,000 scattered ranks was too long for an environment variable, so no script of the task
/// could be executed.
#[test]
fn lists_too_long_for_a_variable_are_in_files() {
    for user in ["root", "nobody"] {
        let mut task = Task::new();
        let line = "echo ${PERILOG_RANKS-none} $PERILOG_HOSTS; stat -c %a $PERILOG_RANKS_FILE; cat $PERILOG_RANKS_FILE";
        command(&mut task, &["/bin/sh", "-c", line]);
        task.intent.plan.user = user.to_owned();
        task.intent.start.ranks = (0..30_000).map(|rank| rank * 2 + 1).collect();
        task.intent.start.hosts = "n[0-29999]".parse().unwrap();
        let left = task.run();
        let lines: Vec<&str> = left.ended.out.iter().flat_map(|text| text.lines()).collect();
        assert_eq!(lines[..2], ["none n[0-29999]", "644"], "{user}");
        assert_eq!(lines[2..].concat(), task.intent.start.ranks.to_string(), "{user}");
        assert!(!task.control().with_extension("ranks").exists());
    }
}

#[test]
fn the_environment_is_exactly_what_the_design_names() {
    for user in ["root", "nobody"] {
        let mut task = Task::new();
        command(&mut task, &["/usr/bin/env", "-0"]);
        task.intent.plan.user = user.to_owned();
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        // From outside: variables that the node's list admits, even if that list is unwise.
        task.intent.env = pairs(&[
            ("FLUX_JOB_ID", "\u{192}ABC"),
            ("PATH", "/home/mallory"),
            ("HOME", "/home/mallory"),
            ("LANG", "de_DE.UTF-8"),
            ("SITE", "outside"),
            ("LINES", "a\nb"),
            ("NOTIFY_SOCKET", "/forged"),
            ("PERILOG_JOB", "forged"),
        ]);
        task.intent.plan.env =
            pairs(&[("SITE", "node"), ("PERILOG_RANK", "forged"), ("JOURNAL_STREAM", "1:2"), ("EMPTY", "")]);
        // The runner's own environment.
        task.env.insert("JOURNAL_STREAM".to_owned(), "8:9".to_owned());
        task.env.insert("SECRET".to_owned(), "x".to_owned());
        let left = task.run();
        let text = left.ended.out.join("\n");
        let got: BTreeMap<String, String> = text
            .split_terminator('\0')
            .map(|line| line.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap())
            .collect();
        let home = if user == "root" { "/root" } else { "/nonexistent" };
        let control = task.control().display().to_string();
        let expect = pairs(&[
            ("EMPTY", ""),
            ("FLUX_JOB_ID", "\u{192}ABC"),
            ("HOME", home),
            ("LANG", "de_DE.UTF-8"),
            ("LINES", "a\nb"),
            ("LOGNAME", user),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("PERILOG_ACTION", "prolog"),
            ("PERILOG_ATTEMPT", "2"),
            ("PERILOG_CONTROL", &control),
            ("PERILOG_HOSTS", "n[0-3]"),
            ("PERILOG_JOB", "fABC"),
            ("PERILOG_RANK", "3"),
            ("PERILOG_RANKS", "0-3"),
            ("PERILOG_USERID", "4711"),
            ("SHELL", "/bin/sh"),
            ("SITE", "node"),
            ("USER", user),
        ]);
        // The distribution chooses the home of nobody.
        let (mut got, mut expect) = (got, expect);
        if user == "nobody" {
            assert!(got.remove("HOME").unwrap().starts_with('/'));
            expect.remove("HOME");
        }
        assert_eq!(got, expect);
    }
}

#[test]
fn lang_defaults_to_c_utf8_and_an_unknown_owner_stays_unset() {
    let mut task = Task::with(&[("10-a", "echo $LANG ${PERILOG_USERID-unset}")]);
    task.intent.start.userid = None;
    assert_eq!(task.run().out(), ["C.UTF-8 unset"]);
}

#[test]
fn stdin_is_null_and_no_other_descriptor_is_open() {
    for user in ["root", "nobody"] {
        // dash keeps its script open at 10.
        let body = "readlink /proc/$$/fd/0; for n in 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$n ] && echo $n; done; cat";
        let mut task = Task::with(&[("10-a", body)]);
        task.intent.plan.user = user.to_owned();
        // In a unit the runner inherits no other descriptor; from a test it may.
        let set_up = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec \"$@\"";
        task.through = ["sh", "-c", set_up, "sh"].map(str::to_owned).into();
        assert_eq!(task.run().out(), ["/dev/null"]);
    }
}

/// Reads a signal mask from /proc/PID/status, without glibc's own two signals (32, 33): posix_spawn(3) lets children
/// ignore them.
fn mask(status: &str, name: &str) -> u64 {
    let text = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap();
    u64::from_str_radix(text, 16).unwrap() & 0x7fff_ffff
}

#[test]
fn no_signal_is_blocked_or_ignored() {
    for user in ["root", "nobody"] {
        let mut task = Task::new();
        command(&mut task, &["/bin/cat", "/proc/self/status"]);
        task.intent.plan.user = user.to_owned();
        let status = task.run().ended.out.join("\n");
        // The test's parent may ignore some signals; this process and the runner ignore SIGPIPE themselves.
        let around = mask(&fs::read_to_string("/proc/self/status").unwrap(), "SigIgn") & !(1 << 12);
        assert_eq!((mask(&status, "SigBlk"), mask(&status, "SigIgn")), (0, around));
    }
}

#[test]
fn umask_directory_limits_and_process_group_are_set() {
    for user in ["root", "nobody"] {
        let body =
            "umask; pwd; ulimit -n; ulimit -Hn; set -- $(cut -d' ' -f5 /proc/$$/stat); [ $1 = $$ ] && echo leader";
        let mut task = Task::with(&[("10-a", body)]);
        task.intent.plan.umask = 0o027;
        task.intent.plan.cwd = "/usr".to_owned();
        task.intent.plan.user = user.to_owned();
        assert_eq!(task.run().out(), ["0027", "/usr", "512", "512", "leader"]);
    }
}

#[test]
fn stack_and_locked_memory_are_unlimited_or_as_permitted() {
    let task = Task::with(&[("10-a", "ulimit -s; ulimit -Hs; ulimit -l; ulimit -Hl")]);
    let left = task.run();
    let out = left.out();
    assert_eq!(out.len(), 4);
    for (name, soft, hard) in [("stack", out[0], out[1]), ("memlock", out[2], out[3])] {
        assert_eq!(soft, hard, "{name}");
        let is_printed =
            left.has_printed("these resource limits are lower than requested") && left.has_printed(&format!("{name} "));
        assert!(soft == "unlimited" || is_printed, "{left:?}");
    }
}

#[test]
fn a_script_runs_as_its_own_user_with_that_users_groups() {
    let mut task =
        Task::with(&[("10-root", "id -u; id -G"), ("20-nobody", "id -ru; id -u; id -rg; id -g; id -G; echo $USER")]);
    task.intent.plan.scripts.insert("20-nobody".to_owned(), as_user("nobody"));
    // A group with the member nobody, in an /etc/group that only this runner sees.
    let groups = task.path("group");
    let theirs = fs::read_to_string("/etc/group").unwrap();
    fs::write(&groups, format!("{theirs}perilogtest:x:54321:daemon,nobody\n")).unwrap();
    // Groups of the runner's parent must not reach the scripts.
    let set_up = format!("mount --bind {} /etc/group && exec setpriv --groups 3,4 \"$@\"", groups.display());
    task.through =
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", &set_up, "sh"].map(str::to_owned).into();
    let left = task.run();
    assert_eq!(left.out(), ["0", "0", "65534", "65534", "65534", "65534", "65534 54321", "nobody"], "{left:?}");
    let users: Vec<_> = left
        .steps
        .iter()
        .filter_map(|step| match step {
            StepRecord::Begin { user, .. } => Some(user.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(users, ["root", "nobody"]);
}

/// The static runner of a package cannot look up users: it passes such a task to the build beside it, which can, and
/// runs all others itself. Both claim once, and a cancel reaches them.
#[test]
fn a_task_with_users_goes_to_the_runner_with_the_name_service() {
    let exe = "readlink /proc/$PPID/exe";
    for (users, expected) in [(&[][..], "perilog-runner"), (&["0", "nobody"][..], "perilog-runner-nss")] {
        let mut task = Task::with(&[("a", exe), ("b", "id -un")]);
        task.runner = task.executable("perilog-runner", &fs::read(&task.runner).unwrap()).display().to_string();
        task.executable("perilog-runner-nss", &fs::read(BUILT).unwrap());
        let plans = ["a", "b"].into_iter().zip(users).map(|(script, user)| (script.to_owned(), as_user(user)));
        task.intent.plan.scripts = plans.collect();
        let left = task.run();
        let user = users.last().unwrap_or(&"root");
        assert_eq!((left.code(), left.out()), (0, vec![&*task.path(expected).display().to_string(), user]), "{left:?}");
    }
}

/// A second build that cannot be executed is named, and nothing is claimed: a task whose users are unknown to this
/// build must not run as another user.
#[test]
fn a_broken_second_runner_runs_nothing() {
    let mut task = Task::with(&[("a", "echo ran")]);
    task.runner = task.executable("perilog-runner", &fs::read(&task.runner).unwrap()).display().to_string();
    task.executable("perilog-runner-nss", b"#!/nowhere/sh\n");
    task.intent.plan.user = "nobody".to_owned();
    let left = task.run();
    assert_eq!((left.code(), left.out(), left.steps.len()), (66, vec![], 0), "{left:?}");
    assert!(left.has_printed("perilog-runner-nss, which looks up users, cannot be executed"), "{left:?}");
    assert!(!task.directory().join("claim").exists());
}

#[test]
fn a_user_cannot_come_back() {
    let mut task = Task::with(&[("10-a", "grep -E '^(Uid|Gid|Groups|CapEff|CapPrm)' /proc/self/status")]);
    task.intent.plan.user = "nobody".to_owned();
    let left = task.run();
    let none = "0000000000000000";
    for line in left.out() {
        let values: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
        assert!(values.iter().all(|v| *v == "65534" || *v == none), "{line}");
    }
    assert_eq!(left.out().len(), 5);
}

#[test]
fn a_user_that_is_unknown_is_wrong_configuration() {
    let mut task = Task::with(&[("10-a", "echo ran"), ("20-b", "true")]);
    task.intent.plan.scripts.insert("20-b".to_owned(), as_user("no-such-user"));
    let left = task.run();
    assert_eq!((left.code(), left.out().len()), (78, 0));
    assert!(left.result().configuration.clone().unwrap().contains("there is no user `no-such-user`"));
}

#[test]
fn what_a_user_may_not_execute_or_enter_is_named() {
    let mut task = Task::with(&[("10-a", "echo ran"), ("20-b", "echo b")]);
    fs::set_permissions(task.path("scripts/10-a"), fs::Permissions::from_mode(0o700)).unwrap();
    task.intent.plan.scripts.insert("10-a".to_owned(), as_user("nobody"));
    let left = task.run();
    assert_eq!((left.code(), left.out()), (126, vec!["b"]));
    let exec = left.result().exec.clone().unwrap();
    assert!(exec.contains("10-a: cannot be executed: Permission denied"), "{exec}");
    assert_eq!(left.tries(), [("10-a", None), ("20-b", Some(Exit(0)))]);

    let mut task = Task::with(&[("10-a", "echo ran")]);
    fs::create_dir(task.path("closed")).unwrap();
    fs::set_permissions(task.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    task.intent.plan.cwd = task.path("closed").display().to_string();
    task.intent.plan.user = "nobody".to_owned();
    let left = task.run();
    assert!(left.result().exec.clone().unwrap().contains("closed: Permission denied"));
    assert_eq!((left.code(), left.out().len()), (126, 0));
}
