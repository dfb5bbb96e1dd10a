//! Starts a real controller as a child process in a directory of its own, and connects to its Varlink API.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use perilog_host::varlink::Client;
use perilog_tests::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use crate::authority;

const START: Duration = Duration::from_secs(120);
/// Time limit of a call. A round of the fan-out takes a second at most, a sum over a large store some seconds.
const CALL: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Controller {
    directory: PathBuf,
    child: Child,
    pub(crate) port: u16,
}

impl Controller {
    /// Starts a controller in `directory`, which has the certificates of [`authority::make`], and waits until it
    /// answers. Its store is `controller.db` there.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        // Binds and closes: no other program of the bench asks for a port meanwhile.
        let port = TcpListener::bind("0.0.0.0:0").and_then(|socket| socket.local_addr()).context("a free port")?.port();
        let files = authority::server(directory);
        // No epilog: each round of the fan-out is another attempt, and its epilog would wait for the attempt before.
        let config = format!(
            "cluster = {:?}\nlisten = \"0.0.0.0:{port}\"\nstore = {:?}\nafter = []\n[tls]\nca = {:?}\ncert = \
             {:?}\nkey = {:?}\n[api]\nsocket = {:?}\n",
            authority::CLUSTER,
            directory.join("controller.db"),
            files.ca,
            files.cert,
            files.key,
            directory.join("api.sock"),
        );
        std::fs::write(directory.join("controller.toml"), config).context("writing its configuration")?;
        let child = Self::spawn(directory)?;
        let controller = Self { directory: directory.to_owned(), child, port };
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
    pub(crate) fn kill_and_restart(&mut self) -> Result<()> {
        self.child.kill().context("killing the controller")?;
        self.child.wait().context("killing the controller")?;
        self.child = Self::spawn(&self.directory)?;
        self.wait()
    }

    /// Ends the controller with SIGTERM, and starts another at once.
    pub(crate) fn end_and_restart(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        self.child.wait().context("ending the controller")?;
        self.child = Self::spawn(&self.directory)?;
        self.wait()
    }

    /// Adds a key to the configuration, and has the controller read it.
    pub(crate) fn reload_with(&self, key: &str) -> Result<()> {
        let path = self.directory.join("controller.toml");
        let config = std::fs::read_to_string(&path).context("reading its configuration")?;
        std::fs::write(&path, format!("{key}\n{config}")).context("writing its configuration")?;
        self.signal(Signal::HUP)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal).context("signalling the controller")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub(crate) fn client(&self) -> Result<Client> {
        let mut client = Client::connect(&self.directory.join("api.sock"))?;
        client.set_timeout(Some(CALL))?;
        Ok(client)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
