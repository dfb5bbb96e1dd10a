//! Parameters of `Sync` and `Recover`: an edge's list of its jobs, and what an operator asks after a restore.

use perilog_core::controller::io::{
    JobPhase, Listed as One, ListedDrain, Recover as Part, Refusal, Request, Source as Of, SyncPage, Unfit,
};
use perilog_core::{HostList, IdSet, Terms};
use perilog_proto::check_start;
use serde::Deserialize;

use super::jobs::Forgiven;
use super::parameters::{Parameters, parse, text};
use super::{MaxHosts, invalid};

/// Marker in the reason of a drain in the resource manager: an edge made this drain for the controller.
const MARKER: &str = "[perilog:";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    name: String,
    instance: String,
}

impl Source {
    pub(super) fn value(self) -> Result<Of, Refusal> {
        if self.name.is_empty() || self.instance.is_empty() {
            return Err(invalid("a source has a name and an instance"));
        }
        Ok(Of { name: text("source.name", self.name)?, instance: text("source.instance", self.instance)? })
    }
}

/// Parameters of the method `Sync`: a page of an edge's list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    source: Source,
    sync: Option<u64>,
    #[serde(default)]
    continues: bool,
    attempts: Vec<Listed>,
    #[serde(default)]
    drains: Vec<Drain>,
    /// The entries that [`Page::bound`] took out of `attempts`.
    #[serde(skip)]
    unfit: Vec<Unfit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    job: String,
    attempt: String,
    userid: Option<u32>,
    ranks: String,
    hosts: String,
    phase: JobPhase,
    #[serde(flatten)]
    forgiven: Forgiven,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    host: String,
    reason: String,
}

impl Listed {
    /// Checks that a Start of the attempt fits a frame, and the number of its hosts.
    fn fits(&self, most: MaxHosts) -> Result<(), Refusal> {
        most.check([self.hosts.as_str()])?;
        let (ranks, hosts) = (parse::<IdSet>(&self.ranks)?, parse::<HostList>(&self.hosts)?);
        check_start(&ranks, &hosts, &Default::default()).map_err(invalid)
    }

    fn value(self) -> Result<One, Refusal> {
        let (ranks, hosts) = (parse::<IdSet>(&self.ranks)?, parse::<HostList>(&self.hosts)?);
        let terms = self.forgiven.terms()?;
        Ok(One {
            job: parse(&self.job)?,
            attempt: parse(&self.attempt)?,
            userid: self.userid,
            ranks,
            hosts,
            terms: Terms { r: None, ..terms },
            phase: self.phase,
        })
    }
}

impl Parameters for Page {
    const IS_LARGE: bool = true;

    /// Takes the attempts that have too many hosts out of the page. One such attempt must not keep the others out of
    /// the list: the reply lists it as refused.
    fn bound(&mut self, most: MaxHosts) -> Result<(), Refusal> {
        for of in std::mem::take(&mut self.attempts) {
            match of.fits(most) {
                Ok(()) => self.attempts.push(of),
                Err(Refusal::Invalid(why)) => {
                    self.unfit.push(Unfit { job: parse(&of.job)?, attempt: parse(&of.attempt)?, why });
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    fn request(self) -> Result<Request, Refusal> {
        let drain = |drain: Drain| {
            let ours = drain.reason.contains(MARKER);
            Ok(ListedDrain { host: parse(&drain.host)?, reason: text("reason", drain.reason)?, ours })
        };
        Ok(Request::Sync(Box::new(SyncPage {
            source: self.source.value()?,
            sync: self.sync,
            continues: self.continues,
            attempts: self.attempts.into_iter().map(Listed::value).collect::<Result<_, _>>()?,
            unfit: self.unfit,
            drains: self.drains.into_iter().map(drain).collect::<Result<_, Refusal>>()?,
        })))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recover {
    #[serde(default)]
    take_over: bool,
}

impl Parameters for Recover {
    fn request(self) -> Result<Request, Refusal> {
        let part = if self.take_over { Part::TakeOver } else { Part::List };
        Ok(Request::Recover(part))
    }
}
