//! Stand-in for the resource manager: one script that is both the controller's release hook and its drain hook. The
//! script records every notice in a ledger:
//!
//! ```text
//! 812.40 {"event":"release","sequence":1,"epoch":1,"job":"j","attempt":"0","ranks":"4","hosts":"n0",
//!         "final":false,"R":{...}, ...}
//! 813.02 {"event":"drain","hosts":"n1",
//!         "reason":"epilog: 10-umount is past its limit of 5s (job j attempt 0)","by":null}
//! ```
//! Each notice is one line of the ledger; this example breaks long lines. The controller notifies hooks at least once,
//! in order per job. So the ledger may contain a release twice, with the same (job, attempt, sequence); such a release
//! counts once. [`Received::faults`] compares the releases with the resources handed out ([`Handed`]).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use perilog_core::{HostList, IdSet};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::Cluster;

/// Path of the resource manager's stand-in on the controller's node. The release hook and the drain hook both run this
/// program.
pub const HOOK: &str = "/usr/local/libexec/resource-manager";
/// Ledger in which the resource manager's stand-in records each notice, at a path where the controller's unit may
/// write.
pub const NOTICES: &str = "/var/lib/perilog/notices";
/// File on the controller's node. While it exists, each call of the resource manager's stand-in records its notice and
/// then waits.
pub const HOLD: &str = "/var/lib/perilog/hold";
/// Lines of controller.toml that make [`HOOK`] the release hook and the drain hook.
pub const CONFIGURATION: &str = "[release]\ncommand = [\"/usr/local/libexec/resource-manager\"]\n\
                                 [drain]\ncommand = [\"/usr/local/libexec/resource-manager\"]\n";

/// Shell code for [`Cluster::manage`] that makes every other call of the resource manager's stand-in fail, before the
/// stand-in records the notice.
pub const BUSY: &str = "if [ -e /var/lib/perilog/busy ]; then rm /var/lib/perilog/busy; echo busy >&2; exit 1; fi; \
                        : >/var/lib/perilog/busy";

/// Resources of a job: R, and the same resources rank by rank. The ranks are written out one by one, because the code
/// that cuts R into fragments is under test.
#[derive(Debug, Clone, Copy)]
pub struct Handed {
    pub r: &'static str,
    pub shares: &'static [Share],
}

/// Resources of one rank, which the rank's fragment must have.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    pub rank: u32,
    pub host: &'static str,
    /// Kinds of resource with their ids, such as (`core`, `0-3`).
    pub children: &'static [(&'static str, &'static str)],
    pub properties: &'static [&'static str],
}

/// Resources of a job on four nodes. No two ranks have the same resources and properties. The ranks do not count from
/// 0, as in a job on a part of a larger machine.
pub const FOUR: Handed = Handed {
    r: concat!(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"4-5","children":{"core":"0-47","gpu":"0-3"}},{"rank":"6","#,
        r#""children":{"core":"0-31"}},{"rank":"7","children":{"core":"0-47","gpu":"0,2-3"}}],"starttime":0.0,"#,
        r#""expiration":0.0,"nodelist":["n[0-3]"],"properties":{"pdebug":"4,6","himem":"6-7"}},"#,
        r#""scheduling":{"writer":"fluxion"}}"#,
    ),
    shares: &[
        Share { rank: 4, host: "n0", children: &[("core", "0-47"), ("gpu", "0-3")], properties: &["pdebug"] },
        Share { rank: 5, host: "n1", children: &[("core", "0-47"), ("gpu", "0-3")], properties: &[] },
        Share { rank: 6, host: "n2", children: &[("core", "0-31")], properties: &["himem", "pdebug"] },
        Share { rank: 7, host: "n3", children: &[("core", "0-47"), ("gpu", "0,2-3")], properties: &["himem"] },
    ],
};

/// Resources of one rank, as parsed from R.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnRank {
    pub host: String,
    pub children: BTreeMap<String, String>,
    /// Names of the properties that R gives to the rank, sorted.
    pub properties: Vec<String>,
}

/// Resources by rank.
pub type Ranks = BTreeMap<u32, OnRank>;

impl Handed {
    fn ranks(&self) -> Ranks {
        let texts = |(kind, ids): &(&str, &str)| ((*kind).to_owned(), (*ids).to_owned());
        let on_rank = |share: &Share| OnRank {
            host: share.host.to_owned(),
            children: share.children.iter().map(texts).collect(),
            properties: share.properties.iter().map(|name| (*name).to_owned()).collect(),
        };
        self.shares.iter().map(|share| (share.rank, on_rank(share))).collect()
    }

    fn scheduling(&self) -> Result<Option<Value>> {
        Ok(serde_json::from_str::<Value>(self.r)?.get("scheduling").cloned())
    }
}

/// Parses R (RFC 20, version 1) into the resources of each rank.
pub fn ranks_of(r: &Value) -> Result<Ranks> {
    ensure!(r["version"] == 1, "no R of version 1: {r}");
    let execution = &r["execution"];
    let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("no text: {value}"));
    let mut ranks = Ranks::new();
    for group in execution["R_lite"].as_array().context("no R_lite")? {
        let children = group["children"].as_object().context("no children")?;
        let children: BTreeMap<String, String> =
            children.iter().map(|(kind, ids)| Ok((kind.clone(), text(ids)?))).collect::<Result<_>>()?;
        for rank in text(&group["rank"])?.parse::<IdSet>()?.iter() {
            let on_rank = OnRank { host: String::new(), children: children.clone(), properties: Vec::new() };
            ensure!(ranks.insert(rank, on_rank).is_none(), "rank {rank} is there twice");
        }
    }
    let mut hosts = Vec::new();
    for list in execution["nodelist"].as_array().context("no nodelist")? {
        hosts.extend(text(list)?.parse::<HostList>()?.iter().map(str::to_owned));
    }
    ensure!(hosts.len() == ranks.len(), "{} hosts of {} ranks", hosts.len(), ranks.len());
    ranks.values_mut().zip(hosts).for_each(|(on_rank, host)| on_rank.host = host);
    // In sorted order of the names, because a map sorts the keys.
    for (name, of) in execution.get("properties").and_then(Value::as_object).into_iter().flatten() {
        for rank in text(of)?.parse::<IdSet>()?.iter() {
            ranks.get_mut(&rank).with_context(|| format!("{name} of a rank {rank}"))?.properties.push(name.clone());
        }
    }
    Ok(ranks)
}

/// Notice of released ranks, as the release hook got it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Release {
    /// Seconds since the machine's boot, on the machine's clock, as in the scripts' ledgers.
    #[serde(skip)]
    pub at: f64,
    pub sequence: u64,
    pub epoch: u64,
    pub job: String,
    pub attempt: String,
    pub ranks: IdSet,
    pub hosts: HostList,
    #[serde(rename = "final")]
    pub last: bool,
    #[serde(rename = "R")]
    pub r: Option<Value>,
}

impl Release {
    /// Returns the resources that this release frees, rank by rank.
    pub fn fragment(&self) -> Result<Ranks> {
        ranks_of(self.r.as_ref().context("a release without R")?)
    }

    /// Describes this release if it differs from the handed-out resources of its ranks; `None` if it does not differ.
    /// `all` has the resources of `handed` by rank.
    fn differs(&self, handed: &Handed, all: &Ranks) -> Option<String> {
        let expected: Ranks = all
            .iter()
            .filter(|(rank, _)| self.ranks.contains(**rank))
            .map(|(rank, on_rank)| (*rank, on_rank.clone()))
            .collect();
        let hosts: Vec<&str> = expected.values().map(|on_rank| on_rank.host.as_str()).collect();
        let whole = expected.len() as u64 == self.ranks.len() && self.hosts.iter().eq(hosts);
        let scheduling = self.r.as_ref().and_then(|r| r.get("scheduling").cloned());
        match self.fragment() {
            Ok(reported) if whole && reported == expected && handed.scheduling().is_ok_and(|all| all == scheduling) => {
                None
            }
            Ok(reported) => Some(format!("{reported:?} on {}, scheduling {scheduling:?}", self.hosts)),
            Err(error) => Some(format!("{error:#}")),
        }
    }
}

/// Notice of a drain or of a lifted drain, as the drain hook got it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Drain {
    /// Time of the notice, as [`Release::at`].
    #[serde(skip)]
    pub at: f64,
    /// Kind of the notice: `drain` or `undrain`.
    pub event: String,
    pub hosts: HostList,
    #[serde(default)]
    pub reason: Option<String>,
}

/// All notices that the hooks got, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Received {
    pub releases: Vec<Release>,
    pub drains: Vec<Drain>,
}

impl Cluster {
    /// Installs the resource manager's stand-in, a script that [`CONFIGURATION`] makes both the release hook and the
    /// drain hook, on each of the controller's hosts. Each call first runs `first`, which is sh(1) code. A recorded
    /// notice outlives a power cut.
    pub fn manage(&self, first: &str) -> Result<()> {
        let script = format!(
            "#!/bin/sh\n{first}\nread -r notice\nread -r since_boot _ </proc/uptime\n\
             echo \"$since_boot $notice\" >>{NOTICES}\nsync {NOTICES}\nwhile [ -e {HOLD} ]; do sleep 0.02; done\n"
        );
        self.hosts().iter().try_for_each(|host| host.write_script(HOOK, &script))
    }

    /// Returns all notices that the hooks have got so far.
    pub fn received(&self) -> Result<Received> {
        Received::read(&self.controller()?.try_read_file(NOTICES)?.unwrap_or_default())
    }

    /// Returns the release notices of these jobs that the hook has got so far; reads no more of the others than their
    /// names.
    pub(crate) fn received_of(&self, jobs: &BTreeSet<&str>) -> Result<Received> {
        let text = self.controller()?.try_read_file(NOTICES)?.unwrap_or_default();
        let job = |line: &str| Some(line.split_once("\"job\":\"")?.1.split_once('"')?.0.to_owned());
        let mut received = Received::default();
        for line in text.lines().filter(|line| job(line).is_some_and(|job| jobs.contains(job.as_str()))) {
            received.line(line).with_context(|| format!("{NOTICES}: {line:?}"))?;
        }
        Ok(received)
    }
}

impl Received {
    /// Parses the stand-in's ledger. A malformed line is an error: the ledger must have no gaps.
    pub fn read(text: &str) -> Result<Self> {
        let mut received = Self::default();
        for line in text.lines() {
            received.line(line).with_context(|| format!("{NOTICES}: {line:?}"))?;
        }
        Ok(received)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let (at, notice_id) = line.split_once(' ').context("no time")?;
        let at = at.parse().context("its time")?;
        let value: serde_json::Value = serde_json::from_str(notice_id)?;
        if value["event"] == "release" {
            let release: Release = serde_json::from_value(value)?;
            self.releases.push(Release { at, ..release });
        } else {
            let drain: Drain = serde_json::from_value(value)?;
            ensure!(["drain", "undrain"].contains(&drain.event.as_str()), "neither release nor drain nor undrain");
            self.drains.push(Drain { at, ..drain });
        }
        Ok(())
    }

    /// Returns the releases of a job in the order of their first notices, without repeated notices.
    pub fn once(&self, job: &str) -> Vec<&Release> {
        let mut once: Vec<&Release> = Vec::new();
        for release in self.releases.iter().filter(|release| release.job == job) {
            let key = |of: &Release| (of.epoch, of.attempt.clone(), of.sequence);
            if !once.iter().any(|reported| key(reported) == key(release)) {
                once.push(release);
            }
        }
        once
    }

    /// Returns the number of release notices of the job that repeat an earlier notice.
    pub fn again(&self, job: &str) -> usize {
        self.releases.iter().filter(|release| release.job == job).count() - self.once(job).len()
    }

    /// Returns the drain notice of this host; `None` if there is none, or the host's last notice lifted the drain.
    pub fn drain_of(&self, host: &str) -> Option<&Drain> {
        let last = self.drains.iter().rfind(|drain| drain.hosts.iter().any(|name| name == host));
        last.filter(|drain| drain.event == "drain")
    }

    /// Returns the reason of the host's drain; `None` if the host is not drained.
    pub fn drained(&self, host: &str) -> Option<&str> {
        self.drain_of(host)?.reason.as_deref()
    }

    /// Returns the contradictions among a job's releases, and between them and the job's resources, one text each.
    /// [`complete`](Self::complete) checks whether the controller released everything.
    pub fn faults(&self, job: &str, handed: &Handed) -> Vec<String> {
        let mut faults = Vec::new();
        let all = handed.ranks();
        let whole: IdSet = all.keys().copied().collect();
        let mut seen: BTreeMap<u64, &Release> = BTreeMap::new();
        let mut newest = 0;
        for release in self.releases.iter().filter(|release| release.job == job) {
            let number = release.sequence;
            if number < newest {
                faults.push(format!("sequence {number} was sent after {newest}"));
            }
            newest = newest.max(number);
            let alike = |before: &&Release| {
                before.ranks == release.ranks && before.r == release.r && before.last == release.last
            };
            if seen.insert(number, release).is_some_and(|before| !alike(&before)) {
                faults.push(format!("sequence {number} was sent as two releases"));
            }
        }
        let mut given = IdSet::new();
        for release in self.once(job) {
            let Release { sequence, ranks, last, .. } = release;
            let twice = given.intersection(ranks);
            if !twice.is_empty() {
                faults.push(format!("rank {twice} was released twice, the second time with sequence {sequence}"));
            }
            given.extend_with(ranks);
            if let Some(found) = release.differs(handed, &all) {
                faults.push(format!("sequence {sequence}: the fragment is not R's of ranks {ranks}: {found}"));
            }
            match (*last, given == whole) {
                (true, false) => {
                    let missing = whole.difference(&given);
                    faults.push(format!("sequence {sequence} says final, and ranks {missing} are missing"));
                }
                (false, true) => faults.push(format!("sequence {sequence} is the last, and does not say so")),
                _ => {}
            }
        }
        faults
    }

    /// Returns `true` if the released fragments of the job together equal all its resources.
    pub fn complete(&self, job: &str, handed: &Handed) -> Result<bool> {
        let mut all = Ranks::new();
        for release in self.once(job) {
            all.extend(release.fragment()?);
        }
        Ok(all == handed.ranks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Handed = Handed {
        r: concat!(
            r#"{"version":1,"execution":{"R_lite":[{"rank":"4","children":{"core":"0-3"}},{"rank":"5","#,
            r#""children":{"core":"0-1","gpu":"0"}}],"nodelist":["n[0-1]"],"properties":{"himem":"5"}},"#,
            r#""scheduling":{"writer":"test"}}"#,
        ),
        shares: &[
            Share { rank: 4, host: "n0", children: &[("core", "0-3")], properties: &[] },
            Share { rank: 5, host: "n1", children: &[("core", "0-1"), ("gpu", "0")], properties: &["himem"] },
        ],
    };
    const OF_4: &str = concat!(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"4","children":{"core":"0-3"}}],"nodelist":["n0"]},"#,
        r#""scheduling":{"writer":"test"}}"#,
    );
    const OF_5: &str = concat!(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"5","children":{"core":"0-1","gpu":"0"}}],"#,
        r#""nodelist":["n1"],"properties":{"himem":"5"}},"scheduling":{"writer":"test"}}"#,
    );

    fn reported(sequence: u64, ranks: &str, hosts: &str, fragment: &str, last: bool) -> String {
        let r: Value = serde_json::from_str(fragment).unwrap();
        let body = serde_json::json!({"event": "release", "sequence": sequence, "epoch": 1, "job": "j", "attempt": "0",
                                      "ranks": ranks,
            "hosts": hosts, "resources": [], "final": last, "R": r});
        format!("1.0 {body}\n")
    }

    #[test]
    fn what_is_written_out_is_what_is_handed_out() {
        for handed in [FOUR, PAIR] {
            assert_eq!(ranks_of(&serde_json::from_str(handed.r).unwrap()).unwrap(), handed.ranks());
        }
    }

    #[test]
    fn only_a_partition_in_order_holds() {
        let first = || reported(1, "4", "n0", OF_4, false);
        let second = || reported(2, "5", "n1", OF_5, true);
        // A last release of rank 5 with another fragment.
        let other = |from: &str, to: &str| reported(2, "5", "n1", &OF_5.replacen(from, to, 1), true);
        let not_5 = "not R's of ranks 5";
        for (lines, expected, complete) in [
            (vec![first(), second()], "", true),
            (vec![reported(7, "4-5", "n[0-1]", PAIR.r, true)], "", true),
            (vec![first(), first(), second(), second()], "", true),
            (vec![first()], "", false),
            (vec![], "", false),
            (vec![first(), second(), first()], "sequence 1 was sent after 2", true),
            (vec![second(), first()], "says final, and ranks 4 are missing", true),
            (vec![first(), reported(1, "5", "n1", OF_5, true)], "two releases", false),
            (vec![first(), reported(2, "4-5", "n[0-1]", PAIR.r, true)], "rank 4 was released twice", true),
            (vec![reported(1, "4", "n0", OF_5, true), second()], "not R's of ranks 4", false),
            (vec![first(), reported(2, "5", "n0", OF_5, true)], not_5, true),
            (vec![first(), other("0-1", "0-3")], not_5, false),
            (vec![first(), other(",\"gpu\":\"0\"", "")], not_5, false),
            (vec![first(), other("n1", "n0")], not_5, false),
            (vec![first(), other(",\"properties\":{\"himem\":\"5\"}", "")], not_5, false),
            (vec![first(), other("himem", "pdebug")], not_5, false),
            (vec![first(), other(",\"scheduling\":{\"writer\":\"test\"}", "")], not_5, true),
            (vec![first(), reported(2, "5", "n1", OF_5, false)], "is the last, and does not say so", true),
        ] {
            let received = Received::read(&lines.concat()).unwrap();
            let faults = received.faults("j", &PAIR).join("\n");
            assert_eq!(faults.is_empty(), expected.is_empty(), "{lines:?}: {faults}");
            assert!(faults.contains(expected), "{lines:?}: {faults}");
            assert_eq!(received.complete("j", &PAIR).unwrap(), complete, "{lines:?}");
            assert!(received.faults("another", &PAIR).is_empty());
        }
    }

    #[test]
    fn a_drain_is_what_was_received_last() {
        let received = |text: &str| Received::read(text);
        let (drain, lift) = (
            "1 {\"event\":\"drain\",\"hosts\":\"n[1-2]\",\"reason\":\"why\",\"by\":null}\n",
            "2 {\"event\":\"undrain\",\"hosts\":\"n1\"}\n",
        );
        let both = received(&[drain, lift].concat()).unwrap();
        assert_eq!((both.drained("n1"), both.drained("n2"), both.drained("n0")), (None, Some("why"), None));
        for bad in ["1", "x {}", "1 {\"event\":\"gone\",\"hosts\":\"n1\"}", "1 {\"event\":\"release\"}"] {
            assert!(received(bad).is_err(), "{bad}");
        }
    }
}
