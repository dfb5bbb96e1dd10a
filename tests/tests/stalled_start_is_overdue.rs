//! The first script of a task does not begin, because systemd, a file system, the name service or a frozen slice does
//! not let it. `ps` says why, the limit counts from the start call, and the node is drained at the limit.

use anyhow::{Result, ensure};
use perilog_tests::{AT_GATE, Cluster, Node};

const LIMIT: &str = "timeout = \"15s\"\n";
const LATE: &str = "is past its limit of 15s";

/// Boots a node with an epilog whose limit is 15 s. `more` is further lines of its agent's configuration.
fn boot(body: &str, more: &str) -> Result<Cluster> {
    let agent = format!("[action.epilog]\n{LIMIT}{more}");
    Cluster::builder(1).agent(&agent).script("epilog", "10-gate", body).boot()
}

/// Asserts the outcome of a rank-0 epilog of this job.
fn assert_outcome(cluster: &Cluster, job: &str, word: &str) -> Result<()> {
    let (is, text) = cluster.outcome(job, "epilog", 0)?;
    ensure!(is == word, "{is}: {text}\n{}", cluster.bed().diagnosis());
    Ok(())
}

/// Regression test: PID 1 of a node did not answer for 310 s. `ps` said that the unit was about to begin, no limit
/// passed, and the script began 309 s late.
#[test]
fn a_hanging_systemd_is_named_and_its_node_drained() -> Result<()> {
    let cluster = boot("exit 0", "")?;
    cluster.stop_systemd(0)?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_ps(&["waiting", "systemd, which does not answer"])?;
    cluster.wait_ps(&["overdue", LATE, "systemd, which does not answer"])?;
    cluster.wait_drained("its start is past its limit of 15s: it waits for systemd")?;
    ensure!(!run.has_ended()?, "it ended: {}", run.output()?);
    cluster.perilog(&["cancel", "j", "epilog"])?.ok()?;
    // A second task: the first one was cancelled, and no script of it begins.
    let mut late = cluster.start_perilog(&["run", "epilog", "--job", "k", "--nodes", "n0"])?;
    cluster.wait_ps(&["k ", "overdue", LATE])?;
    cluster.wait_ps(&["j ", "no script of it will begin", "cancel asked for"])?;
    cluster.continue_systemd(0)?;
    cluster.wait_end(&mut run)?;
    cluster.wait_end(&mut late)?;
    assert_outcome(&cluster, "j", "cancelled")?;
    // Its limit had passed before its runner began, and the runner begins no script.
    assert_outcome(&cluster, "k", "timeout")?;
    ensure!(cluster.runs("j")?.is_empty() && cluster.runs("k")?.is_empty(), "a script ran");
    cluster.perilog(&["run", "epilog", "--job", "l", "--nodes", "n0"])?.ok().map(drop)
}

/// The bus stands still, and systemd does not.
#[test]
fn a_hanging_bus_is_named_and_a_resolution_ends_the_wait() -> Result<()> {
    let cluster = boot("exit 0", "")?;
    let bus = |signal: &str| cluster.node(0)?.sh(&format!("pkill -{signal} -x dbus-daemon"));
    bus("STOP")?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_ps(&["overdue", LATE, "does not answer on the system bus"])?;
    cluster.wait_drained(LATE)?;
    cluster.perilog(&["resolve", "j", "--ranks", "n0", "--reason", "the bus is dead"])?.ok()?;
    cluster.wait_end(&mut run)?;
    bus("CONT")?;
    // The resolution keeps its script from beginning.
    cluster.perilog(&["run", "epilog", "--job", "k", "--nodes", "n0"])?.ok()?;
    ensure!(cluster.runs("j")?.is_empty(), "a script ran");
    Ok(())
}

/// Without a limit nothing is drained, and `ps` says why.
#[test]
fn without_a_limit_ps_names_what_does_not_answer() -> Result<()> {
    let cluster = Cluster::builder(1).script("epilog", "10-gate", "exit 0").boot()?;
    cluster.stop_systemd(0)?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_ps(&["waiting", "systemd, which does not answer"])?;
    cluster.continue_systemd(0)?;
    cluster.wait_end(&mut run)?;
    assert_outcome(&cluster, "j", "ok")
}

/// Regression test: a frozen slice was `running` for 75 s under a limit of 4 s, and then `ok`.
#[test]
fn a_frozen_slice_is_overdue_and_never_ok() -> Result<()> {
    let cluster = boot(AT_GATE, "")?;
    let node = cluster.node(0)?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    node.systemctl(&["freeze", "perilog.slice"])?;
    // The runner of the second is frozen before it claims.
    let mut second = cluster.start_perilog(&["run", "epilog", "--job", "k", "--nodes", "n0"])?;
    cluster.wait_ps(&["j ", "overdue", LATE])?;
    cluster.wait_ps(&["k ", "overdue", LATE, "frozen with perilog.slice"])?;
    cluster.wait_drained(LATE)?;
    ensure!(cluster.perilog(&["why", "n0"])?.ok()?.contains("frozen with perilog.slice"), "why does not name it");
    cluster.open_gates()?;
    node.systemctl(&["thaw", "perilog.slice"])?;
    cluster.wait_end(&mut run)?;
    cluster.wait_end(&mut second)?;
    assert_outcome(&cluster, "j", "timeout")?;
    assert_outcome(&cluster, "k", "timeout")
}

/// /run has no inodes when the runner claims: the task says so, and ends once there are some.
#[test]
fn a_runner_without_room_for_its_claim_says_so() -> Result<()> {
    let cluster = boot("exit 0", "")?;
    let node = cluster.node(0)?;
    // The slice is active from the first task on.
    cluster.perilog(&["run", "epilog", "--job", "first", "--nodes", "n0"])?.ok()?;
    node.systemctl(&["freeze", "perilog.slice"])?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_ps(&["frozen with perilog.slice"])?;
    // systemd keeps its own files in /run, too: the test leaves the freezer itself.
    node.sh("mount -o remount,nr_inodes=$(df --output=iused /run | tail -1 | tr -d ' ') /run")?;
    node.sh("echo 0 > /sys/fs/cgroup/perilog.slice/cgroup.freeze")?;
    cluster.wait_ps(&["exit 73", "df -i /run"])?;
    node.sh("mount -o remount,nr_inodes=100000 /run")?;
    cluster.wait_end(&mut run)?;
    assert_outcome(&cluster, "j", "refused")?;
    ensure!(cluster.runs("j")?.is_empty(), "a script ran");
    Ok(())
}

/// Asserts that a reload of the agent ends with an error which names this, and that doctor does.
fn assert_named(cluster: &Cluster, node: &Node, what: &str) -> Result<()> {
    ensure!(!node.run(&["systemctl", "reload", "perilog-agent"])?.success(), "the reload went well");
    cluster.wait_logged(node, "perilog-agent", &[what, "does not answer within 10s"])
}

/// Regression test: a script directory on a file system that did not answer. `ps` said that the unit was about to
/// begin, and the limit of 5 s was not heeded; a reload hung for ever, and later ones behind it.
#[test]
fn a_directory_that_does_not_answer_is_named_and_its_node_drained() -> Result<()> {
    let cluster = boot("exit 0", &format!("[action.site]\ndirectories = [\"/site/dead.d\"]\n{LIMIT}"))?;
    let node = cluster.node(0)?;
    cluster.mount_dead(0, "/site/dead.d")?;
    let mut run = cluster.start_perilog(&["run", "site", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_ps(&["waiting", "has not begun it", "/site/dead.d"])?;
    cluster.wait_ps(&["overdue", LATE, "/site/dead.d"])?;
    cluster.wait_drained("its start is past its limit of 15s: it waits for its first script; its runner (pid ")?;

    assert_named(&cluster, node, "directory /site/dead.d")?;
    let doctor = node.run(&["perilog", "doctor"])?;
    ensure!(doctor.stdout.contains("/site/dead.d does not answer within 10s"), "{doctor}");
    let lint = node.run(&["perilog", "lint", "/site/dead.d"])?;
    ensure!(lint.stdout.contains("does not answer within 10s"), "{lint}");
    // The agent goes on meanwhile, also a new one.
    node.systemctl(&["restart", "perilog-agent"])?;
    cluster.wait_online()?;
    cluster.perilog(&["run", "epilog", "--job", "k", "--nodes", "n0"])?.ok()?;

    cluster.perilog(&["kill", "j", "site", "--signal", "KILL"])?.ok()?;
    cluster.wait_end(&mut run)?;
    cluster.end_dead(0, "/site/dead.d")?;
    node.systemctl(&["reload", "perilog-agent"]).map(drop)
}

/// The name service hangs: the record of a user (nss-systemd) is a FIFO into which no process writes.
#[test]
fn a_name_service_that_does_not_answer_is_named_and_its_node_drained() -> Result<()> {
    let cluster = boot(
        "exit 0",
        &format!("[action.site]\ndirectories = [\"/etc/perilog/epilog.d\"]\nuser = \"ldapsvc\"\n{LIMIT}"),
    )?;
    let node = cluster.node(0)?;
    node.sh("mkdir -p /etc/userdb && mkfifo /etc/userdb/ldapsvc.user")?;
    node.sh("sed -i 's/^passwd:.*/passwd: files systemd/' /etc/nsswitch.conf")?;
    let mut run = cluster.start_perilog(&["run", "site", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_ps(&["waiting", "has not begun it", "user ldapsvc"])?;
    cluster.wait_ps(&["overdue", LATE, "user ldapsvc"])?;
    cluster.wait_drained(LATE)?;
    assert_named(&cluster, node, "the look-up of user ldapsvc")?;
    node.systemctl(&["restart", "perilog-agent"])?;
    cluster.wait_online()?;
    // Whatever waits reads the end of the file, and finds no user.
    node.sh("exec 3<>/etc/userdb/ldapsvc.user; rm /etc/userdb/ldapsvc.user; exec 3>&-")?;
    cluster.wait_end(&mut run)?;
    let (word, text) = cluster.outcome("j", "site", 0)?;
    ensure!(word == "failed" && text.contains("`ldapsvc`"), "{word}: {text}");
    node.systemctl(&["reload", "perilog-agent"]).map(drop)
}
