//! Reads the parameters of `Sync`: a page of an edge's list of its attempts. An attempt that has too many hosts must
//! not keep the others out of the list, so each attempt is read by itself, and the reply lists an attempt with too many
//! hosts as refused.

use perilog_core::controller::io::{Listed, ListedDrain, Refusal, Request, Source, SyncPage, Unfit};
use perilog_core::{Attempt, JobId};
use perilog_host::varlink::{Call, WrongParameter};
use perilog_proto::check_start;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::request::Wrong;
use super::{MaxHosts, invalid};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    source: Source,
    sync: Option<u64>,
    #[serde(default)]
    continues: bool,
    attempts: Vec<Box<RawValue>>,
    #[serde(default)]
    drains: Vec<ListedDrain>,
}

/// The members of a listed attempt that a refusal needs.
#[derive(Deserialize)]
struct Named {
    job: JobId,
    attempt: Attempt,
    hosts: String,
}

pub(super) fn page(call: &Call, most: MaxHosts) -> Result<Request, Wrong> {
    let Page { source, sync, continues, attempts: listed, drains } = call.parameters()?;
    let (mut attempts, mut unfit) = (Vec::new(), Vec::new());
    for (place, text) in listed.iter().enumerate() {
        let place = format_args!("attempts[{place}]");
        let Named { job, attempt, hosts } = WrongParameter::parse_at(text, place)?;
        if let Err(Refusal::Invalid(why)) = most.check([hosts.as_str()]) {
            unfit.push(Unfit { job, attempt, why });
            continue;
        }
        let listed: Listed = WrongParameter::parse_at(text, place)?;
        match check_start(&listed.ranks, &listed.hosts, &Default::default()).map_err(invalid) {
            Err(Refusal::Invalid(why)) => unfit.push(Unfit { job, attempt, why }),
            _ => attempts.push(listed),
        }
    }
    Ok(Request::Sync(Box::new(SyncPage { source, sync, continues, attempts, unfit, drains })))
}
