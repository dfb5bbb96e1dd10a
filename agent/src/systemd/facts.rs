//! Converts GetAll's reply to [`UnitFacts`], without judging the facts.

use std::collections::HashMap;
use std::fmt;

use perilog_core::agent::io::UnitIds;
use perilog_core::ids::InvocationId;
use perilog_core::task::UnitFacts;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use zbus::{Message, Signature, Type, Variant};

use super::error::BusError;
use super::fields;

/// Names of the properties that [`Properties::read`] reads, of some 300 in a reply.
const READ: [&str; 13] = [
    "ActiveState",
    "CPUUsageNSec",
    "ControlGroup",
    "ExecMainCode",
    "ExecMainStatus",
    "InvocationID",
    "Job",
    "LoadState",
    "LogExtraFields",
    "MainPID",
    "MemoryPeak",
    "Result",
    "SubState",
];

/// The properties [`READ`] of a reply, by name. The values of all others are skipped: a variant is an allocation or
/// more.
struct Read<'m>(HashMap<&'m str, Variant<'m>>);

impl Type for Read<'_> {
    const SIGNATURE: &'static Signature = <HashMap<&str, Variant<'_>>>::SIGNATURE;
}

impl<'de: 'm, 'm> Deserialize<'de> for Read<'m> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Wanted;
        impl<'de> Visitor<'de> for Wanted {
            type Value = HashMap<&'de str, Variant<'de>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the properties of a unit")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut read = HashMap::with_capacity(READ.len());
                while let Some(name) = map.next_key::<&str>()? {
                    if READ.contains(&name) {
                        read.insert(name, map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_map(Wanted).map(Read)
    }
}

/// The properties of a unit: systemd's reply to GetAll, for all interfaces at once.
pub(super) struct Properties(Message);

impl Properties {
    pub(super) fn new(reply: Message) -> Self {
        Self(reply)
    }

    /// Returns the names of all properties in the reply. [`super::Probed`] finds out by them which optional properties
    /// are missing.
    pub(super) fn names(&self) -> Result<Vec<String>, BusError> {
        let body = self.0.body();
        let all: HashMap<&str, Variant<'_>> = body.deserialize()?;
        Ok(all.into_keys().map(str::to_owned).collect())
    }

    /// Returns three values: the facts (`None` if systemd knows no such unit and answers with a stub), the ids in the
    /// unit's LogExtraFields, and `true` if the unit has no cgroup, and so no process.
    pub(super) fn read(&self, stem: &str) -> Result<(Option<UnitFacts>, Option<UnitIds>, bool), BusError> {
        let body = self.0.body();
        let Read(all) = body.deserialize()?;
        let text = |name: &str| get::<&str>(&all, name).unwrap_or_default().to_owned();
        if text("LoadState") == "not-found" {
            return Ok((None, None, true));
        }
        let counted = |name: &str| get::<u64>(&all, name).filter(|n| *n != u64::MAX);
        let facts = UnitFacts {
            loaded: text("LoadState") == "loaded",
            job_pending: all.get("Job").is_some_and(has_job),
            active: text("ActiveState"),
            sub: text("SubState"),
            result: text("Result"),
            main_pid: get(&all, "MainPID").unwrap_or(0),
            main_code: get(&all, "ExecMainCode").unwrap_or(0),
            main_status: get(&all, "ExecMainStatus").unwrap_or(0),
            invocation: all.get("InvocationID").and_then(invocation),
            cgroup: Some(text("ControlGroup")).filter(|path| !path.is_empty()),
            cpu_ns: counted("CPUUsageNSec"),
            memory_peak: counted("MemoryPeak"),
        };
        let lines =
            all.get("LogExtraFields").and_then(|v| v.try_clone().ok()).and_then(|v| Vec::<Vec<u8>>::try_from(v).ok());
        let ids = lines.and_then(|lines| fields::read_back(stem, &lines));
        // The property is present but empty: systemd drops a cgroup only after the kernel removed it, and the kernel
        // removes no cgroup with processes.
        let no_cgroup = get::<&str>(&all, "ControlGroup") == Some("");
        Ok((Some(facts), ids, no_cgroup))
    }
}

/// Returns the property `name` as type `T`; `None` if the property is missing or of another type.
fn get<'a, T>(all: &'a HashMap<&str, Variant<'a>>, name: &str) -> Option<T>
where
    T: TryFrom<&'a Variant<'a>>,
{
    T::try_from(all.get(name)?).ok()
}

/// Returns `true` if the unit has a job. `Job` is (id, path); id 0 is no job.
fn has_job(value: &Variant<'_>) -> bool {
    match value {
        Variant::Structure(job) => !matches!(job.fields().first(), Some(Variant::U32(0))),
        // Never seen. Such a value counts as pending: the agent inspects a pending unit again and never judges it.
        _ => true,
    }
}

fn invocation(value: &Variant<'_>) -> Option<InvocationId> {
    let bytes = Vec::<u8>::try_from(value.try_clone().ok()?).ok()?;
    InvocationId::new(&bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use perilog_core::ids;

    fn properties(pairs: &[(&'static str, Variant<'static>)]) -> Properties {
        let all: HashMap<&str, &Variant<'_>> = pairs.iter().map(|(name, value)| (*name, value)).collect();
        Properties(Message::signal("/x", "x.y", "Z").build(&all).unwrap())
    }

    fn job(id: u32) -> Variant<'static> {
        let path = zbus::ObjectPath::try_from("/").unwrap();
        Variant::new((id, path))
    }

    #[test]
    fn a_failed_unit_of_ours() {
        let start = testing::intent().start;
        let stem = ids::stem(&start.action, &start.job, start.task);
        let skipped: Vec<(String, Vec<(u32, u8)>)> = vec![("a".to_owned(), vec![(1, 2)]), ("b".to_owned(), vec![])];
        let pairs = [
            // Values of all kinds that are skipped: the values behind them are read all the same.
            ("ExecStart", skipped.into()),
            ("Nested", Variant::Variant(Box::new("inside".into()))),
            ("CanStart", true.into()),
            ("Environment", vec!["A=1", "B=2"].into()),
            ("Weight", 0.5f64.into()),
            ("LoadState", "loaded".into()),
            ("ActiveState", "failed".into()),
            ("SubState", "failed".into()),
            ("Job", job(0)),
            ("InvocationID", (0u8..16).collect::<Vec<u8>>().into()),
            ("Result", "exit-code".into()),
            ("MainPID", 0u32.into()),
            ("ExecMainCode", 1i32.into()),
            ("ExecMainStatus", 37i32.into()),
            ("ControlGroup", "".into()),
            ("CPUUsageNSec", 5_000u64.into()),
            ("MemoryPeak", u64::MAX.into()),
            ("LogExtraFields", fields::fields(&start).into()),
        ];
        let (facts, ids, no_cgroup) = properties(&pairs).read(&stem).unwrap();
        let facts = facts.unwrap();
        assert!(no_cgroup);
        assert!(facts.loaded && !facts.job_pending && facts.main_ended());
        assert_eq!((facts.result.as_str(), facts.main_code, facts.main_status), ("exit-code", 1, 37));
        assert_eq!(facts.invocation.unwrap().as_str(), "000102030405060708090a0b0c0d0e0f");
        assert_eq!((facts.cgroup, facts.cpu_ns, facts.memory_peak), (None, Some(5000), None));
        assert_eq!(ids.unwrap().task, start.task);
    }

    #[test]
    fn a_stub_is_no_unit_and_a_queued_one_is_not_believed() {
        let stub = [("LoadState", "not-found".into()), ("Result", "success".into()), ("ExecMainStatus", 0i32.into())];
        assert_eq!(properties(&stub).read("x").unwrap(), (None, None, true));
        let queued = [("LoadState", "loaded".into()), ("Job", job(7)), ("InvocationID", Vec::<u8>::new().into())];
        let (facts, _, no_cgroup) = properties(&queued).read("x").unwrap();
        assert!(!no_cgroup, "what is not reported is not known");
        let facts = facts.unwrap();
        assert!(facts.job_pending && facts.invocation.is_none() && !facts.main_ended());
    }
}
