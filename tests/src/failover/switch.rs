//! Power switch of the controller's hosts: a server on the bed's bridge, in this process. `fence_bed` on the hosts asks
//! it, one line per connection: `off ctl1`. The answer `ok` comes after the act.
//!
//! A host hangs on two devices, as at a site: `ctl1` is a plug of the power strip, and `ctl1-bmc` is the BMC, which has
//! no power when the host has none.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::disk::Disk;
use super::site::STORE;
use crate::bed::Bed;
use crate::clock::Stopwatch;
use crate::cluster::{Cluster, HOSTS};
use crate::command;
use crate::node::Node;
use crate::wait_until;

/// Address of the switch, which `fence_bed.sh` repeats.
const LISTEN: &str = "10.77.0.1:5199";
/// End of the name of a host's BMC.
const BMC: &str = "-bmc";
/// Greatest time until the switch notices that it has to end.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Time limit of a request's line.
const LINE: Duration = Duration::from_secs(10);
/// Time limit until Corosync has missed a host, which takes some five seconds.
const MISSED: Duration = Duration::from_secs(60);
/// Time limit of a command that the switch runs, which takes moments.
const COMMAND: Duration = Duration::from_secs(60);

/// Stops a file system as a power cut does (`EXT4_IOC_SHUTDOWN`, without a flush of the journal): what was not synced
/// is lost, although the page cache belongs to this machine.
const CUT_OFF: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// Owner of the bed with the controller's hosts, [`HOSTS`].
pub(super) trait HasBed: std::fmt::Debug + Send + Sync {
    fn bed(&self) -> &Bed;
}

impl HasBed for Cluster {
    fn bed(&self) -> &Bed {
        self.bed()
    }
}

impl HasBed for Bed {
    fn bed(&self) -> &Bed {
        self
    }
}

/// The hosts and what their power needs.
#[derive(Debug)]
pub(super) struct Power {
    owner: Arc<dyn HasBed>,
    /// The disk that both hosts reach.
    pub(super) disk: Disk,
    /// Further disks: copies that one host has for itself, and the disk of a shared directory.
    pub(super) copies: Mutex<Vec<Disk>>,
    /// Requests that the switch has carried out, such as `reboot ctl0`.
    done: Mutex<Vec<String>>,
    /// Requests for a device that has no power or is broken.
    refused: Mutex<Vec<String>>,
    /// Hosts neither of whose devices acts.
    broken: Mutex<BTreeSet<String>>,
    /// Held during an act: the switch acts on one host at a time.
    acts: Mutex<()>,
    ends: AtomicBool,
    /// Time that the last power cut took, with the wait for another act: killed processes and their mounts take long to
    /// go on a loaded machine.
    last: Mutex<Duration>,
}

impl Power {
    pub(super) fn new(owner: Arc<dyn HasBed>, disk: Disk) -> Self {
        let (copies, done, refused) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let (broken, acts) = (Mutex::new(BTreeSet::new()), Mutex::new(()));
        let (ends, last) = (AtomicBool::new(false), Mutex::new(Duration::ZERO));
        Self { owner, disk, copies, done, refused, broken, acts, ends, last }
    }

    /// Cuts a host's power; returns when its processes and mounts are gone. A host that is off is no error.
    pub(super) fn off(&self, host: &Node) -> Result<()> {
        let watch = Stopwatch::start();
        let _one = self.acts.lock().unwrap_or_else(PoisonError::into_inner);
        self.switch_off(host, &watch)
    }

    /// Cuts a host's power within an act that has begun with `watch`.
    fn switch_off(&self, host: &Node, watch: &Stopwatch) -> Result<()> {
        let Ok(leader) = host.leader() else { return Ok(()) };
        // First the network, so that no decision of the last moment leaves the host.
        host.cut()?;
        let mounts = std::fs::read_to_string(format!("/proc/{leader}/mounts")).unwrap_or_default();
        let has_store = mounts.lines().any(|line| line.split(' ').nth(1) == Some(STORE));
        if has_store {
            let mut command = Command::new("python3");
            command.args(["-c", CUT_OFF, &format!("/proc/{leader}/root{STORE}")]);
            command::run("the power cut of a disk", &mut command, COMMAND)?.ok()?;
        }
        host.power_fail()?;
        if has_store {
            self.disk.wait_unused()?;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = watch.elapsed();
        Ok(())
    }

    /// Returns the time that the last power cut took.
    pub(super) fn last(&self) -> Duration {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the requests that the switch has carried out so far, such as `reboot ctl0`.
    pub(super) fn done(&self) -> Vec<String> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the requests so far for a device that had no power or was broken.
    pub(super) fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has neither device of a host act from now on, or both act again.
    pub(super) fn set_broken(&self, host: &Node, is_broken: bool) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if is_broken {
            broken.insert(host.name().to_owned())
        } else {
            broken.remove(host.name())
        };
    }

    /// Carries out a request; returns the answer, and the host to boot afterwards.
    fn answer(&self, request: &str) -> Result<(&'static str, Option<&Node>)> {
        let (action, device) = request.split_once(' ').context("no action and device")?;
        if ["monitor", "list"].contains(&action) {
            // Pacemaker would stop a device that fails its monitor, and an operator would have to clean that up.
            return Ok(("ok", None));
        }
        let name = device.strip_suffix(BMC).unwrap_or(device);
        let name = HOSTS.into_iter().find(|host| *host == name).with_context(|| format!("no device {device:?}"))?;
        let host = self.owner.bed().node(name)?;
        let watch = Stopwatch::start();
        // A power cut in progress comes first: it takes the BMC's power, too.
        let _one = self.acts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).contains(name);
        if is_broken || (device.ends_with(BMC) && !host.is_up()) {
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_owned());
            return Ok(("no power", None));
        }
        let answer = match action {
            "status" => return Ok((if host.is_up() { "on" } else { "off" }, None)),
            "off" => (self.switch_off(host, &watch)?, ("ok", None)).1,
            "reboot" => (self.switch_off(host, &watch)?, ("ok", Some(host))).1,
            "on" => ("ok", Some(host)),
            other => bail!("no action {other:?}"),
        };
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_owned());
        Ok(answer)
    }

    fn serve(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_read_timeout(Some(LINE))?;
        let mut request = String::new();
        BufReader::new(stream.try_clone()?).read_line(&mut request)?;
        let answer = self.answer(request.trim());
        let text = answer.as_ref().map_or_else(|error| format!("{error:#}"), |(answer, _)| (*answer).to_owned());
        // The asking host may have lost its power meanwhile.
        let _ = writeln!(stream, "{}", text.replace('\n', " "));
        drop(stream);
        match answer?.1 {
            Some(host) => self.boot(host),
            None => Ok(()),
        }
    }

    /// Boots a host once the other one has missed it. A real machine takes longer to boot than Corosync to miss it; one
    /// that is back before would get the message of its own end.
    fn boot(&self, host: &Node) -> Result<()> {
        let is_member = |other: &Node| {
            let members = other.run(&["corosync-quorumtool", "-l"]);
            members.is_ok_and(|members| members.stdout.split_whitespace().any(|word| word == host.name()))
        };
        let others = || HOSTS.into_iter().filter(|other| *other != host.name());
        wait_until(&format!("Corosync misses {}", host.name()), MISSED, || {
            let others: Vec<&Node> = others().map(|other| self.owner.bed().node(other)).collect::<Result<_>>()?;
            Ok(self.ends.load(Ordering::SeqCst) || !others.into_iter().any(is_member))
        })?;
        if host.is_up() || self.ends.load(Ordering::SeqCst) { Ok(()) } else { host.boot() }
    }
}

/// The running server. Its drop waits until a request in progress has been carried out.
#[derive(Debug)]
pub(super) struct Switch {
    power: Arc<Power>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    pub(super) fn start(power: Arc<Power>) -> Result<Self> {
        let (ready, listens) = mpsc::sync_channel(1);
        let shared = Arc::clone(&power);
        let thread = std::thread::spawn(move || match listen(&shared) {
            Ok(listener) => {
                let _ = ready.send(Ok(()));
                accept(&shared, &listener);
            }
            Err(error) => drop(ready.send(Err(error))),
        });
        listens.recv().map_err(|_| anyhow!("the power switch ended"))??;
        Ok(Self { power, thread: Some(thread) })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.power.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Listens on the bed's bridge. The thread moves into the network namespace of the bed's hub for good.
fn listen(power: &Power) -> Result<TcpListener> {
    let path = format!("/proc/{}/ns/net", power.owner.bed().hub());
    let namespace = File::open(&path).with_context(|| path.clone())?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).context("entering the bed's net")?;
    TcpListener::bind(LISTEN).with_context(|| format!("listening on {LISTEN}"))
}

fn accept(power: &Power, listener: &TcpListener) {
    std::thread::scope(|scope| {
        while !power.ends.load(Ordering::SeqCst) {
            let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&POLL));
            if !matches!(ready, Ok(1..)) {
                continue;
            }
            let Ok((stream, _)) = listener.accept() else { continue };
            // Two hosts may ask at once, each for the other's end.
            scope.spawn(move || {
                if let Err(error) = power.serve(stream) {
                    eprintln!("the power switch: {error:#}");
                }
            });
        }
    });
}
