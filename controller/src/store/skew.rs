//! Finds scripts that differ between nodes: compares the newest task of an action on each node. The runner of the task
//! has reported the names and digests of the scripts.

use std::collections::{BTreeMap, HashMap};

use perilog_core::HostList;
use serde::Serialize;

use super::StoreError;
use super::timings::{Since, StepReader, scripts};
use super::walk::{at, parse, walk};

/// A script that differs between the nodes that ran its action.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skewed {
    pub action: String,
    pub script: String,
    /// The versions of the script, the most common first.
    pub versions: Vec<Version>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Version {
    /// Digest of the script's contents on these nodes; `None`: the script is missing there.
    pub digest: Option<String>,
    pub nodes: u64,
    pub hosts: HostList,
    /// Begin of the newest task with this version, in milliseconds since 1970, by the node's clock.
    pub last_ms: u64,
}

/// The scripts that differ between nodes, as `perilog skew` shows them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Skew {
    pub rows: Vec<Skewed>,
    /// Number of nodes that were compared.
    pub nodes: u64,
    /// Number of scripts that were compared, over all actions.
    pub scripts: u64,
    pub truncated: bool,
}

impl StepReader {
    /// Returns the scripts that differ between the nodes that ran the selected actions: their digests differ, or some
    /// nodes lack them. Compares the newest task of each action on each node.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read.
    pub fn skew(&self, of: &Since) -> Result<Skew, StoreError> {
        let db = self.db();
        let names = scripts(&db)?;
        let mut newest: Vec<HashMap<String, Newest>> = Vec::new();
        let mut steps = Vec::new();
        let walked = walk(&db, of, |task| {
            let Some(host) = task.host() else { return };
            let hosts = at(&mut newest, task.action);
            // The newest action comes first.
            if hosts.contains_key(host) {
                return;
            }
            parse(task.steps(), &mut steps);
            let of_host = Newest {
                whole: matches!(task.outcome(), "ok" | "tolerable"),
                began_ms: task.began_ms(),
                scripts: steps.iter().map(|step| step.script).collect(),
            };
            hosts.insert(host.to_owned(), of_host);
        })?;
        let newest = (0..).zip(newest).map(|(action, hosts)| (walked.names.get(action).to_owned(), hosts)).collect();
        Ok(compare(&newest, &names, walked.truncated))
    }
}

/// The newest task of an action on a node.
struct Newest {
    /// Whether all scripts of the task ran. Only then does the absence of a script show that the node does not have it.
    whole: bool,
    began_ms: u64,
    scripts: Vec<i64>,
}

fn compare(
    newest: &BTreeMap<String, HashMap<String, Newest>>,
    names: &HashMap<i64, (String, String)>,
    truncated: bool,
) -> Skew {
    let mut skew = Skew { truncated, ..Skew::default() };
    let mut nodes: Vec<&String> = newest.values().flat_map(HashMap::keys).collect();
    nodes.sort_unstable();
    nodes.dedup();
    skew.nodes = nodes.len() as u64;
    for (action, hosts) in newest {
        // script -> digest -> (hosts, last time)
        let mut found: BTreeMap<&str, BTreeMap<Option<&str>, (Vec<&str>, u64)>> = BTreeMap::new();
        for (host, task) in hosts {
            for (name, digest) in task.scripts.iter().filter_map(|id| names.get(id)) {
                let (who, last) = found.entry(name).or_default().entry(Some(digest)).or_default();
                // Several tries count as one script.
                if who.last() != Some(&host.as_str()) {
                    who.push(host);
                }
                *last = task.began_ms.max(*last);
            }
        }
        for (name, versions) in &mut found {
            for (host, task) in hosts.iter().filter(|(_, task)| task.whole) {
                let has = |id: &i64| names.get(id).is_some_and(|(known, _)| known == name);
                if !task.scripts.iter().any(has) {
                    let (who, last) = versions.entry(None).or_default();
                    who.push(host);
                    *last = task.began_ms.max(*last);
                }
            }
        }
        skew.scripts += found.len() as u64;
        for (script, versions) in found.into_iter().filter(|(_, versions)| versions.len() > 1) {
            let mut versions: Vec<Version> = versions
                .into_iter()
                .map(|(digest, (mut who, last_ms))| {
                    who.sort_unstable();
                    let hosts = HostList::from_names(&who).unwrap_or_default();
                    Version { digest: digest.map(str::to_owned), nodes: who.len() as u64, hosts, last_ms }
                })
                .collect();
            versions.sort_by_key(|version| std::cmp::Reverse(version.nodes));
            skew.rows.push(Skewed { action: action.clone(), script: script.to_owned(), versions });
        }
    }
    skew
}
