//! The configuration of a controller is broken while agents dial the controller: systemd keeps the port open, for any
//! length of time. After the repair of the configuration, everything comes back by itself.

use std::time::Duration;

use anyhow::{Result, ensure};
use perilog_tests::{Cluster, Stopwatch};

const SOON: Duration = Duration::from_secs(90);
/// Time for which the controller stays broken: more than twice the interval in which systemd counts how often a socket
/// triggers (systemd.socket(5), TriggerLimitIntervalSec=).
const WHILE: Duration = Duration::from_secs(5);

#[test]
fn the_socket_outlives_it() -> Result<()> {
    let cluster = Cluster::builder(2).boot()?;
    let controller = cluster.controller()?;
    controller.write_file("/etc/perilog/controller.d/zz-broken.toml", "listen = \"nowhere\"\n")?;
    let failed = controller.run(&["systemctl", "restart", "perilog-controller.service"])?;
    ensure!(!failed.success(), "{failed}");
    let watch = Stopwatch::start();
    let mut starts = 0;
    cluster.bed().wait_until("agents have had the time to make a socket reach its limit", SOON, || {
        let state =
            controller.systemctl(&["show", "--value", "--property=ActiveState,Result", "perilog-controller.socket"])?;
        ensure!(state == "active\nsuccess" || state == "success\nactive", "the port is closed: {state}");
        starts = controller
            .sh("journalctl --no-pager -o cat -u perilog-controller.service | grep -c 'Failed with result' || true")?
            .parse()?;
        Ok(watch.elapsed() > WHILE && starts > 1)
    })?;
    ensure!(starts < 10, "{starts} starts in {:?}", watch.elapsed());
    controller.sh("rm /etc/perilog/controller.d/zz-broken.toml")?;
    cluster.wait_online()
}
