//! Clients of the controller's API: each runs jobs on two nodes of its own, and marks what the controller has reported.
//! A client asks again for as long as the controller is away or has no room.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use perilog_disk::run::Marks;
use perilog_host::authority;
use perilog_host::enroll::{Ask, ask};
use perilog_host::link::Dial;
use perilog_host::varlink::{CallError, Client};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::PAUSE;
use crate::bed::LIMIT;

/// A node enrols with every job of this number.
const ENROLS: u64 = 5;

/// Errors after which the same request can succeed.
const PASSING: [&str; 3] = ["unavailable", "conflict", "no-such-node"];

pub(crate) struct Tour {
    pub(crate) socket: PathBuf,
    pub(crate) marks: Arc<Marks>,
    /// Number of the client.
    pub(crate) client: u64,
    /// The enrolment server, without a certificate of the node.
    pub(crate) enroll: Dial,
    pub(crate) runtime: Handle,
}

impl Tour {
    /// Runs jobs, one after the other.
    pub(crate) fn jobs(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.job(number);
            if number % ENROLS == 0 {
                self.enrol(number);
            }
        }
    }

    fn job(&self, number: u64) {
        let job = format!("j{}x{number}", self.client);
        let nodes = format!("n[{}-{}]", 2 * self.client, 2 * self.client + 1);
        let source = json!({"name": "flux", "instance": "i1"});
        let source = if number.is_multiple_of(2) { source } else { Value::Null };
        let rabbit = format!("rabbit{}", self.client);
        let added = self.call(
            "JobAdd",
            json!({
                "job": job, "nodes": nodes, "userid": 1000, "resources": [rabbit], "source": source,
                "tolerate_checks": many_checks(),
            }),
        );
        let attempt = added["attempt"].as_str().unwrap().to_owned();
        self.mark(&format!("attempt {job} {attempt}"));
        self.action(&job, &attempt, "prolog");
        let staging = json!({"job": job, "action": "staging", "resources": [rabbit], "lease": "10m"});
        self.call("ActionStart", staging);
        self.mark(&format!("action {job} {attempt} staging"));
        self.call("ActionReport", json!({"job": job, "action": "staging", "outcome": "ok"}));
        self.call("Milestone", json!({"job": job, "name": "ready"}));
        self.action(&job, &attempt, "epilog");
        self.call("JobFinish", json!({"job": job, "targets": "0"}));
        self.call("JobFinish", json!({"job": job}));
        let host = format!("d{}x{number}", self.client);
        self.call("Drain", json!({"nodes": host, "reason": "a disk of it is bad", "force": true}));
        self.mark(&format!("drain {host}"));
    }

    /// Begins a job that does not end, because one of its nodes is away. What changed in its rows stays beside them.
    pub(crate) fn open_job(&self) {
        let job = format!("open{}", self.client);
        let nodes = format!("n{},absent{}", 2 * self.client, self.client);
        let added = self.call("JobAdd", json!({"job": job, "nodes": nodes, "tolerate_checks": many_checks()}));
        let attempt = added["attempt"].as_str().unwrap().to_owned();
        self.begin(&job, &attempt, "prolog", "finish");
        self.call("JobFinish", json!({"job": job, "targets": "0"}));
    }

    /// Has the controller begin no more actions.
    pub(crate) fn quiet(&self) {
        self.call("Quiesce", json!({"reason": "the end"}));
        self.mark("quiet");
    }

    /// Runs an action, and follows its job until the action has ended.
    fn action(&self, job: &str, attempt: &str, action: &str) {
        self.begin(job, attempt, action, "verdict");
    }

    /// Begins an action, and follows its job until an event of the action with this name.
    fn begin(&self, job: &str, attempt: &str, action: &str, until: &str) {
        let run = json!({"job": job, "action": action, "env": {"A": "b".repeat(1_000)}, "timeout": "1h"});
        let run = self.call("Run", run);
        self.mark(&format!("action {job} {attempt} {action}"));
        let mut after = run["events_after"].as_u64().unwrap();
        for _ in 0..tries() {
            let is_last = |event: &Value| event["name"] == until && event["context"]["action"] == action;
            if self.follow(job, &mut after, is_last).unwrap_or(false) {
                return;
            }
            std::thread::park_timeout(PAUSE);
        }
        panic!("{action} of {job} does not end");
    }

    /// Marks the events of a job past `after`, and raises that. Returns `true` at the last event to wait for.
    fn follow(&self, job: &str, after: &mut u64, is_last: impl Fn(&Value) -> bool) -> Result<bool, CallError> {
        let mut client = self.client()?;
        let follow = json!({"job": job, "after": *after, "follow": true});
        for reply in client.call_more("io.perilog.Controller.Events", follow)? {
            for event in reply?["events"].as_array().unwrap() {
                *after = event["sequence"].as_u64().unwrap();
                self.mark(&format!("event {job} {after} {}", event["name"].as_str().unwrap()));
                if is_last(event) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Makes a one-time token, and uses it.
    fn enrol(&self, number: u64) {
        let host = format!("e{}x{number}", self.client);
        let made = self.call("TokenMake", json!({"nodes": host}));
        let token = made["tokens"][0]["token"].as_str().unwrap().to_owned();
        let digest: String = Sha256::digest(&token).iter().map(|byte| format!("{byte:02x}")).collect();
        self.mark(&format!("token {digest}"));
        let key = authority::key().unwrap();
        let question = Ask { host, token: Some(token), munge: None, csr: authority::request(&key).unwrap() };
        for _ in 0..tries() {
            match self.runtime.block_on(ask(&self.enroll, &question)) {
                Ok(_) => return self.mark(&format!("certificate {digest}")),
                Err(_) => std::thread::park_timeout(PAUSE),
            }
        }
        panic!("{} is not enrolled", question.host);
    }

    /// Calls a method until the controller answers.
    pub(crate) fn call(&self, method: &str, parameters: Value) -> Value {
        let name = format!("io.perilog.Controller.{method}");
        let mut last = None;
        for _ in 0..tries() {
            match self.client().and_then(|mut client| client.call(&name, parameters.clone())) {
                Ok(reply) => return reply,
                Err(CallError::Remote { name, parameters }) if !is_passing(&name, &parameters) => {
                    panic!("{method}: {name} {parameters}")
                }
                Err(error) => last = Some(error),
            }
            std::thread::park_timeout(PAUSE);
        }
        panic!("{method} {parameters}: {last:?}");
    }

    fn client(&self) -> Result<Client, CallError> {
        let mut client = Client::connect(&self.socket)?;
        client.set_timeout(Some(Duration::from_secs(10)))?;
        Ok(client)
    }

    fn mark(&self, what: &str) {
        self.marks.acknowledged(what).unwrap();
    }
}

/// Returns terms that make a large row: then what changes in the row is stored beside it.
fn many_checks() -> Map<String, Value> {
    (0..20).map(|number| (format!("check-of-a-disk-{number}"), json!("10%"))).collect()
}

/// Returns the number of tries of a request.
fn tries() -> usize {
    (LIMIT.as_millis() / PAUSE.as_millis()) as usize
}

fn is_passing(error: &str, parameters: &Value) -> bool {
    let code = parameters["code"].as_str().unwrap_or_default();
    error.ends_with(".Busy") || error.ends_with(".Refused") && PASSING.contains(&code)
}
