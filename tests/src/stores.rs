//! Operations on the controller's store, and a second controller on a copy of the store.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::cluster::{Cluster, shown};
use crate::command::{Output, Running};

const STORE: &str = "/var/lib/perilog/controller.db";
/// Time limit for the conditions that tests await, on a loaded machine; they take some tens of milliseconds.
const SOON: Duration = Duration::from_secs(90);

/// Configuration of the second controller of [`Cluster::start_second`]. The second controller runs on the first
/// controller's node and therefore has the same certificate.
///
/// A request made before the nodes have connected waits for them, which takes long on a loaded machine: hence the long
/// `start-grace`.
const SECOND: &str = "\
cluster = \"bed\"
start-grace = \"1h\"
listen = \"[::]:5116\"
store = \"/var/lib/perilog/second/controller.db\"
[api]
socket = \"/run/perilog/second.sock\"
";

impl Cluster {
    /// Stops the controller, copies its store to the directory `to`, and starts the controller again. The restarted
    /// controller has a higher epoch than the copy.
    pub fn copy_store(&self, to: &str) -> Result<()> {
        self.stop_controller()?;
        self.controller()?.sh(&format!("rm -rf {to} && mkdir -m 700 {to} && cp -a {STORE}* {to}/"))?;
        self.start_controller()?;
        self.wait_online()
    }

    /// Replaces the store by the copy in the directory `by`; `None` removes the store. The controller must not run.
    pub fn replace_store(&self, by: Option<&str>) -> Result<()> {
        let copy = by.map(|from| format!(" && cp -a {from}/* /var/lib/perilog/")).unwrap_or_default();
        self.controller()?.sh(&format!("rm -f {STORE}*{copy}")).map(drop)
    }

    /// Stops the controller and its socket in good order, as an operator would.
    pub fn stop_controller(&self) -> Result<()> {
        self.controller()?.systemctl(&["stop", "perilog-controller.socket", "perilog-controller.service"]).map(drop)
    }

    /// Waits until the first controller shows that this node accepts another controller, together with the command for
    /// an operator who wants the node to accept the first again.
    pub fn wait_refused(&self, host: &str) -> Result<()> {
        self.bed().wait_until(&format!("{host} is shown to have accepted another controller"), SOON, || {
            let views = self.node_views()?;
            let note = views.iter().find(|view| view.host == host).and_then(|view| view.note.clone());
            Ok(note.is_some_and(|note| note.contains("perilog controller recover --take-over")))
        })
    }

    /// Waits until the journal of this unit on that host has a line with all of these words.
    pub fn wait_journal(&self, host: &str, unit: &str, words: &[&str]) -> Result<()> {
        let node = self.bed().node(host)?;
        self.bed().wait_until(&format!("{unit} of {host} logs {words:?}"), SOON, || {
            let journal = node.sh(&format!("journalctl --no-pager -o cat -u {unit}"))?;
            Ok(journal.lines().any(|line| words.iter().all(|word| line.contains(word))))
        })
    }

    /// Starts a second controller beside the first, on a copy of the store in the directory `store`. It has the same
    /// cluster and host, and another port.
    pub fn start_second(&self, store: &str) -> Result<()> {
        let node = self.controller()?;
        node.write_file("/etc/perilog/second.toml", SECOND)?;
        node.sh(&format!("rm -rf /var/lib/perilog/second && cp -a {store} /var/lib/perilog/second"))?;
        node.sh("systemd-run --quiet --unit=second --service-type=notify -p RuntimeDirectoryPreserve=yes \
             /usr/sbin/perilog-controller --config /etc/perilog/second.toml")?;
        ensure!(self.second(&["status"])?.success(), "the second controller does not answer");
        Ok(())
    }

    /// Runs `perilog ARGUMENTS` against the second controller and waits for its end.
    pub fn second(&self, arguments: &[&str]) -> Result<Output> {
        self.controller()?.run(&at_second(arguments))
    }

    /// Starts `perilog ARGUMENTS` against the second controller and leaves it running.
    pub fn ask_second(&self, arguments: &[&str]) -> Result<Running> {
        self.controller()?.spawn(&at_second(arguments))
    }

    /// Asserts that the second controller's view of this job agrees with the ledgers. `action` has the one script
    /// `10-gate`.
    pub fn assert_second_true(&self, job: &str, action: &str) -> Result<()> {
        let view = shown(&self.second(&["--json", "show", job])?.ok()?)?;
        let comparison = self.compare_to(job, &view, &[(action, &["10-gate"])])?;
        ensure!(comparison.holds(), "the second and the ledgers differ:\n{comparison}\n{}", self.bed().diagnosis());
        Ok(())
    }

    /// Makes the agent of node `n{rank}` dial these controllers, in this order; restarts the agent.
    pub fn dial(&self, rank: usize, controllers: &[&str]) -> Result<()> {
        let node = self.node(rank)?;
        node.write_file("/etc/perilog/agent.d/zz-dial.toml", format!("controller = {controllers:?}\n"))?;
        node.systemctl(&["restart", "perilog-agent.service"]).map(drop)
    }
}

fn at_second<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["perilog", "--socket", "/run/perilog/second.sock"], arguments].concat()
}
