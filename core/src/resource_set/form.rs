//! Reads and writes the JSON of an R (RFC 20).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

use super::{Children, InvalidR, ResourceSet};
use crate::{HostList, IdSet};

/// Characters that RFC 20 forbids in a property.
const NOT_IN_PROPERTIES: &str = "!&'\"^`|()\\";

#[derive(Deserialize)]
#[serde(expecting = "the object of RFC 20")]
struct Read {
    version: Number,
    execution: Option<Execution>,
    scheduling: Option<Value>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with R_lite and nodelist")]
struct Execution {
    #[serde(rename = "R_lite")]
    r_lite: Vec<Lite>,
    #[serde(deserialize_with = "nodelist")]
    nodelist: HostList,
    nslots: Option<u64>,
    starttime: Option<Number>,
    expiration: Option<Number>,
    #[serde(default)]
    properties: BTreeMap<String, IdSet>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with rank and children")]
struct Lite {
    rank: IdSet,
    children: Children,
}

/// Reads all entries of the nodelist into one list, in their order. The bounds of a list apply to all entries together,
/// because a few bytes with brackets can name a million hosts.
fn nodelist<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HostList, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = HostList;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a sequence of hostlists")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<HostList, A::Error> {
            let mut hosts = HostList::new();
            while entries.next_element_seed(Entry(&mut hosts))?.is_some() {}
            Ok(hosts)
        }
    }

    deserializer.deserialize_seq(Entries)
}

/// Deserializes one entry of the nodelist: appends the hosts in the entry to the list.
struct Entry<'a>(&'a mut HostList);

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let text = String::deserialize(deserializer)?;
        self.0.append_text(&text).map_err(D::Error::custom)
    }
}

pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ResourceSet, InvalidR> {
    let read: Read = serde_path_to_error::deserialize(deserializer)
        .map_err(|error| InvalidR::new(&place(&error.path().to_string()), error.inner()))?;
    if read.version.as_u64() != Some(1) {
        return Err(InvalidR::new("version", format!("{}: only version 1 is supported", read.version)));
    }
    let execution = read.execution.ok_or_else(|| InvalidR::new("execution", "missing"))?;
    let mut r = ResourceSet { scheduling: read.scheduling, ..ResourceSet::default() };
    let mut work = 0;
    for Lite { rank, children } in &execution.r_lite {
        r.add(rank, children, &mut work)?;
    }
    r.hosts = execution.nodelist;
    if r.ranks.len() != r.hosts.len() as u64 {
        let why = format!("{} hosts for {} ranks", r.hosts.len(), r.ranks.len());
        return Err(InvalidR::new("execution.nodelist", why));
    }
    if execution.nslots == Some(0) {
        return Err(InvalidR::new("execution.nslots", "0: expected a number above zero"));
    }
    r.slots = execution.nslots;
    for (name, ranks) in execution.properties {
        r.properties.insert(property(&name, &ranks, &r.ranks)?, ranks);
    }
    r.properties.retain(|_, ranks| !ranks.is_empty());
    (r.start, r.expiration) = times(execution.starttime, execution.expiration)?;
    Ok(r)
}

fn property(name: &str, ranks: &IdSet, all: &IdSet) -> Result<String, InvalidR> {
    let refuse = |why: String| Err(InvalidR::new("execution.properties", why));
    if name.is_empty() {
        return refuse("a property without a name".to_owned());
    }
    if let Some(bad) = name.chars().find(|letter| NOT_IN_PROPERTIES.contains(*letter)) {
        return refuse(format!("{name:?} has a {bad:?}: a name must not have any of {NOT_IN_PROPERTIES}"));
    }
    match ranks.difference(all).first() {
        Some(rank) => refuse(format!("{name:?} names rank {rank}, which is not one of the ranks {all}")),
        None => Ok(name.to_owned()),
    }
}

/// Checks the begin and the end of R's validity; a time of zero means no time (RFC 20) and becomes `None`.
fn times(start: Option<Number>, end: Option<Number>) -> Result<(Option<Number>, Option<Number>), InvalidR> {
    let seconds = |number: &Number| number.as_f64().unwrap_or(-1.0);
    for (place, time) in [("execution.starttime", &start), ("execution.expiration", &end)] {
        if let Some(bad) = time.as_ref().filter(|time| seconds(time) < 0.0) {
            return Err(InvalidR::new(place, format!("{bad}: expected seconds since 1970, or 0")));
        }
    }
    let set = |time: Option<Number>| time.filter(|time| seconds(time) > 0.0);
    let (start, end) = (set(start), set(end));
    match (&start, &end) {
        (Some(start), Some(end)) if seconds(start) >= seconds(end) => {
            Err(InvalidR::new("execution.expiration", format!("{end} is not after the starttime {start}")))
        }
        _ => Ok((start, end)),
    }
}

/// Names the place of an error for people: serde's path to the field, or "the text" for `.` (the whole object) and `?`
/// (an early end).
fn place(path: &str) -> String {
    if path == "." || path == "?" { "the text".to_owned() } else { path.to_owned() }
}

#[derive(Serialize)]
pub(super) struct Written<'a> {
    version: u8,
    execution: WrittenExecution<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduling: Option<&'a Value>,
}

#[derive(Serialize)]
struct WrittenExecution<'a> {
    #[serde(rename = "R_lite")]
    r_lite: Vec<WrittenLite<'a>>,
    starttime: Number,
    expiration: Number,
    nodelist: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nslots: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    properties: &'a BTreeMap<String, IdSet>,
}

#[derive(Serialize)]
struct WrittenLite<'a> {
    rank: &'a IdSet,
    children: &'a Children,
}

/// Builds the JSON form that Flux writes: groups in the order of their first rank, the hosts in one entry, times always
/// present.
pub(super) fn written(r: &ResourceSet) -> Written<'_> {
    let mut r_lite: Vec<_> = r.groups.iter().map(|(children, rank)| WrittenLite { rank, children }).collect();
    r_lite.sort_by_key(|lite| lite.rank.first());
    let time = |time: &Option<Number>| time.clone().or_else(|| Number::from_f64(0.0)).unwrap_or_else(|| 0.into());
    let nodelist = if r.hosts.is_empty() { Vec::new() } else { vec![r.hosts.to_string()] };
    let (starttime, expiration) = (time(&r.start), time(&r.expiration));
    let properties = &r.properties;
    let execution = WrittenExecution { r_lite, starttime, expiration, nodelist, nslots: r.slots, properties };
    Written { version: 1, execution, scheduling: r.scheduling.as_ref() }
}
