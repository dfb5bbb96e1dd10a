//! Asks Flux's monitor of systemd units, the module `sdmon`, on each of a job's ranks for units of the job.

use std::collections::BTreeMap;

use perilog_core::duration::age;
use perilog_core::{Fluid, IdSet, JobId};
use serde_json::{Value, json};

use super::{Session, fold, send};
use crate::broker::{Broker, RpcError};
use crate::plan::tasks::{Inspection, Tasks, wait};
use crate::plan::{Action, View};

const TOPIC: &str = "sdmon.stats-get";
const ENOSYS: u32 = 38;
/// Maximum number of ranks that the edge asks at the same time.
const AT_ONCE: usize = 64;

/// The answers to a look, and then the answer to `resource.status`, unless that failed. A broker that answers has
/// joined, so the later answer shows whether Flux has counted it as online since.
#[derive(Debug)]
pub(super) struct Found {
    inspection: Inspection,
    status: Option<Value>,
}

/// Asks these ranks for units of the job. Asks rank 0 first: without `sdmon` there the site has none.
pub(super) async fn inspect(broker: &Broker, job: &JobId, ranks: &IdSet) -> Found {
    let none = broker.rpc(TOPIC, &json!({}), 0).await.is_err_and(|error| error.errnum() == Some(ENOSYS));
    let inspection = if none { Inspection::NoMonitor } else { Inspection::Ranks(ask(broker, job, ranks).await) };
    Found { inspection, status: broker.rpc("resource.status", &json!({}), 0).await.ok() }
}

async fn ask(broker: &Broker, job: &JobId, ranks: &IdSet) -> BTreeMap<u32, Tasks> {
    let mut found = BTreeMap::new();
    let ranks: Vec<u32> = ranks.iter().collect();
    for some in ranks.chunks(AT_ONCE) {
        let mut asked = tokio::task::JoinSet::new();
        for rank in some.iter().copied() {
            let broker = broker.clone();
            asked.spawn(async move { (rank, broker.rpc(TOPIC, &json!({}), rank).await) });
        }
        while let Some(Ok((rank, answer))) = asked.join_next().await {
            found.insert(rank, tasks(job, answer));
        }
    }
    found
}

/// Reads one rank's answer: the units that run there. The unit of a job is for example `imp-shell-0-f2mKAgF7.service`.
fn tasks(job: &JobId, answer: Result<Value, RpcError>) -> Tasks {
    match answer {
        Ok(stats) => {
            let units = stats["units"].as_array().into_iter().flatten().filter_map(|unit| unit["name"].as_str());
            let end = format!("-{job}.service");
            let mut of_job = units.filter(|unit| unit.contains("shell-") && unit.ends_with(&end));
            of_job.next().map_or(Tasks::Gone, |unit| Tasks::Live(unit.to_owned()))
        }
        // No units are watched there; whether Flux counts the rank as online decides.
        Err(error) if error.errnum() == Some(ENOSYS) => Tasks::Gone,
        Err(error) => Tasks::Unknown(error.to_string()),
    }
}

impl Session {
    /// Records the answers of a look in the view, and has the edge look again later if tasks may be left.
    pub(super) fn record_units(&mut self, action: &Action, found: Found) {
        if let Some(status) = found.status {
            fold::status(&mut self.view, &status);
        }
        let Action::Inspect { id, attempt, .. } = action else { return };
        let Some(job) = self.view.jobs.get_mut(id).filter(|job| job.alloc == Some(*attempt)) else {
            return self.key_is_done(action);
        };
        match found.inspection {
            Inspection::Ranks(ranks) => job.found(ranks),
            other => job.inspection = other,
        }
        match self.view.jobs.get(id).and_then(|job| wait(&self.view, job)) {
            Some(wait) => self.again(action, &wait.to_string()),
            None => self.key_is_done(action),
        }
    }

    /// Has the edge look again at once: Flux counts other nodes as online than before.
    pub(super) fn query_again(&mut self) {
        self.delayed.retain(|key, _| !key.starts_with(send::INSPECT));
    }
}

/// Returns the part of the status line about jobs whose epilogs wait for tasks: the longest wait, and the number of the
/// others. Empty: there is none.
pub(super) fn waits(view: &View, now_ms: u64) -> String {
    let waits = view.jobs.values().filter_map(|job| Some((Fluid(job.id), wait(view, job)?)));
    let mut waits: Vec<_> = waits.collect();
    waits.sort_by_key(|(_, wait)| wait.since_ms);
    let Some((job, wait)) = waits.first() else { return String::new() };
    let others = match waits.len() - 1 {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    let age = age(now_ms.saturating_sub(wait.since_ms));
    format!("; {job}: {wait}, for {age}{others}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_the_job_is_found_by_its_name() {
        let job = JobId::new("f2mKAgF7").unwrap();
        let units = |names: &[&str]| {
            let units: Vec<Value> = names.iter().map(|name| json!({"name": name, "state": "active.running"})).collect();
            Ok(json!({ "units": units }))
        };
        let refused = |errnum| Err(RpcError::Refused { topic: TOPIC.to_owned(), errnum, text: String::new() });
        let live = |unit: &str| Tasks::Live(unit.to_owned());
        for (answer, expect) in [
            (units(&[]), Tasks::Gone),
            (units(&["imp-shell-1-f2mKAgF7.service"]), live("imp-shell-1-f2mKAgF7.service")),
            (units(&["flux-epilog-perilog.service", "shell-0-f2mKAgF7.service"]), live("shell-0-f2mKAgF7.service")),
            (units(&["imp-shell-1-f2mKAgF8.service", "flux-epilog-f2mKAgF7.service"]), Tasks::Gone),
            (refused(ENOSYS), Tasks::Gone),
            (refused(113), Tasks::Unknown("Flux refuses sdmon.stats-get: errno 113".to_owned())),
        ] {
            assert_eq!(tasks(&job, answer), expect);
        }
    }
}
