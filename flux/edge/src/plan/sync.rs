//! `Sync`, the edge's calls before it follows the controller's feed: they list all attempts and drains of Flux, a page
//! in each call. After the last page the controller closes every other attempt of this edge, and cleans up its ranks.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::{Attempt, HostList, IdSet, Tolerance};
use serde_json::{Map, Value, json};

use super::external;
use super::job::{Allocated, Job};
use super::view::View;

/// Returns `true` if the edge has to send `Sync` again. Either Flux has lost a job meanwhile. Or the controller has
/// an attempt that is abandoned and not refused: an operator restored its store while the edge was connected.
pub fn is_due(view: &View) -> bool {
    view.has_lost || view.attempts.iter().any(|(id, attempt)| attempt.abandoned && !view.refused.contains_key(id))
}

/// Maximum number of entries on a page: the controller's turn for a page stays short.
const PAGE: usize = 1_000;
/// Maximum size of the entries on a page in bytes. A larger entry gets a page for itself: the controller takes requests
/// of 1 MiB, and the lists of ranks and hosts of the largest job that it takes have 904 KiB.
const PAGE_BYTES: usize = 256 * 1024;

/// Returns the parameters of each call of `Sync`, in order: `source`, which identifies this Flux instance to the
/// controller, and all attempts and drains of Flux, the drains first. The caller adds the list's number, `sync`, to
/// each page but the first.
pub fn pages(view: &View, source: &Value) -> Vec<Value> {
    let drains = view.flux_drains.iter().map(|(host, drain)| json!({ "host": host, "reason": drain.reason }));
    let newest = newest(view);
    let attempts = view.jobs.values().filter_map(|job| listed(view, job, &job.held()?, &newest));
    let entries = drains.map(|of| ("drains", of)).chain(attempts.map(|of| ("attempts", of)));
    let mut pages = vec![json!({ "source": source, "attempts": [], "drains": [], "continues": false })];
    let (mut count, mut bytes) = (0, 0);
    for (key, entry) in entries {
        let size = entry.to_string().len();
        if let Some(page) = pages.last_mut().filter(|_| count == PAGE || count > 0 && bytes + size > PAGE_BYTES) {
            page["continues"] = true.into();
            pages.push(json!({ "source": source, "attempts": [], "drains": [], "continues": false }));
            (count, bytes) = (0, 0);
        }
        (count, bytes) = (count + 1, bytes + size);
        if let Some(entries) = pages.last_mut().and_then(|page| page[key].as_array_mut()) {
            entries.push(entry);
        }
    }
    pages
}

/// Returns the newest allocation of each host that a freed job has, as the allocation's attempt and the job's id. Flux
/// returns the nodes of a freed job one by one, and the job's R still has them all.
fn newest(view: &View) -> BTreeMap<&str, (Attempt, u64)> {
    let freed = view.jobs.values().filter(|job| job.freed).filter_map(|job| Some(job.held()?.r.hosts()));
    let freed: BTreeSet<&str> = freed.flat_map(|hosts| hosts.iter()).collect();
    let mut newest: BTreeMap<&str, (Attempt, u64)> = BTreeMap::new();
    for (id, of) in view.jobs.values().filter_map(|job| Some((job.id, job.held()?))) {
        for host in of.r.hosts().iter().filter(|host| freed.contains(host)) {
            let there = newest.entry(host).or_insert((of.attempt, id));
            *there = (of.attempt, id).max(*there);
        }
    }
    newest
}

/// Returns the entry of a job in the list; `None`: later allocations have all of its hosts. The entry of a freed job
/// leaves out the hosts that later allocations have.
fn listed(view: &View, job: &Job, of: &Allocated<'_>, newest: &BTreeMap<&str, (Attempt, u64)>) -> Option<Value> {
    let is_its = |host: &str| !job.freed || newest.get(host).is_none_or(|there| *there == (of.attempt, job.id));
    let its = of.r.ranks().iter().zip(of.r.hosts().iter()).filter(|(_, host)| is_its(host));
    let (ranks, hosts): (IdSet, Vec<&str>) = its.unzip();
    if hosts.is_empty() {
        return None;
    }
    let hosts = HostList::from_names(hosts).unwrap_or_default();
    // A job that has ended also counts as `running`: `JobFinish` reports the end, when the job's tasks are gone.
    let is_prepared = job.may_have_tasks || job.epilog.was_held() || job.freed;
    let phase = if job.prolog.is_open() || !is_prepared { "preparing" } else { "running" };
    let mut listed = json!({
        "job": of.job, "attempt": of.attempt, "userid": job.userid, "ranks": ranks, "hosts": hosts, "phase": phase,
    });
    if let Some(listed) = listed.as_object_mut() {
        listed.extend(terms(view, job, of));
    }
    Some(listed)
}

/// Returns the job's tolerance and its named resources, as parameters of `JobAdd` and `Sync`. The tolerance is that
/// of the job's terms within the site's cap. A tolerance of zero is sent too: Flux may give the id of an earlier job to
/// another job, whose own tolerance then counts.
pub fn terms(view: &View, job: &Job, of: &Allocated<'_>) -> Map<String, Value> {
    let forgiven = job.terms.within(&view.cap, of.r.ranks().len());
    let count = |ranks: u64| Tolerance::Ranks(u32::try_from(ranks).unwrap_or(u32::MAX)).to_string();
    let mut parameters = Map::new();
    if let Some(all) = forgiven.all {
        parameters.insert("tolerate".to_owned(), count(all).into());
    }
    if !forgiven.checks.is_empty() {
        let checks: Map<String, Value> =
            forgiven.checks.iter().map(|(check, most)| ((*check).to_owned(), count(*most).into())).collect();
        parameters.insert("tolerate_checks".to_owned(), checks.into());
    }
    let resources = external::resources(view, job);
    if !resources.is_empty() {
        parameters.insert("resources".to_owned(), json!(resources));
    }
    parameters
}
