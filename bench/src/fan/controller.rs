//! Starts a real controller as a child process in a directory of its own, and calls its Varlink API as a resource
//! manager would.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use perilog_core::IdSet;
use perilog_host::varlink::Client;
use perilog_tests::wait_until;
use serde_json::{Value, json};

use super::swarm;
use crate::authority;

const START: Duration = Duration::from_secs(60);
/// Time limit of a round, which takes a second at most.
const ROUND: Duration = Duration::from_secs(120);
const JOB: &str = "f1";
/// Number of lines from the end of the controller's log to show when a round failed.
const LOG_LINES: usize = 20;

#[derive(Debug)]
pub(super) struct Controller {
    directory: PathBuf,
    child: Child,
    pub(super) port: u16,
    agents: usize,
}

impl Controller {
    /// Starts a new controller, and waits until it answers.
    pub(super) fn start(directory: &Path, agents: usize) -> Result<Self> {
        // Binds and closes: no other program of the bench asks for a port meanwhile.
        let port = TcpListener::bind("0.0.0.0:0").and_then(|socket| socket.local_addr()).context("a free port")?.port();
        let files = authority::server(directory);
        // No epilog: each round is another attempt, and the epilog of the attempt before would run first.
        let config = format!(
            "cluster = \"bench\"\nlisten = \"0.0.0.0:{port}\"\nstore = {:?}\nafter = []\n[tls]\nca = {:?}\ncert = \
             {:?}\nkey = {:?}\n[api]\nsocket = {:?}\n",
            directory.join("controller.db"),
            files.ca,
            files.cert,
            files.key,
            directory.join("api.sock"),
        );
        std::fs::write(directory.join("controller.toml"), config).context("writing its configuration")?;
        let child = Self::spawn(directory)?;
        let controller = Self { directory: directory.to_owned(), child, port, agents };
        controller.wait()?;
        Ok(controller)
    }

    fn spawn(directory: &Path) -> Result<Child> {
        let program = std::env::current_exe().context("the path of this program")?.with_file_name("perilog-controller");
        let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).context("its log")?;
        let mut command = Command::new(&program);
        command.arg("--config").arg(directory.join("controller.toml")).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log).spawn().with_context(|| format!("starting {}", program.display()))
    }

    fn wait(&self) -> Result<()> {
        wait_until("the controller answers", START, || Ok(self.client().is_ok())).with_context(|| self.log())
    }

    /// Kills the controller with SIGKILL, and starts another at once.
    pub(super) fn kill_and_restart(&mut self) -> Result<()> {
        self.child.kill().context("killing the controller")?;
        self.child.wait().context("killing the controller")?;
        self.child = Self::spawn(&self.directory)?;
        self.wait()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub(super) fn client(&self) -> Result<Client> {
        let mut client = Client::connect(&self.directory.join("api.sock"))?;
        client.set_timeout(Some(ROUND))?;
        Ok(client)
    }

    /// Begins the prolog of attempt `attempt` on all agents. Returns the sequence number of the job's last event before
    /// the prolog, from which [`Self::verdict`] reads on.
    pub(super) fn begin(&self, client: &mut Client, attempt: usize) -> Result<u64> {
        let run =
            json!({"job": JOB, "attempt": attempt.to_string(), "action": "prolog", "nodes": swarm::hosts(self.agents)});
        let running = client.call("io.perilog.Controller.Run", run)?;
        ensure!(running["attached"] == false, "an action of an earlier round: {running}");
        running["events_after"].as_u64().with_context(|| format!("no events_after: {running}"))
    }

    /// Reads the job's events after sequence number `after`, until the attempt's verdict; an error if the verdict is
    /// not ok on every rank.
    pub(super) fn verdict(&self, client: &mut Client, attempt: usize, after: u64) -> Result<()> {
        let (follow, wanted) = (json!({"job": JOB, "after": after, "follow": true}), attempt.to_string());
        for reply in client.call_more("io.perilog.Controller.Events", follow)? {
            let reply = reply?;
            for event in reply["events"].as_array().into_iter().flatten() {
                if event["name"] == "verdict" && event["context"]["attempt"] == *wanted {
                    return self.check(&event["context"]);
                }
            }
        }
        bail!("the events ended without a verdict")
    }

    fn check(&self, context: &Value) -> Result<()> {
        let ok: IdSet = context["ok"].as_str().unwrap_or_default().parse().with_context(|| context.to_string())?;
        ensure!(
            ok.len() == self.agents as u64,
            "{} of {} ranks are ok: {context}; its log ends with\n{}",
            ok.len(),
            self.agents,
            self.log().lines().rev().take(LOG_LINES).collect::<Vec<_>>().join("\n")
        );
        Ok(())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
