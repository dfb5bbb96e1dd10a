//! Reports of a script about itself: accepted and recorded, or refused with an error for the script.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use perilog_core::MilestoneName;
use perilog_core::task::{Report, StepRecord};
use rustix::process::Signal;

use crate::bench::{Left, Live, REPORT, Task};

/// Makes a task with one shell script, whose lines are `body`. In the script, `$REPORT` is the path of perilog-report.
fn task(body: &str) -> Task {
    let mut task = Task::with(&[("10-a", body)]);
    let report = task.report().display().to_string();
    task.intent.plan.env.insert("REPORT".to_owned(), report);
    task
}

fn reports(left: &Left) -> Vec<(&str, &Report)> {
    let reports = left.steps.iter().filter_map(|step| match step {
        StepRecord::Report { script, report, .. } => Some((script.as_str(), report)),
        _ => None,
    });
    reports.collect()
}

/// Sends lines to the control socket; returns the answers, until the runner hangs up or has answered all lines.
fn converse(task: &Task, lines: &[&[u8]]) -> Vec<String> {
    let mut stream = UnixStream::connect(task.control()).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut acknowledged = Vec::new();
    for line in lines {
        // The runner may have hung up; then there is no answer either.
        let _ = stream.write_all(line);
        match answers.next() {
            Some(Ok(answer)) => acknowledged.push(answer),
            _ => break,
        }
    }
    acknowledged
}

#[test]
fn every_report_is_recorded_before_it_is_acknowledged() {
    for user in ["root", "nobody"] {
        let mut task = task(
            "set -e\n$REPORT tolerable --check lustre 'mount missing'\n$REPORT milestone data-out\n$REPORT user \
             'please wait'\n$REPORT progress 'half of it'\n$REPORT expect-reboot\necho acknowledged",
        );
        task.intent.plan.user = user.to_owned();
        task.accept();
        task.mark_boot_expected();
        let left = task.left(task.start().end());
        assert_eq!((left.code(), left.out()), (0, vec!["acknowledged"]), "{left:?}");
        let text = |text: &str| text.to_owned();
        let expect = [
            Report::Tolerable { check: text("lustre"), message: text("mount missing") },
            Report::Milestone { name: text("data-out") },
            Report::User { message: text("please wait") },
            Report::Progress { message: text("half of it") },
            Report::ExpectReboot,
        ];
        assert_eq!(reports(&left), expect.iter().map(|r| ("10-a", r)).collect::<Vec<_>>());
        assert!(
            left.has_printed("10-a: tolerable, check lustre: mount missing"),
            "an operator finds it in the journal"
        );
    }
}

#[test]
fn the_record_is_there_when_the_report_returns() {
    let mut task = task("$REPORT milestone data-out && grep -c data-out $STEPS");
    let steps = task.directory().join("steps.jsonl").display().to_string();
    task.intent.plan.env.insert("STEPS".to_owned(), steps);
    assert_eq!(task.run().out(), ["1"]);
}

#[test]
fn a_report_that_nobody_acknowledges_fails() {
    let send = |control: Option<&str>, words: &[&str]| {
        let mut command = Command::new(REPORT);
        command.args(words).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(control.map(|path| ("PERILOG_CONTROL", path)));
        let ended = Live::new(&mut command).end();
        (ended.status.code(), ended.err.join("\n"))
    };
    let (status, text) = send(None, &["milestone", "m"]);
    assert!(status == Some(7) && text.contains("PERILOG_CONTROL is not set"), "{text}");
    let (status, text) = send(Some("/nowhere/x.sock"), &["milestone", "m"]);
    assert!(status == Some(7) && text.contains("not acknowledged: /nowhere/x.sock"), "{text}");
    let (status, text) = send(None, &["milestone", "a b"]);
    assert!(status == Some(2) && text.contains("at character 2"), "{text}");
    let (status, text) = send(None, &["user", &"x".repeat(5000)]);
    assert!(status == Some(2) && text.contains("the limit is 4096"), "{text}");
}

#[test]
fn a_report_to_a_runner_that_was_killed_fails() {
    let task = task("echo ready; sleep 1000 & read x < $FIFO; $REPORT milestone m; echo status $? > $ANSWER; kill $!");
    let mut task = task;
    let (fifo, answer) = (task.fifo("fifo"), task.fifo("answer"));
    task.intent.plan.env.insert("FIFO".to_owned(), fifo.display().to_string());
    task.intent.plan.env.insert("ANSWER".to_owned(), answer.display().to_string());
    task.accept();
    let mut live = task.start();
    live.wait_for("ready");
    live.signal(Signal::KILL);
    live.end();
    fs::write(&fifo, "go\n").unwrap();
    assert_eq!(fs::read_to_string(&answer).unwrap(), "status 7\n");
}

#[test]
fn a_stranger_is_refused() {
    let mut task = task(
        "setpriv --reuid=1 --regid=1 --clear-groups $REPORT milestone m; echo stranger $?\n\
         setpriv --reuid=65534 --regid=65534 --clear-groups $REPORT milestone m; echo user $?",
    );
    let left = task.run();
    assert_eq!(left.out(), ["stranger 8", "user 8"], "{left:?}");
    assert!(left.has_printed("refused: uid 1 is neither root nor the user of the script that runs"), "{left:?}");
    assert!(reports(&left).is_empty());

    task = self::task("echo ready; read x < $FIFO; exit 0");
    task.intent.plan.user = "nobody".to_owned();
    let fifo = task.fifo("fifo");
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o666)).unwrap();
    task.intent.plan.env.insert("FIFO".to_owned(), fifo.display().to_string());
    task.accept();
    let mut live = task.start();
    live.wait_for("ready");
    let control = task.control();
    let meta = fs::metadata(&control).unwrap();
    assert_eq!((meta.permissions().mode() & 0o777, meta.uid()), (0o600, 65534), "others cannot even connect");
    let as_uid = |uid: &str| {
        let mut command = Command::new("setpriv");
        command
            .args([&format!("--reuid={uid}"), "--clear-groups"])
            .arg(task.path("perilog-report"))
            .args(["milestone", uid]);
        command.env("PERILOG_CONTROL", &control).stdout(Stdio::piped()).stderr(Stdio::piped());
        Live::new(&mut command).end().status.code()
    };
    assert_eq!([as_uid("1"), as_uid("65534"), as_uid("0")], [Some(8), Some(0), Some(0)]);
    fs::write(&fifo, "go\n").unwrap();
    let left = task.left(live.end());
    assert_eq!(reports(&left).len(), 2);
}

/// Regression test: the controller kept 64 milestones of a job and dropped the 65th, although the runner had
/// acknowledged to its script that the milestone was recorded.
#[test]
fn a_milestone_past_the_jobs_bound_is_refused_to_its_script() {
    let task =
        task("for n in $(seq 65); do $REPORT milestone m$n || echo $n $?; done; $REPORT milestone m1; echo again $?");
    let left = task.run();
    assert_eq!(left.out(), ["65 8", "again 0"], "{left:?}");
    assert!(left.has_printed("refused: this attempt of the job has 64 milestones"), "{left:?}");
    assert_eq!(reports(&left).len(), 65);

    // Beside those that the attempt has from other tasks.
    let mut task = self::task(
        "for n in $(seq 70); do $REPORT milestone m$n || echo $n $?; done; $REPORT milestone k3; echo again $?",
    );
    task.intent.start.milestones = (0..60).map(|n| MilestoneName::new(&format!("k{n}")).unwrap()).collect();
    let left = task.run();
    let mut refused: Vec<String> = (5..=70).map(|n| format!("{n} 8")).collect();
    refused.push("again 0".to_owned());
    assert_eq!(left.out(), refused, "{left:?}");
    assert_eq!(reports(&left).len(), 5);
}

#[test]
fn bad_or_surplus_reports_are_refused_and_the_rest_recorded() {
    let mut task = task("echo ready; read x < $FIFO");
    let fifo = task.fifo("fifo");
    task.intent.plan.env.insert("FIFO".to_owned(), fifo.display().to_string());
    task.accept();
    let mut live = task.start();
    live.wait_for("ready");

    let milestone = &b"{\"report\":\"milestone\",\"name\":\"m\"}\n"[..];
    let acknowledged = r#"{"reply":"acknowledged"}"#;
    let answers = converse(&task, &[b"hello\n", b"{\"report\":\"milestone\",\"name\":\"a b\"}\n", milestone]);
    assert!(
        answers.len() == 3
            && answers[0].contains("not a report")
            && answers[1].contains("at character 2")
            && answers[2] == acknowledged
    );
    let long = [b"{\"report\":\"user\",\"message\":\"".to_vec(), vec![b'x'; 5000], b"\"}\n".to_vec()].concat();
    let answers = converse(&task, &[&long, milestone]);
    assert!(answers.len() == 1 && answers[0].contains("more than 4096 bytes"), "{answers:?}");

    let answers = converse(&task, &vec![milestone; 257]);
    assert_eq!(answers.iter().filter(|answer| *answer == acknowledged).count(), 255, "one was acknowledged before");
    assert!(answers[255].contains("this task has made 256 reports") && answers.len() == 257);
    let progress = &b"{\"report\":\"progress\",\"message\":\"p\"}\n"[..];
    assert_eq!(converse(&task, &vec![progress; 500]), vec![acknowledged; 500], "progress is not counted");

    // More connections than the runner accepts at once: the others wait until silent ones leave.
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(task.control()).unwrap()).collect();
    drop(silent);
    assert_eq!(converse(&task, &[progress]), [acknowledged]);

    fs::write(&fifo, "go\n").unwrap();
    let left = task.left(live.end());
    let (progress, milestones): (Vec<_>, Vec<_>) =
        reports(&left).into_iter().partition(|(_, r)| matches!(r, Report::Progress { .. }));
    assert_eq!(milestones.len(), 256);
    assert!((1..3).contains(&progress.len()), "sparsely recorded: {}", progress.len());
    assert_eq!(left.code(), 0);
}

#[test]
fn a_job_id_too_long_for_a_sockets_path_does_not_prevent_reports() {
    let mut task = task("$REPORT milestone m && echo $PERILOG_CONTROL");
    task.intent.start.job = perilog_core::JobId::new(&"j".repeat(64)).unwrap();
    let left = task.run();
    let tail = task.intent.start.task.action.tail();
    assert_eq!(left.out(), [task.path(&format!("control/3-{tail}.sock")).display().to_string()], "{left:?}");
}

#[test]
fn without_a_socket_the_scripts_run_and_reports_fail() {
    let task = task("$REPORT milestone m; echo status $?");
    fs::write(task.path("control"), "in the way").unwrap();
    let left = task.run();
    assert_eq!((left.out(), left.code()), (vec!["status 7"], 0));
    assert!(left.has_printed("cannot open a control socket"));
}

#[test]
fn a_boot_is_acknowledged_when_the_controller_knows_and_not_before() {
    for user in ["root", "nobody"] {
        let mut task = task("$REPORT expect-reboot; echo acknowledged $?");
        task.intent.plan.user = user.to_owned();
        task.accept();
        let mut live = task.start();
        // The runner records the report before it confirms it.
        live.wait_for("expects this host to boot");
        assert_eq!(converse(&task, &[b"{\"report\":\"expect-reboot\"}\n"]), [r#"{"reply":"recorded"}"#]);
        fs::write(task.directory().join("something-else"), b"").unwrap();
        task.mark_boot_expected();
        let left = task.left(live.end());
        assert_eq!((left.code(), left.out()), (0, vec!["acknowledged 0"]), "{left:?}");
    }
}

#[test]
fn an_expected_boot_is_acknowledged_once_known_a_local_one_at_once() {
    for (local, status) in [(false, "status 9"), (true, "status 0")] {
        let mut task = task("$REPORT expect-reboot --wait 1ms; echo status $?");
        task.intent.local = local;
        let left = task.run();
        assert_eq!(left.out(), [status]);
        assert_eq!(left.has_printed("if the node reboots now, its task may count as lost"), !local);
    }
}
