//! Values that the tests of several modules share, such as a plan and an intent.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::hostlist::HostList;
use perilog_core::ids::{ActionId, ActionName, Attempt, BootId, ClusterId, JobId, Rank, TaskId};
use perilog_core::idset::IdSet;
use perilog_core::outcome::Outcome;
use perilog_core::task::{Hook, Intent, Plan, Run, Start, Tombstone};

pub(crate) fn plan() -> Plan {
    Plan {
        run: Run::Directories(vec!["/etc/perilog/prolog.d".to_owned()]),
        path: "/usr/bin:/bin".to_owned(),
        memory_max: Some(1 << 30),
        tasks_max: Some(512),
        cpu_weight: Some(100),
        oom_score_adjust: -100,
        ..Plan::default()
    }
}

pub(crate) fn intent() -> Intent {
    let job = JobId::new("fuZZybuNNy").unwrap();
    let action = ActionName::new("prolog").unwrap();
    let attempt: Attempt = "1552593348.09283".parse().unwrap();
    let id = ActionId::of(ClusterId::from_name("test"), &job, attempt, &action);
    let start = Start {
        task: TaskId { action: id, rank: Rank(3) },
        job,
        attempt,
        action,
        boot: BootId::new("b-1").unwrap(),
        not_after_ms: 60_000,
        milestones: BTreeSet::new(),
        ranks: "3".parse::<IdSet>().unwrap(),
        hosts: "n3".parse::<HostList>().unwrap(),
        userid: Some(1000),
        env: BTreeMap::new(),
        timeout_ms: None,
        after: false,
        commit: 0,
    };
    Intent {
        start,
        plan: plan(),
        env: BTreeMap::new(),
        dropped_env: 0,
        not_after_boottime_ms: 1_000_000,
        accepted_boottime_ms: 940_000,
        hook: Hook::default(),
        local: false,
        commit: None,
    }
}

pub(crate) fn tombstone(intent: &Intent) -> Tombstone {
    Tombstone {
        task: intent.start.task,
        job: intent.start.job.clone(),
        attempt: intent.start.attempt,
        action: intent.start.action.clone(),
        outcome: Outcome::Ok,
        not_after_boottime_ms: intent.not_after_boottime_ms,
        local: intent.local,
        boot: Some(intent.start.boot.clone()),
        expects_boot: true,
        limit_ms: Some(u64::MAX),
        after: false,
        commit: None,
        instance: None,
    }
}
