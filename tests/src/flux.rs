//! The real Flux on a [`Cluster`]: rank 0 on `ctl`, which runs no jobs, and rank `i + 1` on node `ni`. The instance is
//! a multi-user system instance with the stock flux.service, munge, the IMP, and the plugin `perilog-hold`. Flux 0.73
//! or newer has to be on PATH; without Flux, `cargo xtask test` counts the tests as skipped.

mod edge;
mod sdmon;
mod soak;
mod tasks;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{CONTROLLER, Cluster, ClusterBuilder};
use crate::command::Output;
use crate::node::Node;
pub use edge::{edge_cluster, plain};
pub use sdmon::{SDEXEC, watched_by_sdmon};
pub use soak::{Report, soak};

/// Time limit for conditions in Flux, on a loaded machine. A killed broker joins again some seconds after the restart
/// of its unit.
pub const SOON: Duration = Duration::from_secs(150);
/// The oldest Flux whose messages the edge can read.
pub const OLDEST: (u32, u32) = (0, 73);

/// Path and text of the program that Flux's housekeeping runs, at a site that runs epilogs as housekeeping.
const WAIT: (&str, &str) = ("/usr/libexec/perilog/flux/wait", include_str!("../../docs/examples/flux/wait"));
const RC1: &str = include_str!("../../flux/rc1/10-perilog");
/// Path of the plugin `perilog-hold` on a node.
pub const PLUGIN: &str = "/usr/lib/perilog/perilog-hold.so";
const USER: &str = "flux";
const ADD_USER: &str =
    "getent passwd flux >/dev/null || useradd --system --uid 64010 --user-group --home-dir /var/lib/flux flux";

/// Drop-in for the stock flux.service, which has its user linger at the login manager before each start, and waits half
/// a minute before a restart. Only jobs that are units of systemd need the lingering user.
const DROP_IN: &str = "[Unit]\nRequires=munge.service\nAfter=munge.service\n\
    [Service]\nExecStartPre=\nRestartSec=1s\n";

/// Returns the builder of a cluster whose nodes can run Flux.
pub fn cluster(nodes: usize) -> ClusterBuilder {
    Cluster::builder(nodes)
}

/// Returns `true` if `output`, the output of `flux version`, names a version that the tests can use.
fn is_enough(output: &str) -> bool {
    let version = output.lines().find_map(|line| line.strip_prefix("commands:")).map(str::trim).unwrap_or_default();
    let mut parts = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= OLDEST
}

/// Returns `true` if this machine has a Flux that the tests can use.
pub fn is_here() -> bool {
    let output = std::process::Command::new("flux").arg("version").output();
    output.is_ok_and(|output| is_enough(&String::from_utf8_lossy(&output.stdout)))
}

/// An event of a job (RFC 18, RFC 21).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Event {
    pub timestamp: f64,
    pub name: String,
    #[serde(default)]
    pub context: Value,
}

/// Answer of a Flux service to a request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Answer {
    /// Error number (errno(3)); 0 if the request succeeded.
    pub errnum: i32,
    /// Text of the error, for people.
    pub text: String,
    pub payload: Value,
}

/// A real Flux instance on a test cluster, used through its commands.
#[derive(Debug)]
pub struct Flux<'a> {
    cluster: &'a Cluster,
    /// Path of the part of Flux's configuration that tests may replace.
    site: String,
}

impl<'a> Flux<'a> {
    /// Starts Flux on every node of the cluster. `more` is further lines of Flux's configuration, such as the table
    /// `[perilog]`.
    pub fn start(cluster: &'a Cluster, more: &str) -> Result<Self> {
        ensure!(is_here(), "no Flux {}.{} or newer is on PATH", OLDEST.0, OLDEST.1);
        let rank_0 = cluster.controller()?;
        ensure!(rank_0.try_read_file(PLUGIN)?.is_some(), "no {PLUGIN}: `cargo build -p perilog-hold` makes it");
        let libexec = rank_0.sh("flux config builtin libexecdir")?;
        let unit = unit(rank_0, &libexec)?;
        let conf = unit.split("--config-path=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let conf = conf.context("no --config-path in flux.service")?;
        let flux = Self { cluster, site: format!("{conf}/site.toml") };
        rank_0.sh("flux keygen /root/curve.cert")?;
        let curve = rank_0.read_file("/root/curve.cert")?;
        for node in cluster.bed().nodes() {
            node.sh(ADD_USER)?;
            node.write_file(&format!("{conf}/system.toml"), flux.configuration(&libexec))?;
            node.write_file(&flux.site, more)?;
            node.write_with_mode("/etc/flux/system/curve.cert", &curve, 0o600)?;
            node.write_file("/etc/flux/imp/conf.d/imp.toml", imp(&libexec))?;
            // Packages install the IMP setuid; `make install` does not.
            node.sh(&format!("chmod u+s {libexec}/flux-imp"))?;
            node.write_script(WAIT.0, WAIT.1)?;
            node.write_file("/etc/systemd/system/flux.service", &unit)?;
            node.write_file("/etc/systemd/system/flux.service.d/bed.conf", DROP_IN)?;
            node.sh("chown -R flux: /etc/flux/system && chmod 1777 /var/tmp && systemctl daemon-reload && systemctl \
                     start munge")?;
        }
        for node in cluster.bed().nodes() {
            node.systemctl(&["start", "flux"])?;
        }
        flux.wait_up()?;
        Ok(flux)
    }

    /// Returns Flux's configuration (TOML), in which rank 0 on `ctl` runs no jobs. The checkpoint-period is short,
    /// because a kill of rank 0 loses the store's writes since the last checkpoint.
    fn configuration(&self, libexec: &str) -> String {
        let nodes = self.cluster.nodes().len();
        let hosts = format!("{CONTROLLER},n[0-{}]", nodes.saturating_sub(1));
        format!(
            "[exec]\nimp = \"{libexec}/flux-imp\"\n\
             [access]\nallow-guest-user = true\nallow-root-owner = true\n\
             [bootstrap]\ncurve_cert = \"/etc/flux/system/curve.cert\"\ndefault_port = 8050\n\
             default_bind = \"tcp://eth0:%p\"\ndefault_connect = \"tcp://%h:%p\"\nhosts = [ {{ host = \"{hosts}\" }} \
             ]\n\
             [resource]\nnoverify = true\nexclude = \"{CONTROLLER}\"\n\
             [[resource.config]]\nhosts = \"{hosts}\"\ncores = \"0\"\n\
             [kvs]\ncheckpoint-period = \"1s\"\n\
             [job-manager]\nplugins = [ {{ load = \"{PLUGIN}\" }} ]\n"
        )
    }

    /// Returns the node of rank 0.
    pub fn rank_0(&self) -> Result<&'a Node> {
        self.cluster.controller()
    }

    /// Runs `flux ARGUMENTS` as this user, on rank 0's node.
    pub fn run_as(&self, user: &str, arguments: &[&str]) -> Result<Output> {
        let begin = ["runuser", "-u", user, "--", "env", "-C", "/tmp", "FLUX_URI=local:///run/flux/local", "flux"];
        self.rank_0()?.run(&[&begin, arguments].concat())
    }

    /// Runs `flux ARGUMENTS` as the instance's owner; fails if the command fails.
    pub fn ask(&self, arguments: &[&str]) -> Result<String> {
        self.run_as(USER, arguments)?.ok()
    }

    /// Submits a job of alice that uses whole nodes; returns the job's id in f58.
    pub fn submit(&self, nodes: usize, more: &[&str], command: &[&str]) -> Result<String> {
        self.try_submit(nodes, more, command)?.ok()
    }

    pub fn try_submit(&self, nodes: usize, more: &[&str], command: &[&str]) -> Result<Output> {
        let (nodes, tasks) = (format!("-N{nodes}"), format!("-n{nodes}"));
        let submit = ["submit", &nodes, &tasks, "--exclusive", "--cwd=/tmp"];
        self.run_as("alice", &[&submit[..], more, &["--"], command].concat())
    }

    /// Returns the job's eventlog.
    pub fn events(&self, job: &str) -> Result<Vec<Event>> {
        let text = self.ask(&["job", "eventlog", "--format=json", job])?;
        text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("an event: {line}"))).collect()
    }

    /// Returns the names of the job's events in order, without some that neither hold nor release the job, such as
    /// `submit` and `memo`.
    pub fn story(&self, job: &str) -> Result<Vec<String>> {
        const ASIDE: [&str; 6] = ["submit", "validate", "depend", "priority", "annotations", "memo"];
        let events = self.events(job)?.into_iter().map(|event| event.name);
        Ok(events.filter(|name| !ASIDE.contains(&name.as_str())).collect())
    }

    /// Waits until a condition holds. The error names the condition (`what`), and shows Flux's queue and nodes.
    pub fn wait(&self, what: &str, mut condition: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        self.cluster.bed().wait_until(what, SOON, || condition(self)).with_context(|| {
            let shown = ["jobs -a", "resource list", "resource drain", "jobtap list"].map(|command| {
                let arguments: Vec<&str> = command.split(' ').collect();
                self.ask(&arguments).unwrap_or_else(|error| format!("{error:#}"))
            });
            format!("Flux: {}", shown.join("\n"))
        })
    }

    /// Waits until the job has an event of this name; returns the event.
    pub fn wait_event(&self, job: &str, name: &str) -> Result<Event> {
        let mut found = None;
        let waited = self.wait(&format!("job {job} has {name}"), |flux| {
            // Rank 0 may not answer yet.
            found = flux.events(job).unwrap_or_default().into_iter().find(|event| event.name == name);
            Ok(found.is_some())
        });
        waited.with_context(|| format!("{:?}", self.events(job)))?;
        found.context("an event")
    }

    /// Waits until every broker has joined.
    pub fn wait_up(&self) -> Result<()> {
        let all = self.cluster.bed().nodes().len();
        self.wait("every broker is online", |flux| {
            let overlay = flux.run_as(USER, &["overlay", "status", "--summary"])?;
            Ok(overlay.code() == Some(0) && flux.online()? == all.to_string())
        })
    }

    /// Returns the number of nodes that Flux counts as online, as digits; empty while no broker answers.
    pub fn online(&self) -> Result<String> {
        Ok(self.run_as(USER, &["python", "-c", ONLINE])?.stdout.trim().to_owned())
    }

    /// Stops a node's broker; returns when Flux counts one node fewer as online.
    pub fn stop_broker(&self, node: &Node) -> Result<()> {
        let left = self.cluster.bed().nodes().len() - 1;
        node.systemctl(&["stop", "flux"])?;
        self.wait("the broker is offline", |flux| Ok(flux.online()? == left.to_string()))
    }

    /// Kills rank 0 with kill -9; returns when the process has ended. systemd starts the broker again.
    pub fn kill_rank_0(&self) -> Result<()> {
        let node = self.rank_0()?;
        let pid = || node.systemctl(&["show", "--property=MainPID", "--value", "flux.service"]);
        let was = pid()?;
        Cluster::kill_unit(node, "flux.service")?;
        self.wait("rank 0 is gone", |_| Ok(pid()? != was))
    }

    /// Kills rank 0 with kill -9 once rank 0's eventlogs are on the disk.
    pub fn kill_rank_0_after_sync(&self) -> Result<()> {
        self.ask(&["kvs", "sync"])?;
        self.kill_rank_0()
    }

    /// Kills rank 0 as [`Flux::kill_rank_0_after_sync`] does; returns when every broker has joined again and the plugin
    /// answers.
    pub fn restart_rank_0(&self) -> Result<()> {
        self.kill_rank_0_after_sync()?;
        self.wait_up()?;
        // The job manager starts later than the resources.
        self.wait("the plugin answers", |flux| {
            let list = flux.rpc("job-manager.perilog-hold.list", &json!({}));
            Ok(list.is_ok_and(|list| list.errnum == 0))
        })
    }

    /// Replaces the test's own part of Flux's configuration, on every node.
    pub fn site(&self, more: &str) -> Result<()> {
        self.cluster.bed().nodes().iter().try_for_each(|node| node.write_file(&self.site, more))
    }

    /// Gives each node this many cores, and restarts rank 0. A node has one core otherwise.
    pub fn has_cores(&self, cores: usize) -> Result<()> {
        let rank_0 = self.rank_0()?;
        let hosts = format!("{CONTROLLER},n[0-{}]", self.cluster.nodes().len().saturating_sub(1));
        let more = format!("[[resource.config]]\nhosts = \"{hosts}\"\ncores = \"0-{}\"\n", cores.saturating_sub(1));
        // The last file of the directory counts.
        rank_0.write_file(&self.site.replace("site.toml", "zz.toml"), more)?;
        self.restart_rank_0()
    }

    /// Sends a request to a service of rank 0 as the instance's owner; returns the answer. `topic` is for example
    /// `groups.get`.
    pub fn rpc(&self, topic: &str, payload: &Value) -> Result<Answer> {
        self.rpc_as(USER, topic, payload)
    }

    pub fn rpc_as(&self, user: &str, topic: &str, payload: &Value) -> Result<Answer> {
        let text = self.run_as(user, &["python", "-c", RPC, topic, &payload.to_string()])?.ok()?;
        serde_json::from_str(&text).with_context(|| format!("an answer: {text}"))
    }

    /// Tells the plugin, as the edge would, that the prolog or the epilog (`what`) of a job has ended with this status.
    pub fn finish(&self, job: &str, what: &str, status: i32) -> Result<Answer> {
        self.rpc("job-manager.perilog-hold.finish", &json!({"id": self.decimal(job)?, "what": what, "status": status}))
    }

    /// Returns the states of the prolog and epilog references by which the plugin holds a job, for example (`open`,
    /// `none`). `None` if the plugin does not know the job.
    pub fn held(&self, job: &str) -> Result<Option<(String, String)>> {
        let id = self.decimal(job)?;
        let list = self.rpc("job-manager.perilog-hold.list", &json!({}))?;
        ensure!(list.errnum == 0, "{list:?}");
        let jobs = list.payload["jobs"].as_array().with_context(|| format!("no jobs: {list:?}"))?;
        let word = |job: &Value, what: &str| job[what].as_str().unwrap_or_default().to_owned();
        Ok(jobs.iter().find(|job| job["id"] == id).map(|job| (word(job, "prolog"), word(job, "epilog"))))
    }

    /// Posts an event to a job's eventlog, as the owner.
    pub fn post(&self, job: &str, name: &str, context: &Value) -> Result<Answer> {
        let payload = json!({"id": self.decimal(job)?, "name": name, "context": context});
        self.rpc("job-manager.post-event.post", &payload)
    }

    /// Puts perilog's rc1 script on every node, into the directory where this Flux looks for rc1 scripts.
    pub fn install_rc1(&self) -> Result<()> {
        let confdir = self.rank_0()?.sh("flux config builtin confdir")?;
        let nodes = self.cluster.bed().nodes();
        nodes.iter().try_for_each(|node| node.write_script(&format!("{confdir}/rc1.d/10-perilog"), RC1))
    }

    fn decimal(&self, job: &str) -> Result<u64> {
        Ok(self.ask(&["job", "id", "--to=dec", job])?.trim().parse()?)
    }
}

/// Returns the text of the flux.service that came with this Flux; `libexec` is Flux's libexecdir.
fn unit(node: &Node, libexec: &str) -> Result<String> {
    let prefix = libexec.strip_suffix("/libexec/flux").unwrap_or("/usr");
    for path in [format!("{prefix}/lib/systemd/system/flux.service"), "/usr/lib/systemd/system/flux.service".into()] {
        if let Ok(unit) = node.sh(&format!("cat {path}")) {
            return Ok(unit);
        }
    }
    bail!("no flux.service beside {libexec}")
}

/// Returns the configuration (TOML) of flux-imp, Flux's program with the rights of root: the users that may start jobs,
/// the allowed shells, and the housekeeping command.
fn imp(libexec: &str) -> String {
    format!(
        "[exec]\nallowed-users = [\"{USER}\"]\nallowed-shells = [\"{libexec}/flux-shell\"]\n\
         [run.housekeeping]\nallowed-users = [\"{USER}\"]\nallowed-environment = [\"FLUX_*\"]\n\
         path = \"{}\"\n",
        WAIT.0
    )
}

const ONLINE: &str = "import flux\nfrom flux.idset import IDset\n\
    print(IDset(flux.Flux().rpc('resource.status', nodeid=0).get()['online']).count())";

const RPC: &str = "import flux, json, sys\n\
    try:\n    \
        r = dict(errnum=0, text='', payload=flux.Flux().rpc(sys.argv[1], json.loads(sys.argv[2]), nodeid=0).get())\n\
    except OSError as e:\n    \
        r = dict(errnum=e.errno, text=str(e.strerror), payload=None)\n\
    print(json.dumps(r))";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flux_that_is_too_old_is_none() {
        for (output, enough) in [
            ("commands:    \t\t0.88.0\nlibflux-core:\t\t0.88.0\n", true),
            ("commands: 0.73.0-5-gabc\n", true),
            ("commands: 0.72.0\n", false),
            ("commands: 1.0.0\n", true),
            ("", false),
        ] {
            assert_eq!(is_enough(output), enough, "{output}");
        }
    }
}
