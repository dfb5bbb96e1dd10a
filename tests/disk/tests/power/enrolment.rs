//! Power cuts of a node that enrols: the key is on the disk before the agent asks with it. So the agent that starts
//! after the cut gets a certificate with the same token, which is good for that key alone.

use std::fs::{self, Permissions};
use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use perilog_disk::disk::Disk;
use perilog_disk::power;
use perilog_disk::record;
use perilog_disk::run::{Marks, Recorded, program};
use perilog_host::tls::{ClientTls, TlsFiles};
use perilog_host::varlink::Client;
use serde_json::json;

use crate::bed::{Bed, Controller, LIMIT};
use crate::controller::enroll_port;
use crate::log::Log;
use crate::{PAUSE, systemd};

/// Number of times that the power is cut at each moment.
const TIMES: u64 = 2;

/// A controller that enrols nodes, and a bus for their agents.
struct Site {
    bed: Bed,
    controller: Controller,
    enroll: u16,
}

impl Site {
    fn new() -> Self {
        let mut bed = Bed::new();
        systemd::serve(&bed.dir.path().join("bus"));
        let directory = bed.dir.path().join("enroll");
        // A host gets more certificates in an hour if they are short.
        bed.extra = format!("[enroll]\nlisten = \"127.0.0.1:0\"\ndirectory = {directory:?}\nlifetime = \"5m\"\n");
        let controller = bed.start();
        let enroll = enroll_port(&controller);
        Self { bed, controller, enroll }
    }

    /// Makes a one-time token for the node, and writes it to a file.
    fn token(&self, file: &Path) {
        let mut client = Client::connect(&self.bed.socket()).unwrap();
        let made = client.call("io.perilog.Controller.TokenMake", json!({"nodes": "n0"})).unwrap();
        fs::write(file, made["tokens"][0]["token"].as_str().unwrap()).unwrap();
        fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    }

    /// Starts the node's agent; `dir` has its key and certificate.
    fn agent(&self, dir: &Path, token: &Path, enroll: u16, recorded: Option<&Recorded>) -> Agent {
        let place = crate::in_memory();
        let files = self.files(dir);
        let port = self.controller.address.port();
        let text = format!(
            "host = \"n0\"\ncontroller = [\"127.0.0.1:{port}\"]\n[tls]\nca = {:?}\ncert = {:?}\nkey = {:?}\n\
             server-name = \"localhost\"\n[enroll]\ncontroller = [\"127.0.0.1:{enroll}\"]\ntoken = {token:?}\n\
             [action.prolog]\n",
            files.ca, files.cert, files.key
        );
        let config = place.path().join("agent.toml");
        fs::write(&config, text).unwrap();
        let mut command = program("perilog-agent").unwrap();
        if let Some(recorded) = recorded {
            recorded.preload(&mut command).unwrap();
        }
        command.arg("--config").arg(config).arg("--run-dir").arg(place.path().join("run"));
        let bus = self.bed.dir.path().join("bus");
        command.env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", bus.display()));
        command.env_remove("NOTIFY_SOCKET").env_remove("PERILOG_LOG").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Log::of(BufReader::new(child.stderr.take().unwrap()));
        Agent { child, log, _place: place }
    }

    fn files(&self, dir: &Path) -> TlsFiles {
        let ca = self.bed.dir.path().join("tls/ca.pem");
        TlsFiles { ca, cert: dir.join("tls/cert.pem"), key: dir.join("tls/key.pem"), crl: None }
    }

    /// Returns whether the key and a certificate of it are there.
    fn is_enrolled(&self, dir: &Path) -> bool {
        ClientTls::load(&self.files(dir)).is_ok()
    }
}

/// A running agent; killed when dropped.
struct Agent {
    child: Child,
    log: Log,
    _place: tempfile::TempDir,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a relay to the enrolment server, which marks each connection before it passes anything on. Returns its port.
fn relay(to: u16, marks: Arc<Marks>) -> u16 {
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = relay.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in relay.incoming().map_while(Result::ok) {
            marks.acknowledged("asked").unwrap();
            let far = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))).unwrap();
            for (mut from, mut to) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far.try_clone().unwrap(), near)]
            {
                // Either side may end the connection.
                std::thread::spawn(move || {
                    let _ended = std::io::copy(&mut from, &mut to);
                    let _ended = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_power_enrols_with_the_same_token() {
    let site = Site::new();
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().canonicalize().unwrap().join("disk");
    fs::create_dir(&directory).unwrap();
    let recorded = Recorded { directory: directory.clone(), record: place.path().join("record") };
    let marks = Arc::new(recorded.marks().unwrap());
    let (token, later): (PathBuf, PathBuf) = (place.path().join("token"), place.path().join("later"));
    site.token(&token);
    let agent = site.agent(&directory, &token, relay(site.enroll, marks.clone()), Some(&recorded));
    agent.log.wait_for("enrolled as n0 with its token");
    marks.acknowledged("enrolled").unwrap();
    drop(agent);
    let record = fs::read(&recorded.record).unwrap();
    let entries = record::read(&record).unwrap();
    let moments: Vec<usize> = (0..=entries.len()).collect();
    let mut bad = Vec::new();
    for seed in 1..=TIMES {
        power::cuts(Disk::new(seed), seed, &entries, &moments, |cut| {
            let dir = crate::in_memory();
            cut.image.write(dir.path()).unwrap();
            let mut wrong = |text: String| bad.push(format!("entry {} of {}: {text}", cut.moment, entries.len()));
            if cut.acknowledged.contains(&"enrolled") && !site.is_enrolled(dir.path()) {
                return wrong("the certificate is lost".to_owned());
            }
            // Before the question, the token of the run is another node's future.
            let has_asked = cut.acknowledged.contains(&"asked");
            if !has_asked {
                site.token(&later);
            }
            let agent = site.agent(dir.path(), if has_asked { &token } else { &later }, site.enroll, None);
            let tries = LIMIT.as_millis() / PAUSE.as_millis();
            let is_enrolled = (0..tries).any(|_| {
                let is_enrolled = site.is_enrolled(dir.path());
                if !is_enrolled && agent.log.count("refuses") == 0 {
                    std::thread::park_timeout(PAUSE);
                }
                is_enrolled
            });
            if !is_enrolled {
                wrong(format!("the node does not enrol:\n{}", agent.log.text()));
            }
        });
    }
    let images = moments.len() * TIMES as usize;
    eprintln!("{} calls; {images} images, {} bad", entries.len(), bad.len());
    assert!(bad.is_empty(), "{} of {images} images are bad:\n{}", bad.len(), bad.join("\n"));
}
