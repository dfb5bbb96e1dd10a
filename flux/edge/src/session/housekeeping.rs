//! Jobs in Flux's housekeeping. These jobs are inactive, so the journal does not report them, but their nodes wait for
//! epilogs. The edge asks Flux for these jobs once a session, after the journal's backlog. A job that enters
//! housekeeping later stays in the edge's view anyway.

use std::collections::BTreeSet;

use perilog_core::Fluid;
use serde_json::{Value, json};

use super::{Event, Session, fold};
use crate::broker::{Broker, RpcError};
use crate::plan::View;

const ENOENT: u32 = 2;

impl Session {
    pub(super) fn ask_housekeeping(&self) {
        let (broker, sender) = (self.broker.clone(), self.sender.clone());
        let known = self.view.jobs.keys().copied().collect();
        tokio::spawn(async move {
            let event = match jobs(&broker, &known).await {
                Ok(reported) => Event::Housekeeping(reported),
                Err(error) => Event::Lost(error),
            };
            // An ended session needs no event.
            let _ = sender.send(event).await;
        });
    }

    pub(super) fn housekeeping(&mut self, reported: &HousekeepingState) {
        for reply in &reported.jobs {
            inactive(&mut self.view, reply);
        }
        if self.epilogs_in_housekeeping && reported.has_command == Some(false) {
            tracing::error!(
                "[perilog] epilog is \"housekeeping\" in Flux's configuration, but [job-manager.housekeeping] has no \
                 command: Flux gives nodes to other jobs before their epilogs have ended"
            );
        }
    }
}

/// Flux's answers about its housekeeping: the jobs there, and whether a command is configured for it.
#[derive(Debug)]
pub(super) struct HousekeepingState {
    /// The replies of `job-info.lookup`, one for each job.
    jobs: Vec<Value>,
    has_command: Option<bool>,
}

async fn jobs(broker: &Broker, known: &BTreeSet<u64>) -> Result<HousekeepingState, RpcError> {
    let stats = broker.rpc("job-manager.stats-get", &json!({}), 0).await?;
    let mut jobs = Vec::new();
    for id in running(&stats).into_iter().filter(|id| !known.contains(id)) {
        let asked = json!({ "id": id, "keys": ["eventlog", "R", "jobspec"], "flags": 0 });
        match broker.rpc("job-info.lookup", &asked, 0).await {
            // Flux has purged the job.
            Err(error) if error.errnum() == Some(ENOENT) => {}
            reply => jobs.push(reply?),
        }
    }
    let has_command = stats["housekeeping"]["config"]["command"].as_str().map(|command| !command.is_empty());
    Ok(HousekeepingState { jobs, has_command })
}

fn running(stats: &Value) -> Vec<u64> {
    let running = stats["housekeeping"]["running"].as_object().into_iter().flatten();
    running.filter_map(|(id, _)| id.parse::<Fluid>().ok()).map(|id| id.0).collect()
}

/// Adds an inactive job to the view from its eventlog, R and jobspec, if the job's epilog runs as Flux's housekeeping.
fn inactive(view: &mut View, reply: &Value) {
    let Some(id) = reply["id"].as_u64() else { return };
    let lines = reply["eventlog"].as_str().unwrap_or_default().lines();
    let events: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let reported = json!({ "id": id, "events": events, "R": reply["R"], "jobspec": reply["jobspec"] });
    let mut alone = View::new(view.site.clone());
    fold::journal(&mut alone, &reported);
    let Some(mut job) = alone.jobs.remove(&id) else { return };
    // The plugin knows no inactive job. The job's eventlog shows whether rank 0 was restarted during the job.
    job.before = job.started.is_some_and(|at| at < view.starttime);
    if job.is_in_housekeeping() {
        view.jobs.entry(id).or_insert(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Job;
    use crate::plan::view::Site;

    const ID: u64 = 38_235_275_264;

    fn job_info(epilog: bool) -> Value {
        let r =
            json!({"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {}}], "nodelist": ["n[0-1]"]}});
        let ours = json!({"description": "perilog"});
        let mut events = vec![
            json!({"timestamp": 1000.0, "name": "submit", "context": {"userid": 1000}}),
            json!({"timestamp": 1000.5, "name": "alloc"}),
            json!({"timestamp": 1001.0, "name": "prolog-start", "context": ours}),
            json!({"timestamp": 1002.0, "name": "prolog-finish", "context": {"description": "perilog", "status": 0}}),
            json!({"timestamp": 1003.0, "name": "start"}),
            json!({"timestamp": 1004.0, "name": "finish", "context": {"status": 0}}),
            json!({"timestamp": 1005.0, "name": "release", "context": {"ranks": "all", "final": true}}),
        ];
        events.extend(epilog.then(|| json!({"timestamp": 1005.0, "name": "epilog-start", "context": ours})));
        events.extend(["free", "clean"].map(|name| json!({"timestamp": 1006.0, "name": name})));
        let eventlog: String = events.iter().map(|event| format!("{event}\n")).collect();
        let jobspec = json!({"attributes": {"system": {"perilog": {"tolerate": 1}}}});
        json!({"id": ID, "eventlog": eventlog, "R": r.to_string(), "jobspec": jobspec.to_string()})
    }

    #[test]
    fn a_job_of_housekeeping_is_read_from_its_eventlog() {
        for (starttime, epilog, expect) in
            [(900.0, false, Some(false)), (1004.5, false, Some(true)), (900.0, true, None)]
        {
            let mut view = View::new(Site::default());
            view.starttime = starttime;
            inactive(&mut view, &job_info(epilog));
            let job = view.jobs.get(&ID);
            assert_eq!(job.map(Job::is_freed_unseen), expect, "{starttime} {epilog}");
            if let Some(job) = job {
                let held = job.held().unwrap();
                assert_eq!((held.r.hosts().to_string(), job.userid), ("n[0-1]".to_owned(), Some(1000)));
                assert_eq!(job.terms.tolerate.map(|count| count.to_string()), Some("1".to_owned()));
            }
        }
    }

    #[test]
    fn flux_lists_its_housekeeping_by_job() {
        let job = json!({"t_start": 1.0, "pending": "1", "allocated": "1-2"});
        let stats = json!({"housekeeping": {"running": {"ƒuZZybuNNy": job}, "config": {"command": ""}}});
        assert_eq!(running(&stats), [6_731_191_091_817_518]);
        assert_eq!(running(&json!({})), Vec::<u64>::new());
    }
}
