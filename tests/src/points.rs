//! Fault points of the daemons (`perilog_host::fault`). A test arms a point on a node, and waits until the daemon has
//! died or stopped there: the point has sprung.

use std::sync::OnceLock;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::node::Node;
use anyhow::{Context, Result, ensure};
use table::{DIRECTORY, POINTS, Point};

// The file alone: the crate would bring tokio and TLS.
#[allow(unreachable_pub)]
#[path = "../../host/src/fault/table.rs"]
mod table;

/// Time limit until an armed point springs on a loaded machine; normally some tens of milliseconds.
const SPRINGS: Duration = Duration::from_secs(90);

/// Order to a daemon: how to die or stop when it passes an armed fault point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The daemon sends SIGKILL to itself; systemd starts the daemon again, unless [`Cluster::stay_down`] forbids this.
    Kill,
    /// The daemon sends SIGKILL to itself when it passes the point for the n-th time, counted from 1.
    KillOn(u32),
    /// The daemon sends SIGSTOP to itself.
    Stop,
}

/// An armed fault point of a daemon.
#[derive(Debug)]
#[must_use = "whether it has sprung"]
pub struct Armed<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
    point: Point,
    order: Order,
    /// Pid, in the node's pid namespace, that the daemon had when the point was armed.
    pid: String,
}

impl Cluster {
    /// Arms the fault point of this name in the running daemon of that node.
    pub fn arm<'a>(&'a self, node: &'a Node, point: &str, order: Order) -> Result<Armed<'a>> {
        let point =
            *POINTS.iter().find(|each| each.name == point).with_context(|| format!("no such point: {point}"))?;
        ensure_compiled_in(node)?;
        let armed = Armed { cluster: self, node, point, order, pid: main_pid(node, &point)? };
        ensure!(armed.pid != "0", "{} does not run on {}", point.daemon, node.name());
        let text = match order {
            Order::Kill => "kill".to_owned(),
            Order::KillOn(passing) => format!("kill {passing}"),
            Order::Stop => "stop".to_owned(),
        };
        node.write_file(&armed.path(), text)?;
        // The daemon removes the file, and may not be root.
        node.sh(&format!("chmod 777 {DIRECTORY}"))?;
        Ok(armed)
    }
}

impl Armed<'_> {
    /// Waits until the daemon has died or stopped at the point.
    pub fn wait_sprung(&self) -> Result<()> {
        let Point { name, daemon, moment } = self.point;
        let what = format!("{daemon} of {} passes {name}: {moment}", self.node.name());
        self.cluster.bed().wait_until(&what, SPRINGS, || {
            if self.node.try_read_file(&self.path())?.is_some() {
                return Ok(false);
            }
            match self.order {
                Order::Kill | Order::KillOn(_) => Ok(main_pid(self.node, &self.point)? != self.pid),
                Order::Stop => Ok(self.node.sh(&format!("ps -o state= -p {}", self.pid))? == "T"),
            }
        })
    }

    /// Waits until the daemon has died at the point, and systemd has started another.
    pub fn wait_restarted(&self) -> Result<()> {
        self.wait_sprung()?;
        let what = format!("another {} on {}", self.point.daemon, self.node.name());
        self.cluster.bed().wait_until(&what, SPRINGS, || {
            let state = self.node.systemctl(&["show", "--property=ActiveState", "--value", self.point.daemon])?;
            let pid = main_pid(self.node, &self.point)?;
            Ok(state == "active" && pid != self.pid && pid != "0")
        })
    }

    fn path(&self) -> String {
        format!("{DIRECTORY}/{}", self.point.name)
    }
}

fn main_pid(node: &Node, point: &Point) -> Result<String> {
    node.systemctl(&["show", "--property=MainPID", "--value", point.daemon])
}

/// Returns an error if the daemons were built without fault points: a test of a point would wait in vain.
fn ensure_compiled_in(node: &Node) -> Result<()> {
    static COMPILED_IN: OnceLock<bool> = OnceLock::new();
    let found = match COMPILED_IN.get() {
        Some(found) => *found,
        None => {
            let daemons = ["/usr/sbin/perilog-agent", "/usr/sbin/perilog-controller"];
            let has_points = |daemon| Ok::<_, anyhow::Error>(node.run(&["grep", "-qF", DIRECTORY, daemon])?.success());
            *COMPILED_IN.get_or_init(|| daemons.into_iter().all(|daemon| matches!(has_points(daemon), Ok(true))))
        }
    };
    ensure!(
        found,
        "the daemons have no fault points: build them with --features \
         perilog-agent/fault-points,perilog-controller/fault-points"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn sources(directory: &Path, text: &mut String) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, text);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn every_point_of_the_table_is_in_its_daemon_once_and_no_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (directory, daemon) in [("agent", "perilog-agent"), ("controller", "perilog-controller")] {
            let mut text = String::new();
            sources(&root.join(directory).join("src"), &mut text);
            let calls = text.split("fault::point").skip(1);
            let mut passed: Vec<&str> = calls.map(|call| call.split('"').nth(1).unwrap()).collect();
            let mut named: Vec<&str> =
                POINTS.iter().filter(|point| point.daemon == daemon).map(|point| point.name).collect();
            passed.sort_unstable();
            named.sort_unstable();
            assert_eq!(passed, named, "{directory}");
        }
    }
}
