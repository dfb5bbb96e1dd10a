//! Start on the wire: the part that all ranks of an action have in common, and the part that differs for each rank.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use perilog_core::milestone::MAX_NAMES;
use perilog_core::task::Start as CoreStart;
use perilog_core::{ActionId, BootId, HostList, IdSet, MilestoneName, Rank, TaskId};

use super::ids::Key;
use crate::bounds::{MAX_ENV, check_layout, clip};
use crate::error::{At, Fault, need};
use crate::frame::nested;
use perilog_core::environment::MAX_BYTES as MAX_ENV_BYTES;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Start {
    /// The encoded [`Common`] part.
    #[prost(bytes = "bytes", tag = "1")]
    pub common: Bytes,
    #[prost(uint32, tag = "2")]
    pub rank: u32,
    #[prost(string, tag = "3")]
    pub boot: String,
    /// Number of the controller's newest commit when it sent the message; 0 if an older controller omits the field.
    #[prost(uint64, tag = "4")]
    pub commit: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Common {
    #[prost(bytes = "vec", tag = "1")]
    pub id: super::Uuid,
    #[prost(message, optional, tag = "2")]
    pub key: Option<Key>,
    #[prost(uint64, tag = "3")]
    pub not_after_ms: u64,
    /// The action's ranks as an idset (RFC 22).
    #[prost(string, tag = "4")]
    pub ranks: String,
    /// The hosts of these ranks as a hostlist (RFC 29), in rank order.
    #[prost(string, tag = "5")]
    pub hosts: String,
    #[prost(uint32, optional, tag = "6")]
    pub userid: Option<u32>,
    #[prost(message, repeated, tag = "7")]
    pub env: Vec<Variable>,
    #[prost(uint64, optional, tag = "8")]
    pub timeout_ms: Option<u64>,
    /// Whether the action is an after-action. An older controller omits the field.
    #[prost(bool, tag = "9")]
    pub after: bool,
    /// Milestones that the attempt had when the controller made the Start, at most [`MAX_NAMES`]. An older controller
    /// omits the field.
    #[prost(string, repeated, tag = "10")]
    pub milestones: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Variable {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

impl Common {
    /// Encodes the common part of a Start. If the texts of ranks and hosts are too long ([`check_layout`]), encodes
    /// neither, and replaces the environment by one variable with an invalid name: the node then refuses the Start.
    /// That can happen although the whole job passed [`crate::check_start`], because a part of a job can have longer
    /// texts than the whole.
    pub(crate) fn of(start: &CoreStart) -> Self {
        let (ranks, hosts) = (start.ranks.to_string(), start.hosts.to_string());
        let (ranks, hosts, env) = match check_layout(ranks.len(), hosts.len()) {
            Ok(()) => (ranks, hosts, variables(&start.env)),
            Err(why) => {
                let (ranks, hosts) = Default::default();
                (ranks, hosts, vec![Variable { name: why.to_string(), value: String::new() }])
            }
        };
        Self {
            id: super::Task::of(start.task).action,
            key: Some(Key::of(&start.job, start.attempt, &start.action)),
            not_after_ms: start.not_after_ms,
            ranks,
            hosts,
            userid: start.userid,
            env,
            timeout_ms: start.timeout_ms,
            after: start.after,
            milestones: start.milestones.iter().take(MAX_NAMES).map(ToString::to_string).collect(),
        }
    }
}

impl Start {
    pub(crate) fn value(self) -> Result<CoreStart, Fault> {
        let common: Common = nested(&self.common, "common")?;
        let (job, attempt, action) = need(common.key).and_then(Key::value).at("key").at("common")?;
        Ok(CoreStart {
            task: TaskId { action: action_id(&common.id).at("common")?, rank: Rank(self.rank) },
            job,
            attempt,
            action,
            boot: BootId::new(&self.boot).at("boot")?,
            not_after_ms: common.not_after_ms,
            ranks: common.ranks.parse::<IdSet>().at("ranks").at("common")?,
            hosts: common.hosts.parse::<HostList>().at("hosts").at("common")?,
            userid: common.userid,
            env: common.env.into_iter().map(|v| (v.name, v.value)).collect(),
            timeout_ms: common.timeout_ms,
            after: common.after,
            milestones: milestones(&common.milestones).at("milestones").at("common")?,
            commit: self.commit,
        })
    }
}

fn action_id(bytes: &[u8]) -> Result<ActionId, Fault> {
    super::cluster(bytes).map(|uuid| ActionId(uuid.0)).at("id")
}

fn milestones(names: &[String]) -> Result<BTreeSet<MilestoneName>, Fault> {
    if names.len() > MAX_NAMES {
        return Err(Fault::bad(format!("{} names, at most {MAX_NAMES} are taken", names.len())));
    }
    names.iter().map(|name| MilestoneName::new(name).at("name")).collect()
}

/// Encodes the variables of an environment, whose size the controller has checked ([`crate::check_start`]). Of a larger
/// environment, the function encodes the first [`MAX_ENV`] variables, and cuts their names and values to
/// [`MAX_ENV_BYTES`] + 1 bytes in total.
fn variables(env: &BTreeMap<String, String>) -> Vec<Variable> {
    let mut room = MAX_ENV_BYTES + 1;
    let mut variables = Vec::new();
    for (name, value) in env.iter().take(MAX_ENV) {
        let name = clip(name, room);
        room -= name.len();
        let value = clip(value, room);
        room -= value.len();
        variables.push(Variable { name, value });
        if room == 0 {
            break;
        }
    }
    variables
}
