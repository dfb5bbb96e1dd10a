//! Connection to the system bus, and the calls that a task needs.

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
use super::runner::deaf;
use super::signals::Interest;
use crate::wakeups::Wakeups;

/// Maximum number of calls in flight. PID 1 is saturated from 16 on; dbus-daemon refuses more than 128 pending replies
/// of one connection.
const IN_FLIGHT: usize = 32;
/// Limit of a call; past the limit, the call's effect is unknown. PID 1 answers in milliseconds; a daemon-reload of a
/// large host takes seconds.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Time between a signal to a runner and the inspection that shows whether the runner handled the signal.
const TAKEN: Duration = Duration::from_secs(2);
/// Maximum number of processes that the agent reports for a unit.
const MAX_PROCESSES: usize = 64;
/// Maximum number of characters of a reported command line.
const MAX_COMMAND: usize = 200;

const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// Names of the D-Bus errors that mean that a unit is missing: systemd knows no unit of this name, no unit with this
/// invocation, or no object at the unit's path.
const GONE: [&str; 3] =
    [NO_SUCH_UNIT, "org.freedesktop.systemd1.NoUnitForInvocationID", "org.freedesktop.DBus.Error.UnknownObject"];
const PROPERTY_READ_ONLY: &str = "org.freedesktop.DBus.Error.PropertyReadOnly";

/// Facts of the host that a connection needs: the runner's program and the run directory, which go into a unit's
/// command line, and the cgroups, which show whether a unit has processes.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub runner: PathBuf,
    pub run_dir: PathBuf,
    pub cgroups: Cgroups,
}

/// A connection to the system bus; cheap to clone. All calls fail once the connection is lost; [`super::keeper`] makes
/// the next one.
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
    wakeups: Arc<Wakeups>,
    around: Surroundings,
    /// Result of the last inspection of each unit, by stem: units of live tasks, and units of ended tasks that are
    /// still loaded.
    inspected: Mutex<HashMap<String, Inspected>>,
}

/// State of a unit at the last inspection.
#[derive(Debug, Default, Clone)]
struct Inspected {
    /// Whether the unit failed, which decides how to unload it; `None` while the unit was in transition.
    failed: Option<bool>,
    /// Object path of the unit's invocation; `None`: the unit has not run yet. If another unit takes the same name,
    /// calls by this path never reach that other unit.
    object: Option<String>,
}

impl Bus {
    pub(super) fn new(
        connection: Connection,
        interest: Arc<Interest>,
        wakeups: Arc<Wakeups>,
        around: Surroundings,
    ) -> Self {
        let calls = Semaphore::new(IN_FLIGHT);
        let shared = Shared {
            connection,
            calls,
            probed: Mutex::default(),
            interest,
            wakeups,
            around,
            inspected: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Calls StartTransientUnit(name, "fail"). The end of the start job makes the agent inspect the task ([`Wakeups`]),
    /// perhaps before this call returns.
    pub async fn start(&self, stem: &str, intent: &Intent, since_boot_ms: u64) -> StartReply {
        self.shared.interest.starts(stem);
        // Earlier facts do not belong to the new unit.
        self.inspected().remove(stem);
        let reply = self.try_start(stem, intent, since_boot_ms).await;
        if !matches!(reply, StartReply::Queued | StartReply::Unknown(_)) {
            self.shared.interest.does_not_start(stem);
        }
        reply
    }

    async fn try_start(&self, stem: &str, intent: &Intent, since_boot_ms: u64) -> StartReply {
        let unit = unit_of(stem);
        let around = &self.shared.around;
        loop {
            let probed = self.probed();
            let properties = recipe(intent, &probed, &around.runner, &around.run_dir, since_boot_ms);
            let auxiliary: &[(&str, &[(&str, Variant<'_>)])] = &[];
            let body = (unit.as_str(), "fail", properties, auxiliary);
            let call = self.call(SYSTEMD, MANAGER_PATH, MANAGER, "StartTransientUnit", &body);
            match fault::point_when_waiting("after-start-call", call).await {
                Ok(_) => return StartReply::Queued,
                Err(error) if error.is(UNIT_EXISTS) => return StartReply::Exists,
                Err(BusError::Refused { name, text }) if name == PROPERTY_READ_ONLY => {
                    // Each round drops one more property of a fixed list; another start may have dropped the property
                    // already.
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

    /// Watches a unit, normally one that another connection started: calls `Ref`, so that PID 1 reports changes of the
    /// unit, and AddMatch for these signals. Then requests an inspection ([`Wakeups`]), which finds earlier changes.
    /// Never fails: even if the unit cannot be watched, the inspection shows its state.
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
        self.shared.wakeups.now(stem);
    }

    /// Stops expecting the end of the start job of a task's unit: the task is over, and systemd may never report that
    /// job.
    pub fn forget(&self, stem: &str) {
        self.shared.interest.does_not_start(stem);
    }

    /// Forgets what the last inspection of a unit found: the unit no longer exists.
    pub fn forget_unit(&self, stem: &str) {
        self.inspected().remove(stem);
    }

    /// Stops watching a unit, so that systemd can unload the unit.
    async fn release(&self, stem: &str) {
        if self.shared.interest.forget(stem) {
            let path = unit_path(&unit_of(stem));
            // Both calls may fail if the unit is gone or was never referenced; then the agent has nothing to release.
            let unref = self.call(SYSTEMD, &path, UNIT, "Unref", &()).await;
            let unmatch = self.call(DBUS, DBUS_PATH, DBUS, "RemoveMatch", &changes_of(&path)).await;
            if let Err(error) = unref.and(unmatch) {
                tracing::debug!(unit = stem, "{stem} was no longer watched: {error}");
            }
        }
    }

    /// Returns the unit's facts (`None`: systemd knows no such unit), the unit's ids, and, once the main process is
    /// gone, the remaining processes in the cgroup.
    pub async fn inspect(&self, stem: &str) -> Result<(Option<UnitFacts>, Option<UnitIds>, Vec<Process>), BusError> {
        let (facts, ids, no_cgroup) = self.properties(stem).await?.read(stem)?;
        let Some(unit) = &facts else {
            self.inspected().remove(stem);
            return Ok((None, None, Vec::new()));
        };
        let failed = matches!(unit.active.as_str(), "active" | "failed").then(|| unit.active == "failed");
        let object = unit.invocation.as_ref().map(|invocation| unit_path(invocation.as_str()));
        self.inspected().insert(stem.to_owned(), Inspected { failed, object });
        // Inspecting a running script costs one call. The kernel's `cgroup.events` shows at no cost whether a second
        // call is worthwhile.
        let events = self.shared.around.cgroups.events(unit.cgroup.as_deref());
        let empty = no_cgroup || events.is_some_and(|events| populated(&events) == Some(false));
        let nobody = unit.main_pid != 0 || empty;
        let nobody = if defect!(ProcessesUnseen) { true } else { nobody };
        let processes = if nobody { Vec::new() } else { self.processes(stem).await? };
        Ok((facts, ids, processes))
    }

    /// Returns what keeps the runner of this unit from handling signals and limits, for operators; `None`: nothing, or
    /// the unit has no main process.
    pub fn deaf(&self, unit: &UnitFacts) -> Option<String> {
        let frozen = self.shared.around.cgroups.frozen_by(unit.cgroup.as_deref()).filter(|_| unit.main_pid != 0);
        frozen.map(|by| format!("its unit is frozen with {by} (systemctl thaw {by})")).or_else(|| deaf(unit.main_pid))
    }

    /// Returns the processes in the unit's cgroup, at most [`MAX_PROCESSES`]; none if the unit or its cgroup is gone.
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

    /// Sends a signal to the unit's main process only: the runner decides what the signal means.
    pub async fn signal_runner(&self, stem: &str, signal: u8) -> Result<(), BusError> {
        self.kill(stem, "main", signal).await?;
        // A later inspection shows whether the runner handled the signal; a stopped runner does not.
        tokio::time::sleep(TAKEN).await;
        self.shared.wakeups.now(stem);
        Ok(())
    }

    /// Sends SIGKILL to all processes in the unit's cgroup.
    pub async fn kill_all(&self, stem: &str) -> Result<(), BusError> {
        const SIGKILL: u8 = 9;
        self.kill(stem, "all", SIGKILL).await
    }

    async fn kill(&self, stem: &str, whom: &str, signal: u8) -> Result<(), BusError> {
        let signal = i32::from(signal);
        let object = self.inspected().get(stem).and_then(|inspected| inspected.object.clone());
        match object {
            Some(object) => self.call(SYSTEMD, &object, UNIT, "Kill", &(whom, signal)).await,
            None => self.call(SYSTEMD, MANAGER_PATH, MANAGER, "KillUnit", &(unit_of(stem), whom, signal)).await,
        }
        .map(drop)
    }

    /// Unloads a unit whose outcome is stored: a failed unit by ResetFailed, any other unit by Stop, and a unit whose
    /// state is unknown by both. A missing unit counts as unloaded.
    pub async fn unload(&self, stem: &str) -> Result<(), BusError> {
        let unit = unit_of(stem);
        self.release(stem).await;
        // If the unit was in transition at the last inspection, makes both calls: Stop does not affect a failed unit,
        // ResetFailed affects only a failed unit.
        let Inspected { failed, object } = self.inspected().get(stem).cloned().unwrap_or_default();
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
        self.inspected().remove(stem);
        Ok(())
    }

    /// Returns every loaded unit of perilog's tasks, with its facts, processes and ids.
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
            let (Some(facts), ids, processes) = self.inspect(stem).await? else { continue };
            found.push(UnitFound { stem: stem.to_owned(), facts, processes, ids });
        }
        Ok(found)
    }

    /// Subscribes a new connection to the signals that the agent needs.
    pub(super) async fn prepare(&self) -> Result<(), BusError> {
        for rule in [
            "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',\
             arg0='org.freedesktop.systemd1'",
            "type='signal',sender='org.freedesktop.systemd1',path='/org/freedesktop/systemd1',\
             interface='org.freedesktop.systemd1.Manager',member='JobRemoved'",
        ] {
            self.call(DBUS, DBUS_PATH, DBUS, "AddMatch", &rule).await?;
        }
        // Follows the match, so that a change of the name in between is reported. Fails if systemd is not on the bus.
        let reply = self.call(DBUS, DBUS_PATH, DBUS, "GetNameOwner", &SYSTEMD).await?;
        self.shared.interest.systemd_is(reply.body().deserialize()?);
        // Any service name works, also of a missing service.
        let names = self.properties("perilog-task-probe").await?.names()?;
        let probed = Probed::of(names.iter().map(String::as_str));
        for (property, loss) in probed.losses() {
            tracing::warn!("this systemd has no unit property {property}: {loss}");
        }
        *self.shared.probed.lock().unwrap_or_else(PoisonError::into_inner) = probed;
        Ok(())
    }

    /// Returns how often this boot's user space was restarted (systemd 254 and later); `None` if systemd does not
    /// have the property, or it has another form.
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
        // The empty name requests all interfaces of the object in one reply.
        self.call(SYSTEMD, &unit_path(&unit_of(stem)), PROPERTIES, "GetAll", &"").await.map(Properties::new)
    }

    async fn call<B>(&self, to: &str, path: &str, interface: &str, method: &str, body: &B) -> Result<Message, BusError>
    where
        B: Serialize + DynamicType,
    {
        let _in_flight = self.shared.calls.acquire().await.map_err(|_| BusError::Unknown("closed".to_owned()))?;
        Ok(self.shared.connection.call_method(Some(to), path, Some(interface), method, body).await?)
    }

    fn inspected(&self) -> MutexGuard<'_, HashMap<String, Inspected>> {
        // A panicking holder cannot leave a table of plain values half changed.
        self.shared.inspected.lock().unwrap_or_else(PoisonError::into_inner)
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
