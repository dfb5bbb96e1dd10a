//! Model of systemd 239 (RHEL 8), as far as perilog uses systemd: a peer that accepts the properties of 239's setters,
//! and rejects newer properties as 239 would. The agent's own [`Bus`] talks to the model, so the tests see the
//! properties that StartTransientUnit receives.
//!
//! The model does not show whether 239 *acts* on a unit like 252, on which the other tests run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use perilog_core::agent::io::StartReply;
use perilog_core::ids;
use perilog_core::task::{Intent, Lingering, OnTimeout, Plan};
use zbus::message::{Header, Type};
use zbus::{Connection, Guid, Message, MessageStream, OwnedObjectPath, Variant, connection};

use super::super::bus::{Bus, Listed, Surroundings};
use super::super::cgroups::Cgroups;
use super::super::signals::Interest;
use crate::testing;
use crate::wakeups::Wakeups;

const LIST: &str = include_str!("properties-239.txt");

/// Arguments that systemd 239 accepts for a property or in a call: their D-Bus signature, and the permitted words.
#[derive(Debug)]
struct Taken {
    signature: &'static str,
    /// Words that a property may have as its value. Empty: systemd accepts every value of the D-Bus type `signature`.
    /// The list of a call is always empty.
    words: Vec<&'static str>,
}

/// Returns the entries of properties-239.txt by name: the calls if `calls` is set, otherwise the properties. With
/// `updated`, includes the properties that later updates of RHEL 8 added.
fn taken(calls: bool, updated: bool) -> BTreeMap<&'static str, Taken> {
    let (properties, methods) = LIST.split_once("\n[calls]\n").unwrap();
    let lines = if calls { methods } else { properties }.lines();
    lines
        .filter(|line| !line.is_empty() && !line.starts_with(['#', '[']) && (updated || !line.starts_with('+')))
        .map(|line| {
            let mut words = line.trim_start_matches('+').split(' ');
            let (name, signature) = (words.next().unwrap(), words.next().unwrap_or_default());
            (name, Taken { signature, words: words.collect() })
        })
        .collect()
}

/// The names of the calls that the fake systemd received, in order.
type Calls = Arc<Mutex<Vec<String>>>;

/// A fake of systemd 239: it refuses properties that came later.
struct Old {
    methods: BTreeMap<&'static str, Taken>,
    settable: BTreeMap<&'static str, Taken>,
    /// Properties that a client can read, but not set on a transient unit.
    readable: Vec<&'static str>,
    unit: Units,
    calls: Calls,
}

/// State that the fake systemd ([`Old`]) reports for every unit: its ActiveState, and if `ran` is set also an
/// invocation id.
#[derive(Clone, Copy)]
struct Units {
    active: &'static str,
    ran: bool,
}

const NEW: Units = Units { active: "active", ran: false };
const INVOCATION: [u8; 16] = [0x1a; 16];

const UNKNOWN_PROPERTY: &str = "org.freedesktop.DBus.Error.UnknownProperty";
const UNKNOWN_METHOD: &str = "org.freedesktop.DBus.Error.UnknownMethod";
const INVALID_ARGS: &str = "org.freedesktop.DBus.Error.InvalidArgs";
const READ_ONLY: &str = "org.freedesktop.DBus.Error.PropertyReadOnly";

impl Old {
    async fn serve(self, connection: Connection, mut stream: MessageStream) {
        while let Some(Ok(message)) = stream.next().await {
            if message.message_type() != Type::MethodCall {
                continue;
            }
            let header = message.header();
            let member = header.member().unwrap().as_str().to_owned();
            self.calls.lock().unwrap().push(member.clone());
            if let Err((name, text)) = self.answer(&connection, &member, &message, &header).await {
                connection.reply_error(&header, name, &text).await.unwrap();
            }
        }
    }

    /// Answers a method call named `member` on the connection `to`. Returns the name and the text of the D-Bus error,
    /// in sd-bus's words, if systemd 239 would reject the call; the caller then sends that error.
    async fn answer(
        &self,
        to: &Connection,
        member: &str,
        message: &Message,
        header: &Header<'_>,
    ) -> Result<(), (&'static str, String)> {
        let signature = message.body().signature().to_string_no_parens();
        match self.methods.get(member) {
            None => return Err((UNKNOWN_METHOD, format!("Unknown method '{member}' or interface."))),
            Some(method) if method.signature != signature => {
                return Err((INVALID_ARGS, format!("Invalid arguments '{signature}' to call {member}()")));
            }
            Some(_) => {}
        }
        match member {
            "GetAll" => {
                let names = self.settable.keys().chain(&self.readable);
                let mut all: HashMap<&str, Variant<'_>> = names.map(|name| (*name, "".into())).collect();
                // No MemoryPeak, which came with 254; a counter that does not count has the largest value.
                all.extend([("LoadState", "loaded".into()), ("ActiveState", self.unit.active.into())]);
                all.extend([("MainPID", 0u32.into()), ("CPUUsageNSec", u64::MAX.into())]);
                all.extend(self.unit.ran.then(|| ("InvocationID", INVOCATION.to_vec().into())));
                to.reply(header, &all).await.unwrap();
            }
            "Stop" | "Kill" | "ResetFailed" => {
                let path = header.path().unwrap().as_str();
                assert_eq!(path, "/org/freedesktop/systemd1/unit/_31a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a");
                match member {
                    "Stop" => to.reply(header, &job()).await.unwrap(),
                    _ => to.reply(header, &()).await.unwrap(),
                }
            }
            "Get" => return Err((UNKNOWN_PROPERTY, "Unknown interface or property.".to_owned())),
            "StartTransientUnit" => {
                self.start(message)?;
                to.reply(header, &job()).await.unwrap();
            }
            "StopUnit" => to.reply(header, &job()).await.unwrap(),
            "GetNameOwner" => to.reply(header, &":1.0").await.unwrap(),
            "GetUnitProcesses" => to.reply(header, &vec![("/x", 7u32, "sleep 1")]).await.unwrap(),
            "ListUnitsByPatterns" => to.reply(header, &Vec::<Listed<'_>>::new()).await.unwrap(),
            _ => to.reply(header, &()).await.unwrap(),
        }
        Ok(())
    }

    fn start(&self, message: &Message) -> Result<(), (&'static str, String)> {
        type Auxiliary<'a> = Vec<(&'a str, Vec<(&'a str, Variant<'a>)>)>;
        let body = message.body();
        let (name, mode, set, auxiliary): (&str, &str, Vec<(&str, Variant<'_>)>, Auxiliary<'_>) =
            body.deserialize().map_err(|error| (INVALID_ARGS, error.to_string()))?;
        assert!(name.len() < 256 && mode == "fail" && auxiliary.is_empty());
        for (name, value) in set {
            let Some(property) = self.settable.get(name) else {
                return Err((READ_ONLY, format!("Cannot set property {name}, or unknown property.")));
            };
            let signature = value.value_signature().to_string();
            if signature != property.signature {
                return Err((INVALID_ARGS, format!("{name} is {}, not {signature}", property.signature)));
            }
            if let (Ok(word), false) = (<&str>::try_from(&value), property.words.is_empty())
                && !property.words.contains(&word)
            {
                return Err((INVALID_ARGS, format!("Invalid {name} setting: {word}")));
            }
        }
        Ok(())
    }
}

fn job() -> OwnedObjectPath {
    OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/1").unwrap()
}

/// Connects a [`Bus`] to a fake systemd 239. `updated` adds the properties of later updates of RHEL 8. The properties
/// `readable` can be read but not set, and `unit` is the state of every unit. Returns the bus, and the names of the
/// calls that the fake receives.
async fn bus(updated: bool, readable: &[&'static str], unit: Units) -> (Bus, Calls) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let guid = Guid::generate();
    let server = connection::Builder::unix_stream(theirs).server(guid).p2p().build();
    let (client, server) = tokio::join!(connection::Builder::unix_stream(ours).p2p().build(), server);
    let (client, server) = (client.unwrap(), server.unwrap());
    let calls = Calls::default();
    let old = Old {
        methods: taken(true, updated),
        settable: taken(false, updated),
        readable: readable.to_vec(),
        unit,
        calls: calls.clone(),
    };
    let stream = MessageStream::from(&server);
    tokio::spawn(old.serve(server, stream));
    let (runner, run_dir) = (PathBuf::from("/usr/libexec/perilog/perilog-runner"), PathBuf::from("/run/perilog"));
    let around = Surroundings { runner, run_dir, cgroups: Cgroups::find().unwrap() };
    let bus = Bus::new(client, Arc::new(Interest::default()), Arc::new(Wakeups::default()), around);
    (bus, calls)
}

/// Returns intents that cover the combinations of the settings that change a task's unit; oom-score-adjust varies only
/// together with the limits.
fn intents() -> Vec<Intent> {
    // The compiler reports a new field here.
    let Plan {
        run: _,
        user: _,
        cwd: _,
        path: _,
        umask: _,
        env: _,
        timeout_ms: _,
        script_timeout_ms: _,
        on_timeout: _,
        on_error: _,
        empty: _,
        lingering: _,
        retries: _,
        scripts: _,
        nofile: _,
        memory_max: _,
        tasks_max: _,
        cpu_weight: _,
        oom_score_adjust: _,
    } = testing::plan();
    let mut intents = Vec::new();
    for on_timeout in [OnTimeout::Drain, OnTimeout::Kill] {
        for lingering in [Lingering::Hold, Lingering::Kill, Lingering::Keep] {
            for limits in 0..8u64 {
                let mut intent = testing::intent();
                let limit = |bit: u64, value: u64| (limits & bit != 0).then_some(value);
                intent.plan.on_timeout = on_timeout;
                intent.plan.lingering = lingering;
                intent.plan.memory_max = limit(1, 1 << 40);
                intent.plan.tasks_max = limit(2, 1);
                intent.plan.cpu_weight = limit(4, 10_000);
                intent.plan.oom_score_adjust = if limits == 0 { 1000 } else { -1000 };
                intents.push(intent);
            }
        }
    }
    intents
}

async fn start(bus: &Bus, intent: &Intent) -> StartReply {
    let start = &intent.start;
    bus.start(&ids::stem(&start.action, &start.job, start.task), intent, 0).await
}

#[tokio::test]
async fn every_unit_of_ours_is_taken() {
    for updated in [false, true] {
        let (bus, calls) = bus(updated, &[], NEW).await;
        bus.prepare().await.unwrap();
        for intent in intents() {
            assert_eq!(start(&bus, &intent).await, StartReply::Queued, "{:?}", intent.plan);
        }
        let calls = calls.lock().unwrap();
        let starts = calls.iter().filter(|call| *call == "StartTransientUnit").count();
        assert_eq!(starts, intents().len(), "each at the first try: what is missing is known before");
    }
}

#[tokio::test]
async fn what_can_be_read_and_not_set_is_left_out_once_and_for_all() {
    let (bus, calls) = bus(false, &["LogRateLimitIntervalUSec"], NEW).await;
    bus.prepare().await.unwrap();
    let intent = testing::intent();
    assert_eq!(start(&bus, &intent).await, StartReply::Queued);
    assert_eq!(start(&bus, &intent).await, StartReply::Queued);
    let calls = calls.lock().unwrap();
    assert_eq!(calls.iter().filter(|call| *call == "StartTransientUnit").count(), 3);
}

#[tokio::test]
async fn every_call_works_on_239_and_newer_properties_are_dropped() {
    let (active, failed) = (Units { active: "active", ran: true }, Units { active: "failed", ran: true });
    let mut called = BTreeSet::new();
    for unit in [NEW, active, failed] {
        let (bus, calls) = bus(false, &[], unit).await;
        bus.prepare().await.unwrap();
        assert!(bus.snapshot().await.unwrap().is_empty());
        let intent = testing::intent();
        let stem = ids::stem(&intent.start.action, &intent.start.job, intent.start.task);
        assert_eq!(start(&bus, &intent).await, StartReply::Queued);
        bus.watch(&stem).await;
        let (facts, _, processes) = bus.inspect(&stem).await.unwrap();
        let facts = facts.unwrap();
        assert_eq!((facts.loaded, facts.memory_peak, facts.cpu_ns), (true, None, None));
        assert_eq!((facts.invocation.is_some(), processes.len()), (unit.ran, 1));
        bus.signal_runner(&stem, 15).await.unwrap();
        bus.kill_all(&stem).await.unwrap();
        bus.forget(&stem);
        bus.unload(&stem).await.unwrap();
        // The agent never addresses a unit that ran by name: another unit may have that name by now.
        let by_name = |calls: &Calls| calls.lock().unwrap().iter().filter(|call| call.ends_with("Unit")).count();
        assert_eq!(by_name(&calls), if unit.ran { 1 } else { 4 }, "{:?}", calls.lock().unwrap());
        // Without an inspection, the agent can address a unit only by name.
        bus.unload(&stem).await.unwrap();
        assert_eq!(bus.soft_reboots().await.unwrap(), None, "they are counted from 254 on");
        called.extend(calls.lock().unwrap().iter().cloned());
    }
    // The agent made every call on the list, and no other call (an unwrap would have failed); `watch` and `release`
    // only log errors.
    assert_eq!(called, taken(true, false).keys().map(|name| (*name).to_owned()).collect());
}

/// Checks that properties-239.txt has none of some properties of later systemds. If the file had one, the fake systemd
/// would accept it, and the other tests would prove nothing.
#[test]
fn what_came_later_is_not_on_the_list() {
    let (first, updated) = (taken(false, false), taken(false, true));
    assert!(first.len() > 50 && updated.len() > first.len(), "{first:?}");
    for later in ["ExecStartEx", "OOMPolicy", "TimeoutAbortUSec", "ManagedOOMPreference", "MemoryMin", "ExitType"] {
        assert!(!updated.contains_key(later), "{later}");
    }
}
