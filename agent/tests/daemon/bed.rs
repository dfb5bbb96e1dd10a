//! Test bed: an agent in a directory of its own, with a fake bus.

use std::fmt::Write as _;
use std::fs;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use perilog_host::link::{Keepalive, Listener, bind};
use perilog_host::tls::{ServerTls, TlsFiles};

use crate::authority::Authority;
use crate::log::Log;
use crate::systemd;

/// Limit far above every wait in these tests; exceeding it fails the test.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
    /// The controller's side of the connection: the agent dials this listener.
    pub(crate) listener: Listener,
    /// Lines of agent.toml in addition to the lines that every test bed has.
    pub(crate) extra: String,
    pub(crate) authority: Authority,
    /// Certificate and key of the host n0, whose agent the bed starts.
    pub(crate) files: TlsFiles,
}

/// A running agent; killed when dropped.
pub(crate) struct Agent {
    child: Child,
    pub(crate) log: Log,
}

impl Bed {
    /// Makes a test bed without an agent yet: a fake bus, a controller's listener, and a directory that every user may
    /// enter.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        systemd::serve(&dir.path().join("bus"));
        let authority = Authority::new(&dir.path().join("tls"));
        let tls = ServerTls::load(&authority.controller()).unwrap();
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = Listener::new(socket, Some(tls), Keepalive::default()).unwrap();
        let files = authority.files("n0");
        Self { dir, listener, extra: String::new(), authority, files }
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Starts the agent of the host n0 and waits until it is ready.
    pub(crate) fn start(&self) -> Agent {
        let files = &self.files;
        let address = self.listener.local_addr().unwrap();
        let mut text = format!("host = \"n0\"\ncontroller = [\"{address}\"]\n");
        writeln!(text, "[tls]\nca = {:?}\ncert = {:?}\nkey = {:?}", files.ca, files.cert, files.key).unwrap();
        writeln!(text, "server-name = \"localhost\"\n[action.prolog]\n{}", self.extra).unwrap();
        let config = self.dir.path().join("agent.toml");
        fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_perilog-agent"));
        command.arg("--config").arg(config).arg("--run-dir").arg(self.run_dir());
        command.env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", self.dir.path().join("bus").display()));
        command.env_remove("NOTIFY_SOCKET").env_remove("PERILOG_LOG").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Log::of(BufReader::new(child.stderr.take().unwrap()));
        let agent = Agent { child, log };
        agent.log.wait_for("ready: ");
        agent
    }
}

impl Agent {
    pub(crate) fn rss_mib(&self) -> u64 {
        self.mib("VmRSS:")
    }

    /// Returns the agent's highest memory use in MiB since its start; [`Self::rss_mib`] is its present use.
    pub(crate) fn peak_mib(&self) -> u64 {
        self.mib("VmHWM:")
    }

    fn mib(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
