//! A script leaves a process of another user behind. On systemd's notify socket, this process claims to be the unit's
//! main process. The agent still reads the true exit status of the script. With `NotifyAccess=all` in the unit, systemd
//! would report success.

use anyhow::Result;
use perilog_tests::Cluster;

/// Script body: sends forged messages to systemd's notify socket as the user nobody, then waits until the test creates
/// /run/gate and exits with 9.
const FORGES: &str = r#"
setpriv --reuid=65534 --regid=65534 --clear-groups python3 - <<'PY'
import os, socket, subprocess
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for text in (f"MAINPID={child.pid}\nREADY=1", "EXTEND_TIMEOUT_USEC=999999999", "STOPPING=1"):
    s.sendto(text.encode(), "/run/systemd/notify")
print("forged", child.pid)
open("/tmp/forged", "w").write(str(child.pid))
PY
while [ ! -e /run/gate ]; do sleep 0.02; done
kill $(cat /tmp/forged)
exit 9"#;

#[test]
fn the_true_status_is_read() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", FORGES).boot()?;
    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0", "--propagate"])?;
    cluster.bed().wait_until("the forgery was sent", std::time::Duration::from_secs(60), || {
        Ok(cluster.node(0)?.run(&["test", "-s", "/tmp/forged"])?.success())
    })?;
    assert!(!run.has_ended()?, "the forgery ended the task");
    cluster.open_gates()?;
    assert_eq!(cluster.wait_end(&mut run)?, 9, "{}", run.output()?);
    assert_eq!(cluster.outcome("j", "prolog", 0)?.1, "failed (exit 9)");
    cluster.assert_ran("j", &["prolog"])
}
