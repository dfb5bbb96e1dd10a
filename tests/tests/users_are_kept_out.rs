//! A user of the cluster acts in the middle of a job's prolog, on the job's node and on the controller's node. The user
//! cannot read keys, tasks or output, cannot stop, signal or forge tasks, and cannot start or change anything. Each
//! refused command works for root, which proves that the test itself is correct.

use anyhow::{Result, ensure};
use perilog_tests::{Cluster, Node};

/// Script body: prints a secret of root, and waits until the test creates /run/gate.
const SPEAKS: &str = "echo 'a word of roots'\nwhile [ ! -e /run/gate ]; do sleep 0.02; done\nexit $(draw 0 0 3 37)";

/// Runs a shell command as the user alice, who is in no group of perilog.
fn as_user(node: &Node, command: &str) -> Result<perilog_tests::Output> {
    node.run(&["setpriv", "--reuid=alice", "--regid=64001", "--clear-groups", "bash", "-c", command])
}

/// Returns a shell command that sends one Varlink request to a socket of the host. The command fails if the answer is
/// an error.
fn varlink(socket: &str, method: &str, parameters: &str) -> String {
    format!(
        r#"python3 - <<'PY'
import socket, sys, json
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect("{socket}")
s.sendall(json.dumps({{"method": "{method}", "parameters": {parameters}}}).encode() + b"\0")
answer = s.recv(65536).split(b"\0")[0].decode()
print(answer)
sys.exit("error" in json.loads(answer))
PY"#
    )
}

#[test]
fn on_a_node_and_on_the_controllers() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", SPEAKS).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    let (n0, ctl) = (cluster.node(0)?, cluster.controller()?);
    let unit = n0.sh("systemctl list-units --plain --no-legend 'perilog-task-*' | cut -d' ' -f1")?;
    let control = n0.sh("ls /run/perilog/control/*.sock")?;
    let pid = n0.systemctl(&["show", "--property=MainPID", "--value", &unit])?;

    let modes = n0.sh("stat -c %a%u /run/perilog/agent.sock /run/perilog/control/*.sock")?;
    ensure!(modes.split_whitespace().all(|mode| mode == "6000"), "a user can connect: {modes}");

    // Read-only commands: refused to the user, and allowed to root.
    let status = varlink("/run/perilog/agent.sock", "io.perilog.Agent.Status", "{}");
    for (node, command) in [
        (n0, "cat /etc/perilog/tls/key.pem"),
        (n0, "ls /run/perilog/tasks/*"),
        (n0, "cat /run/perilog/tasks/*/intent.json"),
        (n0, "ls /run/perilog/control"),
        (n0, "journalctl -q --no-pager -o cat PERILOG_JOB=j | grep -q 'a word of roots'"),
        (n0, &status),
        (ctl, "cat /etc/perilog/tls/key.pem"),
        (ctl, "cat /var/lib/perilog/controller.db"),
        (ctl, "perilog show j"),
        (ctl, "perilog ps"),
    ] {
        let user = as_user(node, command)?;
        ensure!(!user.success(), "a user may: {user}");
        ensure!(!user.stdout.contains("a word of roots"), "a user reads it: {user}");
        let root = node.run(&["bash", "-c", command])?;
        ensure!(root.success(), "root may not, so that it shows nothing: {root}");
    }

    // Commands that change something, and would disturb this test if root ran the commands.
    let exec =
        varlink("/run/perilog/agent.sock", "io.perilog.Agent.Exec", r#"{"job": "x", "action": "prolog", "rank": 0}"#);
    let stop = format!("systemctl stop {unit}");
    let signal = format!("systemctl kill --signal=KILL {unit}");
    let kill = format!("kill -KILL {pid}");
    let report = format!("PERILOG_CONTROL={control} perilog-report milestone forged");
    let start = "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager \
                 StartTransientUnit \
                 'ssa(sv)a(sa(sv))' perilog-task-prolog-x-0-0123456789ab.service fail 1 Description s x 0";
    for (node, command) in [
        (n0, stop.as_str()),
        (n0, &signal),
        (n0, &kill),
        (n0, &report),
        (n0, start),
        (n0, &exec),
        (n0, "touch /etc/perilog/prolog.d/99-mine"),
        (n0, "touch /run/perilog/tasks/mine || touch /run/perilog/mine"),
        (n0, "systemctl reload perilog-agent"),
        (ctl, "perilog run prolog --job x --nodes n0"),
        (ctl, "perilog cancel j"),
        (ctl, "perilog resolve j --ranks 0 --reason mine"),
        (ctl, "perilog drain n0 mine"),
        (ctl, "systemctl reload perilog-controller"),
    ] {
        let user = as_user(node, command)?;
        ensure!(!user.success(), "a user may: {user}");
        let text = format!("{}{}", user.stdout, user.stderr).to_lowercase();
        let refusals = ["denied", "not permitted", "refused", "authenti", "may not", "root"];
        ensure!(refusals.iter().any(|word| text.contains(word)), "it failed for another reason: {user}");
    }

    ensure!(!run.has_ended()?, "the prolog ended: {}", run.output()?);
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    let events = cluster.perilog(&["--json", "events", "j"])?.ok()?;
    ensure!(!events.contains("forged"), "a forged milestone was believed: {events}");
    cluster.assert_true("j", &["prolog"])
}
