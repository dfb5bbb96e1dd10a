//! A task's unit, made over a bare, persistent connection to the system bus. This is the least work after which a
//! caller knows how the unit ended.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt as _;
use perilog_core::task::{Intent, Plan, Run, Start};
use perilog_core::{BootId, ids};
use perilog_host::clock;
use zbus::message::Type;
use zbus::{Connection, MessageStream, Variant};

use super::link::start;
use super::recipe::{recipe, unit};
use super::wait::Waiters;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const RUNNER: &str = "/usr/libexec/perilog/perilog-runner";
/// Run directory of tasks that this bench starts without an agent; the agent has another.
const RUN_DIR: &str = "/run/perilog-bench";

/// Program that a bare unit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executes {
    True,
    /// `perilog-runner`, which runs a no-op script as the unit's intent says; [`Bare::prepare`] writes that intent.
    Runner,
}

/// Maker of bare units: units with a task's properties, started over a D-Bus connection without an agent.
#[derive(Debug)]
pub(crate) struct Bare {
    connection: Connection,
    jobs: Arc<Waiters<String, ()>>,
    unloaded: Arc<Waiters<String, ()>>,
    boot: BootId,
}

impl Bare {
    pub(crate) async fn new(boot: BootId, unloaded: Arc<Waiters<String, ()>>) -> Result<Self> {
        let connection = zbus::connection::Builder::system().build().await.context("the system bus")?;
        let jobs = Waiters::new();
        let (mut stream, reported) = (MessageStream::from(&connection), jobs.clone());
        tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                let removed = message.header().member().is_some_and(|member| member.as_str() == "JobRemoved");
                if message.message_type() == Type::Signal && removed {
                    let body = message.body();
                    if let Ok((_, _, unit, _)) = body.deserialize::<(u32, zbus::ObjectPath<'_>, &str, &str)>() {
                        reported.happened(&unit.to_owned(), ());
                    }
                }
            }
        });
        let rule = "type='signal',sender='org.freedesktop.systemd1',path='/org/freedesktop/systemd1',\
                    interface='org.freedesktop.systemd1.Manager',member='JobRemoved'";
        let bus = "org.freedesktop.DBus";
        connection.call_method(Some(bus), "/org/freedesktop/DBus", Some(bus), "AddMatch", &rule).await?;
        for (name, mode) in [("tasks", 0o700), ("control", 0o711)] {
            use std::os::unix::fs::DirBuilderExt as _;
            let path = Path::new(RUN_DIR).join(name);
            std::fs::DirBuilder::new().recursive(true).mode(mode).create(&path).context("a directory for runners")?;
        }
        Ok(Self { connection, jobs, unloaded, boot })
    }

    /// Writes the intent for the unit with this number, if the unit runs the runner. Must come before the measurement.
    pub(crate) fn prepare(&self, number: u64, executes: Executes) -> Result<()> {
        if executes == Executes::Runner {
            let start = start(number, &self.boot);
            let directory = Path::new(RUN_DIR).join("tasks").join(ids::stem(&start.action, &start.job, start.task));
            std::fs::create_dir(&directory).context("a task's directory")?;
            std::fs::write(directory.join("intent.json"), serde_json::to_vec(&intent(start))?).context("an intent")?;
        }
        Ok(())
    }

    /// Starts the unit with this number, and waits until systemd has unloaded it.
    pub(crate) async fn unit(&self, number: u64, executes: Executes) -> Result<()> {
        let start = start(number, &self.boot);
        let name = unit(&start);
        let argv = match executes {
            Executes::True => vec!["/bin/true".to_owned()],
            Executes::Runner => {
                let stem = ids::stem(&start.action, &start.job, start.task);
                [RUNNER, "--run-dir", RUN_DIR, &stem].map(str::to_owned).into()
            }
        };
        let (ended, unloaded) = (self.jobs.register(name.clone()), self.unloaded.register(name.clone()));
        let auxiliary: &[(&str, &[(&str, Variant<'_>)])] = &[];
        let body = (name.as_str(), "fail", recipe(&start, argv), auxiliary);
        self.call(MANAGER_PATH, MANAGER, "StartTransientUnit", &body).await?;
        ended.await.context("the bus is gone")?;
        let reply = self.call(&path(&name), "org.freedesktop.DBus.Properties", "GetAll", &"").await?;
        let body = reply.body();
        let all: HashMap<&str, Variant<'_>> = body.deserialize()?;
        let text = |name: &str| all.get(name).and_then(|value| <&str>::try_from(value).ok()).unwrap_or_default();
        let result = (text("LoadState"), text("ActiveState"), text("Result"));
        ensure!(result == ("loaded", "active", "success"), "{name}: {result:?}");
        self.call(MANAGER_PATH, MANAGER, "StopUnit", &(name.as_str(), "replace")).await?;
        unloaded.await.context("no client watches units")
    }

    async fn call<B>(&self, path: &str, interface: &str, method: &str, body: &B) -> Result<zbus::Message>
    where
        B: serde::Serialize + zbus::DynamicType,
    {
        let reply = self.connection.call_method(Some(SYSTEMD), path, Some(interface), method, body).await;
        reply.with_context(|| format!("{method} of {path}"))
    }
}

/// Returns the D-Bus object path of a unit (bus_label_escape of systemd).
fn path(unit: &str) -> String {
    let escape = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("_{byte:02x}"),
    };
    // No unit of ours begins with a digit.
    format!("/org/freedesktop/systemd1/unit/{}", unit.bytes().map(escape).collect::<String>())
}

/// Returns the intent that an agent with a plain configuration would write.
fn intent(start: Start) -> Intent {
    let now = clock::boottime_ms();
    let run = Run::Directories(vec!["/etc/perilog/prolog.d".to_owned()]);
    Intent {
        not_after_boottime_ms: now + start.not_after_ms,
        accepted_boottime_ms: now,
        hook: Default::default(),
        start,
        plan: Plan { run, ..Plan::default() },
        env: BTreeMap::new(),
        dropped_env: 0,
        local: false,
        commit: None,
    }
}
