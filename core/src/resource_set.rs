//! R: the resources of a job or of a Flux instance in the form of RFC 20 (version 1), and the fragments of R that
//! perilog releases.
//!
//! ```text
//! {"version":1,"execution":{"R_lite":[{"rank":"19-22","children":{"core":"0-47","gpu":"0-3"}}],
//!  "nodelist":["node[186-189]"],"starttime":0.0,"expiration":0.0,"properties":{"pdebug":"19-22"}},"scheduling":{...}}
//! ```
//! A rank is the smallest unit of a release: a fragment has all of a rank, or nothing. For the same ranks,
//! [`ResourceSet::fragment`] and [`ResourceSet::without`] are disjoint, and their [`ResourceSet::union`] has every
//! rank, host, child and property of the whole. As in Flux, a fragment has neither times nor `nslots`, which describe
//! the whole. Each fragment with ranks includes `scheduling`, which only the scheduler that wrote it understands.
//!
//! The parser is strict: it refuses input that Flux would guess at, wrap or drop, and names the place. The parser skips
//! keys that RFC 20 does not know.

mod form;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Number, Value};

use crate::idset::Positions;
use crate::{HostList, IdSet};

/// Maps each kind of resource (`core`, `gpu`) to its ids on a rank.
type Children = BTreeMap<String, IdSet>;

/// Maximum number of kinds of resource on one rank. Several entries of R_lite may add kinds to the same ranks. Without
/// this bound, a text of 1 MiB (half of it ranks, half of it kinds for all ranks) makes a hundred million sets.
const MAX_KINDS: usize = 64;

/// Maximum number of id ranges on one rank, summed over all kinds of resource. For scale: every second core of 2,048
/// makes 1,024 ranges. Without this bound, a text can give each rank a different core, and then add the same scattered
/// cores to all ranks. Each rank then has its own copy of the scattered cores.
const MAX_RANGES: usize = 1_024;

/// Maximum work for entries of R_lite that name ranks again which earlier entries have: the number of ranges that are
/// walked and copied. Flux names a rank once. Without this bound, a text of 64 KiB takes half a minute.
const MAX_WORK: usize = 1 << 20;

/// The resources of a job or of a Flux instance: for each rank its host, and the ids of its resources by kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResourceSet {
    ranks: IdSet,
    /// The host of each rank, in rank order.
    hosts: HostList,
    /// Groups of ranks with the same children. The groups are disjoint and add up to `ranks`.
    groups: BTreeMap<Children, IdSet>,
    /// The ranks of each property: never empty, and all of them in `ranks`.
    properties: BTreeMap<String, IdSet>,
    /// The slots of R (`nslots`). Only a whole R has `slots`, `start` and `expiration`; in a fragment all three are
    /// `None`.
    slots: Option<u64>,
    start: Option<Number>,
    expiration: Option<Number>,
    scheduling: Option<Value>,
    positions: Lookup,
}

/// The position of each rank in `ranks`, computed on first use. With this index, cutting one rank out of many does not
/// walk all ranks.
#[derive(Debug, Clone, Default)]
struct Lookup(OnceLock<Positions>);

/// All lookups count as equal, because each is derived from `ranks`.
impl PartialEq for Lookup {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The error for a text that is no R, or for two resource sets that have no union. It names the place and the reason:
/// `execution.R_lite[0].rank: malformed idset ...`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("R (RFC 20): {place}: {why}")]
pub struct InvalidR {
    pub place: String,
    pub why: String,
}

impl InvalidR {
    fn new(place: &str, why: impl fmt::Display) -> Self {
        Self { place: plain(place), why: plain(&why.to_string()) }
    }
}

/// Replaces control characters: an error quotes keys of the text, and is one line of a log.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

impl ResourceSet {
    /// Parses the JSON text of an R.
    ///
    /// # Errors
    ///
    /// [`InvalidR`]: no JSON, or a text behind it; a version other than 1; a key that is missing or has another form
    /// than in RFC 20; ranks and hosts that do not match one for one; a property of a rank that R does not have; more
    /// hosts than one [`HostList`] holds; more than 64 kinds or 1,024 id ranges of resources on a rank; too many
    /// entries of R_lite that name ranks of other entries.
    pub fn from_json(text: &str) -> Result<Self, InvalidR> {
        let mut json = serde_json::Deserializer::from_str(text);
        let r = form::read(&mut json)?;
        json.end().map_err(|error| InvalidR::new("the text", error))?;
        Ok(r)
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(&form::written(self)).expect("texts, numbers and a value that was JSON are JSON")
    }

    pub const fn ranks(&self) -> &IdSet {
        &self.ranks
    }

    /// Returns the hosts, one per rank, in rank order.
    pub const fn hosts(&self) -> &HostList {
        &self.hosts
    }

    /// Returns the resource ids on a rank by kind, such as `core` with `0-3`; `None`: R does not have the rank.
    pub fn children(&self, rank: u32) -> Option<&BTreeMap<String, IdSet>> {
        self.groups.iter().find(|(_, ranks)| ranks.contains(rank)).map(|(children, _)| children)
    }

    /// Returns the ranks of each property.
    pub const fn properties(&self) -> &BTreeMap<String, IdSet> {
        &self.properties
    }

    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Returns the fragment of these ranks; ignores ranks that R does not have.
    #[must_use]
    pub fn fragment(&self, ranks: &IdSet) -> Self {
        let ranks = self.ranks.intersection(ranks);
        let within = |of: &IdSet| Some(of.intersection(&ranks)).filter(|of| !of.is_empty());
        let groups = self.groups.iter().filter_map(|(children, of)| Some((children.clone(), within(of)?))).collect();
        let properties = self.properties.iter().filter_map(|(name, of)| Some((name.clone(), within(of)?))).collect();
        let scheduling = if ranks.is_empty() { None } else { self.scheduling.clone() };
        let positions = self.positions.0.get_or_init(|| Positions::of(&self.ranks));
        let hosts = self.hosts.select(&positions.select(&ranks));
        Self { ranks, hosts, groups, properties, scheduling, ..Self::default() }
    }

    /// Returns the fragment of all ranks of R except these.
    #[must_use]
    pub fn without(&self, ranks: &IdSet) -> Self {
        self.fragment(&self.ranks.difference(ranks))
    }

    /// Returns the union of two resource sets. A rank in both sets gets the children of both. The union has times and
    /// slots only if both sets have the same.
    ///
    /// # Errors
    /// [`InvalidR`]: a rank is on two hosts; the union has more hosts than a [`HostList`] holds, or too many kinds or
    /// id ranges of resources on a rank; too many ranks of `other` are in `self` too; or the two keys `scheduling`
    /// differ.
    pub fn union(&self, other: &Self) -> Result<Self, InvalidR> {
        let mut by_rank: BTreeMap<u32, &str> = self.ranks.iter().zip(self.hosts.iter()).collect();
        for (rank, host) in other.ranks.iter().zip(other.hosts.iter()) {
            if let Some(before) = by_rank.insert(rank, host).filter(|before| *before != host) {
                let why = format!("rank {rank} is on {before} and on {host}");
                return Err(InvalidR::new("execution.nodelist", why));
            }
        }
        let hosts =
            HostList::from_names(by_rank.values()).map_err(|error| InvalidR::new("execution.nodelist", error))?;
        let scheduling = match (&self.scheduling, &other.scheduling) {
            (Some(one), Some(two)) if one != two => {
                return Err(InvalidR::new("scheduling", "the two sets have different values of this key"));
            }
            (one, two) => one.clone().or_else(|| two.clone()),
        };
        let mut both = Self { ranks: self.ranks.clone(), hosts, groups: self.groups.clone(), ..Self::default() };
        let mut work = 0;
        for (children, ranks) in &other.groups {
            both.add(ranks, children, &mut work)?;
        }
        both.properties.clone_from(&self.properties);
        for (name, ranks) in &other.properties {
            both.properties.entry(name.clone()).or_default().extend_with(ranks);
        }
        both.scheduling = scheduling;
        both.slots = self.slots.filter(|slots| other.slots == Some(*slots));
        both.start = self.start.clone().filter(|start| other.start.as_ref() == Some(start));
        both.expiration = self.expiration.clone().filter(|end| other.expiration.as_ref() == Some(end));
        Ok(both)
    }

    /// Adds `children` to the resources of `ranks`. A rank that already has children keeps them beside the new ones.
    ///
    /// `work`: the work of all calls for this set so far, bounded by [`MAX_WORK`].
    ///
    /// # Errors
    /// [`InvalidR`]: a rank would have more than [`MAX_KINDS`] kinds, or more than [`MAX_RANGES`] ranges; or too many
    /// ranks are named again. The set is then half changed, and the caller drops it.
    fn add(&mut self, ranks: &IdSet, children: &Children, work: &mut usize) -> Result<(), InvalidR> {
        check_kinds(ranks, children)?;
        let known = ranks.intersection(&self.ranks);
        if !known.is_empty() {
            let mut theirs: Vec<(Children, IdSet)> = Vec::new();
            for (had, group) in &self.groups {
                let of = group.intersection(&known);
                *work += group.pieces() + known.pieces();
                if !of.is_empty() {
                    *work += ranges(had) + ranges(children);
                    theirs.push((had.clone(), of));
                }
                if *work > MAX_WORK {
                    return Err(InvalidR::new("execution.R_lite", TOO_OFTEN));
                }
            }
            for (had, of) in theirs {
                if let Some(group) = self.groups.get_mut(&had) {
                    group.subtract(&of);
                }
                let mut both = had;
                for (kind, ids) in children {
                    both.entry(kind.clone()).or_default().extend_with(ids);
                }
                check_kinds(&of, &both)?;
                self.groups.entry(both).or_default().extend_with(&of);
            }
            self.groups.retain(|_, of| !of.is_empty());
        }
        let new = ranks.difference(&self.ranks);
        if !new.is_empty() {
            self.groups.entry(children.clone()).or_default().extend_with(&new);
            self.ranks.extend_with(&new);
            self.positions = Lookup::default();
        }
        Ok(())
    }
}

const TOO_OFTEN: &str = "too many entries name ranks that other entries name already: give each rank one entry";

/// Returns the number of id ranges of these resources, summed over their kinds.
fn ranges(children: &Children) -> usize {
    children.values().map(IdSet::pieces).sum()
}

fn check_kinds(ranks: &IdSet, children: &Children) -> Result<(), InvalidR> {
    let ranges = ranges(children);
    let (count, what, most) = match children.len() {
        kinds if kinds > MAX_KINDS => (kinds, "kinds of resource", MAX_KINDS),
        _ if ranges > MAX_RANGES => (ranges, "ranges of ids", MAX_RANGES),
        _ => return Ok(()),
    };
    let rank = ranks.first().unwrap_or_default();
    Err(InvalidR::new("execution.R_lite", format!("rank {rank} has {count} {what}, and the limit is {most}")))
}

/// Serializes as the JSON object of RFC 20.
impl Serialize for ResourceSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        form::written(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ResourceSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        form::read(deserializer).map_err(de::Error::custom)
    }
}
