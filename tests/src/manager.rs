//! A stand-in for the resource manager: a script behind the release hook and the drain hook that keeps a ledger of all it was told.
//!
//! ```text
//! 812.40 {"event":"release","sequence":1,"epoch":1,"job":"j","attempt":"0","ranks":"4","hosts":"n0","final":false,"R":{...}, ...}
//! 813.02 {"event":"drain","hosts":"n1","reason":"epilog: 10-umount is past its limit of 5s (job j attempt 0)","by":null}
//! ```
//! Hooks are told at least once, in order per job. So the same release may be here twice, with the same (job, attempt, sequence), and counts
//! once. [`Heard::faults`] holds it against R: what was given back, and how often.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use perilog_core::{HostList, IdSet, ResourceSet};
use serde::Deserialize;

use crate::cluster::Cluster;

/// The program that both hooks run, on the controller's node.
pub const HOOK: &str = "/usr/local/libexec/resource-manager";
/// The hook's ledger; the controller's unit may write there.
pub const TOLD: &str = "/var/lib/perilog/told";
/// While this file exists the hook has done what it was told, and does not come to its end.
pub const HOLD: &str = "/var/lib/perilog/hold";
/// Lines of controller.toml that have the hook told of releases and drains.
pub const CONFIGURATION: &str = "[release]\ncommand = [\"/usr/local/libexec/resource-manager\"]\n[drain]\ncommand = [\"/usr/local/libexec/resource-manager\"]\n";

/// Fails every other time, before it has done anything.
pub const BUSY: &str = "if [ -e /var/lib/perilog/busy ]; then rm /var/lib/perilog/busy; echo busy >&2; exit 1; fi; : >/var/lib/perilog/busy";

/// One telling of a release.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Release {
    /// Seconds on the machine's clock since its boot, as in the scripts' ledgers.
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
    pub r: Option<ResourceSet>,
}

/// One telling of a drain, or that it is lifted.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Drain {
    /// As [`Release::at`].
    #[serde(skip)]
    pub at: f64,
    /// `drain` or `undrain`.
    pub event: String,
    pub hosts: HostList,
    #[serde(default)]
    pub reason: Option<String>,
}

/// All tellings, in their order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heard {
    pub releases: Vec<Release>,
    pub drains: Vec<Drain>,
}

impl Cluster {
    /// Puts the stand-in in place; [`CONFIGURATION`] makes it the hook. `first` is sh(1) that runs before it does anything.
    pub fn manage(&self, first: &str) -> Result<()> {
        let script = format!(
            "#!/bin/sh\n{first}\nread -r telling\nread -r since_boot _ </proc/uptime\n\
             echo \"$since_boot $telling\" >>{TOLD}\nwhile [ -e {HOLD} ]; do sleep 0.02; done\n"
        );
        self.controller()?.write_script(HOOK, script)
    }

    /// What the hook was told so far.
    pub fn heard(&self) -> Result<Heard> {
        Heard::read(&self.controller()?.try_read_file(TOLD)?.unwrap_or_default())
    }
}

impl Heard {
    /// Reads the ledger. A line that cannot be understood is an error: the truth has no gaps.
    pub fn read(text: &str) -> Result<Self> {
        let mut heard = Self::default();
        for line in text.lines() {
            heard.line(line).with_context(|| format!("{TOLD}: {line:?}"))?;
        }
        Ok(heard)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let (at, telling) = line.split_once(' ').context("no time")?;
        let at = at.parse().context("its time")?;
        let value: serde_json::Value = serde_json::from_str(telling)?;
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

    /// The releases of a job, each once, in the order of their first telling.
    pub fn once(&self, job: &str) -> Vec<&Release> {
        let mut once: Vec<&Release> = Vec::new();
        for release in self.releases.iter().filter(|release| release.job == job) {
            if !once.iter().any(|told| (&told.attempt, told.sequence) == (&release.attempt, release.sequence)) {
                once.push(release);
            }
        }
        once
    }

    /// How often the job's releases were told again.
    pub fn again(&self, job: &str) -> usize {
        self.releases.iter().filter(|release| release.job == job).count() - self.once(job).len()
    }

    /// Is this host drained, by the last that was told of it?
    pub fn drain_of(&self, host: &str) -> Option<&Drain> {
        let last = self.drains.iter().rfind(|drain| drain.hosts.iter().any(|name| name == host));
        last.filter(|drain| drain.event == "drain")
    }

    /// Why this host is drained.
    pub fn drained(&self, host: &str) -> Option<&str> {
        self.drain_of(host)?.reason.as_deref()
    }

    /// What cannot be true of a job's releases, one attempt of it, that has all of `r`. Whether everything was given back is for
    /// [`complete`](Self::complete).
    pub fn faults(&self, job: &str, r: &ResourceSet) -> Vec<String> {
        let mut faults = Vec::new();
        let mut said: BTreeMap<u64, &Release> = BTreeMap::new();
        let mut newest = 0;
        for release in self.releases.iter().filter(|release| release.job == job) {
            let number = release.sequence;
            if number < newest {
                faults.push(format!("sequence {number} was told after {newest}"));
            }
            newest = newest.max(number);
            let alike = |before: &&Release| {
                before.ranks == release.ranks && before.r == release.r && before.last == release.last
            };
            if said.insert(number, release).is_some_and(|before| !alike(&before)) {
                faults.push(format!("sequence {number} was told as two releases"));
            }
        }
        let mut given = IdSet::new();
        for release in self.once(job) {
            let Release { sequence, ranks, hosts, last, r: fragment, .. } = release;
            let twice = given.intersection(ranks);
            if !twice.is_empty() {
                faults.push(format!("rank {twice} was given back twice, the second time with sequence {sequence}"));
            }
            given.extend_with(ranks);
            let expected = r.fragment(ranks);
            if fragment.as_ref() != Some(&expected) || hosts != expected.hosts() {
                faults.push(format!("sequence {sequence}: the fragment is not R's of ranks {ranks}: {fragment:?}"));
            }
            match (*last, given == *r.ranks()) {
                (true, false) => {
                    let missing = r.ranks().difference(&given);
                    faults.push(format!("sequence {sequence} says final, and ranks {missing} are missing"));
                }
                (false, true) => faults.push(format!("sequence {sequence} is the last, and does not say so")),
                _ => {}
            }
        }
        faults
    }

    /// The fragments' union, and whether that is all of R.
    pub fn complete(&self, job: &str, r: &ResourceSet) -> Result<bool> {
        let mut all = ResourceSet::default();
        for release in self.once(job) {
            all = all.union(release.r.as_ref().context("a release without R")?)?;
        }
        Ok(all == *r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: &str =
        r#"{"version":1,"execution":{"R_lite":[{"rank":"4-5","children":{"core":"0-3"}}],"nodelist":["n[0-1]"]}}"#;

    fn told(sequence: u64, ranks: &str, fragment: &str, last: bool) -> String {
        let r = ResourceSet::from_json(R).unwrap();
        let ranks: IdSet = ranks.parse().unwrap();
        let body = serde_json::json!({"event": "release", "sequence": sequence, "epoch": 1, "job": "j", "attempt": "0", "ranks": ranks,
            "hosts": r.fragment(&ranks).hosts(), "resources": [], "final": last, "R": r.fragment(&fragment.parse().unwrap())});
        format!("1.0 {body}\n")
    }

    #[test]
    fn only_a_partition_in_order_holds() {
        let first = || told(1, "4", "4", false);
        let second = || told(2, "5", "5", true);
        for (lines, expected, complete) in [
            (vec![first(), second()], "", true),
            (vec![told(7, "4-5", "4-5", true)], "", true),
            (vec![first(), first(), second(), second()], "", true),
            (vec![first()], "", false),
            (vec![], "", false),
            (vec![first(), second(), first()], "sequence 1 was told after 2", true),
            (vec![second(), first()], "says final, and ranks 4 are missing", true),
            (vec![first(), told(1, "5", "5", true)], "two releases", false),
            (vec![first(), told(2, "4-5", "4-5", true)], "rank 4 was given back twice", true),
            (vec![told(1, "4", "5", false), second()], "not R's of ranks 4", false),
            (vec![first(), told(2, "5", "5", false)], "is the last, and does not say so", true),
        ] {
            let heard = Heard::read(&lines.concat()).unwrap();
            let r = ResourceSet::from_json(R).unwrap();
            let faults = heard.faults("j", &r).join("\n");
            assert_eq!(faults.is_empty(), expected.is_empty(), "{lines:?}: {faults}");
            assert!(faults.contains(expected), "{lines:?}: {faults}");
            assert_eq!(heard.complete("j", &r).unwrap(), complete, "{lines:?}");
            assert!(heard.faults("another", &r).is_empty());
        }
    }

    #[test]
    fn a_drain_is_what_was_told_last() {
        let heard = |text: &str| Heard::read(text);
        let (drain, lift) = (
            "1 {\"event\":\"drain\",\"hosts\":\"n[1-2]\",\"reason\":\"why\",\"by\":null}\n",
            "2 {\"event\":\"undrain\",\"hosts\":\"n1\"}\n",
        );
        let both = heard(&[drain, lift].concat()).unwrap();
        assert_eq!((both.drained("n1"), both.drained("n2"), both.drained("n0")), (None, Some("why"), None));
        for bad in ["1", "x {}", "1 {\"event\":\"gone\",\"hosts\":\"n1\"}", "1 {\"event\":\"release\"}"] {
            assert!(heard(bad).is_err(), "{bad}");
        }
    }
}
