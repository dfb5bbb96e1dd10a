//! Test bed: a directory with all that a controller needs, and the controllers that a test starts there.

use std::fmt::Write as _;
use std::fs;
use std::io::BufReader;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rustix::process::getegid;

use crate::authority::Authority;
pub(crate) use crate::log::Log;

/// Limit far above every wait in these tests; exceeding it fails the test.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) authority: Authority,
    /// Lines of the configuration in addition to those of every bed.
    pub(crate) extra: String,
    /// Gid that the configuration names as `[api] group`: the test's own group, whose members may change state.
    pub(crate) gid: u32,
    /// Value of `[api] read`: which users may read.
    pub(crate) read: &'static str,
    tls: String,
    pub(crate) store: PathBuf,
    /// Address of the bed's first controller: later controllers listen there, too.
    address: Option<SocketAddr>,
}

/// A running controller; killed when dropped.
pub(crate) struct Controller {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) log: Log,
    notifications: Receiver<String>,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(&dir.path().join("tls"));
        let files = authority.controller();
        let tls = format!("[tls]\nca = {:?}\ncert = {:?}\nkey = {:?}\n", files.ca, files.cert, files.key);
        let store = dir.path().join("controller.db");
        Self {
            dir,
            authority,
            extra: String::new(),
            gid: getegid().as_raw(),
            read: "anyone",
            tls,
            store,
            address: None,
        }
    }

    /// Switches TLS off for controllers that start later.
    pub(crate) fn plain(&mut self) {
        self.tls = "[tls]\nenabled = false\n".to_owned();
    }

    /// Adds a revocation list to the configuration; a running controller uses the list after its next reload.
    pub(crate) fn revocations(&mut self, list: &std::path::Path) {
        writeln!(self.tls, "crl = {list:?}").unwrap();
        self.write_config();
    }

    /// Moves the store into a directory on which the test mounts a disk of its own; returns the directory.
    pub(crate) fn use_disk(&mut self) -> PathBuf {
        let dir = self.dir.path().join("disk");
        fs::create_dir(&dir).unwrap();
        self.store = dir.join("controller.db");
        dir
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("api.sock")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.store.clone()
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.dir.path().join("controller.toml")
    }

    pub(crate) fn write_config(&self) {
        let listen = self.address.unwrap_or_else(|| "127.0.0.1:0".parse().unwrap());
        let mut text = format!("cluster = \"test\"\nlisten = \"{listen}\"\nstore = {:?}\n", self.store());
        text += &self.extra;
        text += &self.tls;
        let (socket, group, read) = (self.socket(), self.gid, self.read);
        writeln!(text, "[api]\nsocket = {socket:?}\ngroup = \"{group}\"\nread = \"{read}\"").unwrap();
        fs::write(self.config_file(), text).unwrap();
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(crate::program());
        command.arg("--config").arg(self.config_file());
        command
    }

    /// Starts a controller and waits until it is ready.
    pub(crate) fn start(&mut self) -> Controller {
        self.write_config();
        let command = self.command();
        self.start_with(command)
    }

    pub(crate) fn start_with(&mut self, mut command: Command) -> Controller {
        let path = self.dir.path().join("notify");
        let _ = fs::remove_file(&path);
        let notify = UnixDatagram::bind(&path).unwrap();
        // For a controller of another user.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        command.env("NOTIFY_SOCKET", &path).env_remove("PERILOG_LOG").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Log::of(BufReader::new(child.stderr.take().unwrap()));
        let mut controller =
            Controller { child, address: ([127, 0, 0, 1], 0).into(), log, notifications: drain(notify) };
        controller.wait_notified("READY=1");
        let listening = controller.log.wait_for("listening for agents");
        let address = listening.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
        controller.address = address.parse().unwrap();
        self.address = Some(controller.address);
        controller
    }
}

impl Controller {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills the controller with SIGKILL, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the controller has ended; returns its exit status.
    pub(crate) fn terminated(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits for the next message of sd_notify with this line, and returns the message.
    pub(crate) fn wait_notified(&self, line: &str) -> String {
        loop {
            let reported = self.notifications.recv_timeout(LIMIT);
            let text = reported.unwrap_or_else(|e| panic!("no {line}: {e}; the log:\n{}", self.log.text()));
            if text.lines().any(|l| l == line) {
                return text;
            }
        }
    }
}

/// Reads the messages of sd_notify in a thread, as a service manager does; otherwise the sender would block.
fn drain(notify: UnixDatagram) -> Receiver<String> {
    let (sender, receiver) = sync_channel(10_000);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n) = notify.recv(&mut buffer) {
            if sender.send(String::from_utf8_lossy(&buffer[..n]).into_owned()).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
