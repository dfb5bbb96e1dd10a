//! One connection to the system bus for as long as it lives, and the calls that a task needs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perilog_core::agent::io::{StartReply, UnitIds};
use perilog_core::defect;
use perilog_core::ids::unit_of;
use perilog_core::task::{Intent, Process, UnitFacts};
use perilog_host::fault;
use serde::Serialize;
use tokio::sync::Semaphore;
use zbus::{Connection, DynamicType, Message, OwnedObjectPath, Variant};

use super::cgroups::{Cgroups, populated};
use super::error::BusError;
use super::facts::Properties;
use super::keeper::UnitFound;
use super::names::{DBUS, DBUS_PATH, MANAGER, MANAGER_PATH, PROPERTIES, SYSTEMD, UNIT, unit_path};
use super::probe::Probed;
use super::recipe::recipe;
use super::signals::Interest;
use crate::stir::Stir;

/// Calls in flight. PID 1 is saturated from 16 on; dbus-daemon refuses more than 128 pending replies of one connection.
const IN_FLIGHT: usize = 32;
/// After this a call is given up and its effect unknown. PID 1 answers in milliseconds; a daemon-reload of a large host takes seconds.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(60);
/// When to look whether a runner has taken a signal.
const TAKEN: Duration = Duration::from_secs(2);
/// Processes of a unit that are told of; more help nobody.
const MAX_PROCESSES: usize = 64;
/// Characters of a command line that are told of.
const MAX_COMMAND: usize = 200;

const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// There is no unit of this name, or none with this invocation.
const GONE: [&str; 3] =
    [NO_SUCH_UNIT, "org.freedesktop.systemd1.NoUnitForInvocationID", "org.freedesktop.DBus.Error.UnknownObject"];
const PROPERTY_READ_ONLY: &str = "org.freedesktop.DBus.Error.PropertyReadOnly";

/// What a unit executes, and where its processes are counted.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub runner: PathBuf,
    pub run_dir: PathBuf,
    pub cgroups: Cgroups,
}

/// A connection; cheap to clone. All calls fail once it is lost; [`super::keeper`] brings the next one.
#[derive(Debug, Clone)]
pub struct Bus {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connection: Connection,
    calls: Semaphore,
    probed: Mutex<Probed>,
    interest: Arc<Interest>,
    stir: Arc<Stir>,
    around: Surroundings,
    /// No more than live tasks, and units that are kept.
    looked: Mutex<HashMap<String, Looked>>,
}

/// How a unit stood at the last look at it.
#[derive(Debug, Default, Clone)]
struct Looked {
    /// Which of the two ways of unloading fits it; `None`: it was not settled.
    failed: Option<bool>,
    /// Its object by what ran, once something did. Should somebody else's unit take its name, that one is never meant.
    object: Option<String>,
}

impl Bus {
    pub(super) fn new(connection: Connection, interest: Arc<Interest>, stir: Arc<Stir>, around: Surroundings) -> Self {
        let calls = Semaphore::new(IN_FLIGHT);
        let shared =
            Shared { connection, calls, probed: Mutex::default(), interest, stir, around, looked: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// StartTransientUnit(name, "fail"). The task is stirred when the start job ends, which may be before this returns.
    pub async fn start(&self, stem: &str, intent: &Intent) -> StartReply {
        self.shared.interest.starts(stem);
        // What was seen of a unit before is not of this one.
        self.looked().remove(stem);
        let reply = self.try_start(stem, intent).await;
        if !matches!(reply, StartReply::Queued | StartReply::Unknown(_)) {
            self.shared.interest.does_not_start(stem);
        }
        reply
    }

    async fn try_start(&self, stem: &str, intent: &Intent) -> StartReply {
        let unit = unit_of(stem);
        loop {
            let probed = self.probed();
            let properties = recipe(intent, &probed, &self.shared.around.runner, &self.shared.around.run_dir);
            let auxiliary: &[(&str, &[(&str, Variant<'_>)])] = &[];
            let body = (unit.as_str(), "fail", properties, auxiliary);
            let call = self.call(SYSTEMD, MANAGER_PATH, MANAGER, "StartTransientUnit", &body);
            match fault::point_when_waiting("after-start-call", call).await {
                Ok(_) => return StartReply::Queued,
                Err(error) if error.is(UNIT_EXISTS) => return StartReply::Exists,
                Err(BusError::Refused { name, text }) if name == PROPERTY_READ_ONLY => {
                    // Each round leaves out one more of a fixed list; another start may have learnt of it meanwhile.
                    match Probed::named(&text).filter(|name| probed.has(name)) {
                        Some(name) => self.leave_out(name),
                        None => return StartReply::Rejected(text),
                    }
                }
                Err(error @ BusError::Refused { .. }) => return StartReply::Rejected(error.to_string()),
                Err(BusError::Unknown(text)) => return StartReply::Unknown(text),
            }
        }
    }

    /// Adopts a unit that another connection started: `Ref`, so that PID 1 tells its changes, and a match for them; then stirred once, for what
    /// happened before. Never fails: what cannot be watched is stirred all the same, and the look at it says more.
    pub async fn watch(&self, stem: &str) {
        if self.shared.interest.watch(stem) {
            let path = unit_path(&unit_of(stem));
            let watched = async {
                self.call(DBUS, DBUS_PATH, DBUS, "AddMatch", &changes_of(&path)).await?;
                self.call(SYSTEMD, &path, UNIT, "Ref", &()).await
            };
            match watched.await {
                Ok(_) => {}
                Err(error) if error.is(NO_SUCH_UNIT) => {}
                Err(error) => tracing::warn!(unit = stem, "cannot watch {stem}: {error}"),
            }
        }
        self.shared.stir.now(stem);
    }

    /// The task is over: nothing of it is waited for any more, not even a start that was never answered.
    pub fn forget(&self, stem: &str) {
        self.shared.interest.does_not_start(stem);
    }

    /// Nor is there a unit of it any more.
    pub fn forget_unit(&self, stem: &str) {
        self.looked().remove(stem);
    }

    /// Lets a watched unit go, so that it can be unloaded.
    async fn release(&self, stem: &str) {
        if self.shared.interest.forget(stem) {
            let path = unit_path(&unit_of(stem));
            // Either may fail when the unit is gone or was never referenced; then there is nothing to let go.
            let unref = self.call(SYSTEMD, &path, UNIT, "Unref", &()).await;
            let unmatch = self.call(DBUS, DBUS_PATH, DBUS, "RemoveMatch", &changes_of(&path)).await;
            if let Err(error) = unref.and(unmatch) {
                tracing::debug!(unit = stem, "{stem} was not watched any more: {error}");
            }
        }
    }

    /// The unit as it stands (`None`: systemd knows no such unit), the ids it bears, and, once its main process is gone, what is left in its
    /// cgroup.
    pub async fn look(&self, stem: &str) -> Result<(Option<UnitFacts>, Option<UnitIds>, Vec<Process>), BusError> {
        let (facts, ids, let_go) = self.properties(stem).await?.read(stem)?;
        let Some(unit) = &facts else {
            self.looked().remove(stem);
            return Ok((None, None, Vec::new()));
        };
        let failed = matches!(unit.active.as_str(), "active" | "failed").then(|| unit.active == "failed");
        let object = unit.invocation.as_ref().map(|invocation| unit_path(invocation.as_str()));
        self.looked().insert(stem.to_owned(), Looked { failed, object });
        // A look while a script runs costs one call; the kernel says for nothing whether a second one has anything to tell.
        let events = self.shared.around.cgroups.events(unit.cgroup.as_deref());
        let empty = let_go || events.is_some_and(|events| populated(&events) == Some(false));
        let nobody = unit.main_pid != 0 || empty;
        let processes = if nobody || defect!(ProcessesUnseen) { Vec::new() } else { self.processes(stem).await? };
        Ok((facts, ids, processes))
    }

    /// The processes in the unit's cgroup, as far as they are told of; none if it is gone.
    async fn processes(&self, stem: &str) -> Result<Vec<Process>, BusError> {
        match self.call(SYSTEMD, MANAGER_PATH, MANAGER, "GetUnitProcesses", &unit_of(stem)).await {
            Ok(reply) => {
                let body = reply.body();
                let all: Vec<(&str, u32, &str)> = body.deserialize()?;
                let process = |(_, pid, command): (&str, u32, &str)| Process {
                    pid,
                    command: command.chars().take(MAX_COMMAND).collect(),
                };
                Ok(all.into_iter().take(MAX_PROCESSES).map(process).collect())
            }
            Err(error) if error.is(NO_SUCH_UNIT) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// A signal for the unit's main process only: the runner knows what to make of it.
    pub async fn signal_runner(&self, stem: &str, signal: u8) -> Result<(), BusError> {
        self.kill(stem, "main", signal).await?;
        // Whether it was taken is seen a moment later: a runner that is stopped takes nothing.
        tokio::time::sleep(TAKEN).await;
        self.shared.stir.now(stem);
        Ok(())
    }

    /// SIGKILL for all that is left in the unit's cgroup.
    pub async fn kill_all(&self, stem: &str) -> Result<(), BusError> {
        const SIGKILL: u8 = 9;
        self.kill(stem, "all", SIGKILL).await
    }

    async fn kill(&self, stem: &str, whom: &str, signal: u8) -> Result<(), BusError> {
        let signal = i32::from(signal);
        let object = self.looked().get(stem).and_then(|looked| looked.object.clone());
        match object {
            Some(object) => self.call(SYSTEMD, &object, UNIT, "Kill", &(whom, signal)).await,
            None => self.call(SYSTEMD, MANAGER_PATH, MANAGER, "KillUnit", &(unit_of(stem), whom, signal)).await,
        }
        .map(drop)
    }

    /// Unloads a unit whose outcome is kept elsewhere: a failed one by ResetFailed, any other by Stop. A unit that is gone is unloaded.
    pub async fn unload(&self, stem: &str) -> Result<(), BusError> {
        let unit = unit_of(stem);
        self.release(stem).await;
        // Of a unit that was not settled at the last look both are asked for: Stop does nothing to a failed one, ResetFailed nothing to any other.
        let Looked { failed, object } = self.looked().get(stem).cloned().unwrap_or_default();
        if failed != Some(true) {
            gone_is_fine(match &object {
                Some(object) => self.call(SYSTEMD, object, UNIT, "Stop", &"replace").await,
                None => self.call(SYSTEMD, MANAGER_PATH, MANAGER, "StopUnit", &(unit.as_str(), "replace")).await,
            })?;
        }
        if failed != Some(false) {
            gone_is_fine(match &object {
                Some(object) => self.call(SYSTEMD, object, UNIT, "ResetFailed", &()).await,
                None => self.call(SYSTEMD, MANAGER_PATH, MANAGER, "ResetFailedUnit", &unit).await,
            })?;
        }
        self.looked().remove(stem);
        Ok(())
    }

    /// Every unit of ours that is loaded, with its facts, processes and ids.
    pub(super) async fn snapshot(&self) -> Result<Vec<UnitFound>, BusError> {
        let states: &[&str] = &[];
        let reply = self
            .call(SYSTEMD, MANAGER_PATH, MANAGER, "ListUnitsByPatterns", &(states, &["perilog-task-*.service"][..]))
            .await?;
        let body = reply.body();
        let listed: Vec<Listed<'_>> = body.deserialize()?;
        let mut found = Vec::with_capacity(listed.len());
        for (unit, ..) in listed {
            let Some(stem) = unit.strip_suffix(".service") else { continue };
            let (Some(facts), ids, processes) = self.look(stem).await? else { continue };
            found.push(UnitFound { stem: stem.to_owned(), facts, processes, ids });
        }
        Ok(found)
    }

    /// What a freshly made connection needs before it is of use.
    pub(super) async fn prepare(&self) -> Result<(), BusError> {
        for rule in [
            "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='org.freedesktop.systemd1'",
            "type='signal',sender='org.freedesktop.systemd1',path='/org/freedesktop/systemd1',interface='org.freedesktop.systemd1.Manager',member='JobRemoved'",
        ] {
            self.call(DBUS, DBUS_PATH, DBUS, "AddMatch", &rule).await?;
        }
        // After the match, so that a change of the name in between is told; fails where systemd is not on the bus.
        let reply = self.call(DBUS, DBUS_PATH, DBUS, "GetNameOwner", &SYSTEMD).await?;
        self.shared.interest.systemd_is(reply.body().deserialize()?);
        // Any service will do, also one that does not exist.
        let names = self.properties("perilog-task-probe").await?.names()?;
        let probed = Probed::of(names.iter().map(String::as_str));
        for (property, loss) in probed.losses() {
            tracing::warn!("this systemd has no unit property {property}: {loss}");
        }
        *self.shared.probed.lock().unwrap_or_else(PoisonError::into_inner) = probed;
        Ok(())
    }

    /// How often this boot's user space was restarted (systemd 254 and later); `None` where systemd does not count.
    pub async fn soft_reboots(&self) -> Result<Option<u32>, BusError> {
        match self.call(SYSTEMD, MANAGER_PATH, PROPERTIES, "Get", &(MANAGER, "SoftRebootsCount")).await {
            Ok(reply) => {
                let body = reply.body();
                let value: Variant<'_> = body.deserialize()?;
                Ok(u32::try_from(&value).ok())
            }
            Err(BusError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn properties(&self, stem: &str) -> Result<Properties, BusError> {
        // The empty name asks for all interfaces of the object in one reply.
        self.call(SYSTEMD, &unit_path(&unit_of(stem)), PROPERTIES, "GetAll", &"").await.map(Properties::new)
    }

    async fn call<B>(&self, to: &str, path: &str, interface: &str, method: &str, body: &B) -> Result<Message, BusError>
    where
        B: Serialize + DynamicType,
    {
        let _in_flight = self.shared.calls.acquire().await.map_err(|_| BusError::Unknown("closed".to_owned()))?;
        Ok(self.shared.connection.call_method(Some(to), path, Some(interface), method, body).await?)
    }

    fn looked(&self) -> MutexGuard<'_, HashMap<String, Looked>> {
        // A table of plain values is whole whatever a panicking holder did.
        self.shared.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn probed(&self) -> Probed {
        self.shared.probed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn leave_out(&self, property: &'static str) {
        if self.shared.probed.lock().unwrap_or_else(PoisonError::into_inner).leave_out(property) {
            tracing::warn!("systemd cannot set {property} of a transient unit; it is left out from now on");
        }
    }
}

fn gone_is_fine(result: Result<Message, BusError>) -> Result<(), BusError> {
    match result {
        Ok(_) => Ok(()),
        Err(error) if GONE.iter().any(|gone| error.is(gone)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// ListUnitsByPatterns: name, description, load, active and sub state, followed unit, object, job id, type and object.
pub(super) type Listed<'a> =
    (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str, OwnedObjectPath, u32, &'a str, OwnedObjectPath);

fn changes_of(path: &str) -> String {
    format!("type='signal',sender='{SYSTEMD}',path='{path}',interface='{PROPERTIES}',member='PropertiesChanged'")
}
