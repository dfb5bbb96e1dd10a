//! The start of the agent. It takes the lock, reads the units and directories of existing tasks (the first join), then
//! opens the local socket and dials the controller.

use std::collections::VecDeque;
use std::sync::Arc;

use perilog_core::agent::Machine;
use perilog_core::agent::io::Node;
use perilog_core::ids::HostName;
use perilog_host::varlink::{self, Bounds, SocketError};
use perilog_host::{notify, signals};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::identity::{self, IdentityError};
use super::{ANSWERS, Daemon, EVENTS, Events, Places, calls, log_dedup, notes, reload, status, task_index, trace};
use crate::config::Config;
use crate::link::{self, Controllers, Enroll, Window};
use crate::local::{Agent, Callers};
use crate::logs::Logs;
use crate::spool::{Spool, SpoolError, Watcher};
use crate::systemd::{BusEvent, Cgroups, Emptiness, Surroundings, keeper};
use crate::wakeups::Wakeups;

/// The reason why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("cannot watch files (inotify): {source}{}", inotify_hint(source))]
    Inotify { source: std::io::Error },
    /// A bug in perilog: a tokio task of the daemon has ended. systemd restarts the agent, which finds all tasks again.
    #[error("a part of the agent that must always run has ended (a defect in perilog)")]
    Crew,
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: std::io::Error },
}

fn inotify(source: std::io::Error) -> StartError {
    StartError::Inotify { source }
}

/// Returns advice for an error message if root's inotify instances are used up (other services and containers use them
/// too); empty for any other error.
fn inotify_hint(error: &std::io::Error) -> &'static str {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::MFILE) => {
            "; root's processes use all inotify instances. Raise the limit: sysctl -w \
             fs.inotify.max_user_instances=1024, and set the same in /etc/sysctl.d"
        }
        _ => "",
    }
}

/// Runs the agent until SIGTERM. Reports ready to systemd once the machine has compared its tasks with the loaded
/// units.
pub async fn run(places: Places, config: Config) -> Result<(), StartError> {
    let io = |doing| move |source| StartError::Io { doing, source };
    let mut signals = signals::Signals::new().map_err(io("cannot take over signals"))?;
    let (spool, lock) = Spool::open(&places.run_dir)?;
    let record = identity::boot(&spool, &lock)?;
    let host = identity::host(config.host.as_ref())?;
    let machine = identity::machine()?;
    let wakeups = Arc::new(Wakeups::default());
    let watcher = Watcher::new(spool.clone(), wakeups.clone()).map_err(inotify)?;
    let cgroups = Cgroups::find().map_err(io("cannot read the mounts"))?;
    let emptiness = Emptiness::new(cgroups.clone(), wakeups.clone()).map_err(inotify)?;

    let (bus_events, mut bus) = mpsc::channel(EVENTS);
    let around = Surroundings { runner: places.runner.clone(), run_dir: places.run_dir.clone(), cgroups };
    let mut crew = JoinSet::new();
    crew.spawn(keeper::keep(bus_events, wakeups.clone(), around));
    notify::status("waiting for systemd on the system bus");
    // The agent serves no peer before the bus is up: each session names its boot, and the boot includes systemd's count
    // of soft reboots.
    let first = loop {
        tokio::select! {
            _ = ended(&mut signals) => return Ok(()),
            Some(event) = bus.recv() => if let BusEvent::Up { bus, units } = event {
                match bus.soft_reboots().await {
                    Ok(count) => {
                        let boot = record.boot_id(count.unwrap_or_default()).map_err(IdentityError::from)?;
                        break (boot, BusEvent::Up { bus, units });
                    }
                    Err(error) => tracing::warn!(
                        "systemd does not answer ({error}); the agent waits for its next connection to the bus"
                    ),
                }
            },
        }
    };
    let (boot, first) = first;

    let (ask, requests) = mpsc::channel(EVENTS);
    let (answers_to, answers) = mpsc::channel(ANSWERS);
    let (reads_to, reads) = mpsc::channel(EVENTS);
    let (link_events, link) = mpsc::channel(EVENTS);
    let (controllers_to, controllers) = watch::channel(controllers(&config, &host));
    let window = Arc::new(Window::default());
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let node =
        Node { host: host.clone(), machine, boot: boot.clone(), version: version.clone(), policy: config.policy() };
    let read = reload::Read::new(config.clone());
    let (tombstone_written, tombstones) = watch::channel(0);
    let agent = Arc::new(Agent::new((host, boot), config, spool.clone(), ask, tombstones));
    let mut daemon = Daemon {
        machine: Machine::new(node),
        inputs: VecDeque::new(),
        watcher,
        emptiness,
        wakeups,
        calls: calls::Calls::new(answers_to),
        notes: notes::Notes::start(&places.run_dir).map_err(io("cannot start a thread"))?,
        task_index: task_index::TaskIndex::default(),
        callers: Callers::default(),
        tombstone_written,
        logs: Logs::new(spool.clone()),
        connected: None,
        window: window.clone(),
        controllers: controllers_to,
        agent: agent.clone(),
        accepted: spool.accepted(),
        joined_once: false,
        wake_ms: None,
        read,
        reads: reads_to,
        status: status::StatusLine::default(),
        log_dedup: log_dedup::LogDedup::default(),
        trace: trace::Trace::default(),
        spool,
        places,
    };
    daemon.on_bus(first);
    daemon.settle();

    let listener = varlink::bind(&daemon.places.socket(), daemon.read.last.local.socket_mode(), None)?;
    crew.spawn(async move {
        let Err(error) = varlink::serve(listener, agent, Bounds::default()).await;
        tracing::error!("the local socket cannot be served: {error}");
    });
    crew.spawn(link::dial(controllers, link_events, window, version));
    notify::ready(&daemon.machine.status_line());
    tracing::info!("ready: {}", daemon.machine.status_line());
    daemon.serve(Events { signals, bus, link, requests, answers, reads, crew }).await
}

/// Returns the settings with which the agent dials its controllers and obtains its certificate.
pub(super) fn controllers(config: &Config, host: &HostName) -> Controllers {
    let enroll = || Enroll {
        addresses: config.enroll.controller.iter().map(|address| address.0.clone()).collect(),
        token: config.enroll.token.as_ref().map(|path| path.0.clone().into()),
        munge: config.enroll.munge(),
        host: host.to_string(),
    };
    Controllers {
        enroll: config.enroll.is_on().then(enroll),
        addresses: config.controller.iter().map(|address| address.0.clone()).collect(),
        tls: config.tls.enabled.then(|| config.tls.files()),
        server_name: config.tls.server_name.clone(),
    }
}

async fn ended(signals: &mut signals::Signals) {
    // Before the first join the daemon has nothing to reload.
    while signals.next().await != signals::Signal::Terminate {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inotify_instances_that_are_used_up_name_their_sysctl() {
        let error = inotify(rustix::io::Errno::MFILE.into()).to_string();
        assert!(error.contains("fs.inotify.max_user_instances"), "{error}");
        assert!(!inotify(rustix::io::Errno::NOMEM.into()).to_string().contains("sysctl"));
    }
}
