//! The first checks of a broker: the broker is the right one, this edge is the only one, and the plugin is loaded. A
//! session that a check ends here has changed no job and no drain of Flux.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use perilog_core::ResourceSet;
use perilog_terms::{Cap, Epilog};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::{AT_ONCE, EVENTS, Event, FIRST_BACKOFF, Session};
use crate::broker::wire::ANY;
use crate::broker::{Broker, RpcError};
use crate::config::Config;
use crate::plan::{Job, Reference, View};

/// The service name that the edge registers in Flux as a lock against a second edge.
const SERVICE: &str = "perilog";
const EEXIST: u32 = 17;
const ENOSYS: u32 = 38;
/// A call that every loaded job manager answers. It distinguishes a missing plugin from a Flux that is still starting.
const JOB_MANAGER: &str = "job-manager.stats-get";
const LIST: &str = "job-manager.perilog-hold.list";
/// Version of the plugin's contract (flux/jobtap/README.md).
const INTERFACE: u64 = 1;

/// The reason why a session did not begin, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    #[error("Flux is not there: {}: {source}", path.display())]
    Away { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("{} is rank {rank} of an instance of level {level}; the edge must run on rank 0 of the system instance",
            path.display())]
    NotRankZero { path: PathBuf, rank: String, level: String },
    #[error("another edge runs already: it has the service name `{SERVICE}`")]
    NotAlone,
    #[error(
        "the plugin is not loaded, so jobs run without prolog and epilog. Load it now (flux jobtap load \
         /usr/lib/perilog/perilog-hold.so), and add it to [job-manager] plugins in Flux's configuration for the next \
         start of rank 0"
    )]
    NoPlugin,
    #[error("Flux is starting, and its job manager does not answer yet: {0}")]
    Starting(RpcError),
    #[error("the plugin has interface {0}, and this edge has interface {INTERFACE}: install the same version of both")]
    OtherPlugin(u64),
    #[error("a message of Flux cannot be read: {0}")]
    Unreadable(String),
}

impl Session {
    /// Connects to the broker, makes the first checks, and opens the streams of events.
    ///
    /// # Errors
    /// [`Fault`]: the broker is away, refuses a request, or gives an answer that the edge cannot read; this broker is
    /// not rank 0 of the system instance; another edge runs; or the plugin does not fit. Flux's jobs and drains are as
    /// before.
    pub async fn open(config: &Config) -> Result<Self, Fault> {
        let path = config.flux.to_path_buf();
        let away = |source| Fault::Away { path: path.clone(), source };
        let broker = Broker::connect(&path).await.map_err(away)?;
        let (rank, level) = (attr(&broker, "rank").await?, attr(&broker, "instance-level").await?);
        if (rank.as_str(), level.as_str()) != ("0", "0") {
            return Err(Fault::NotRankZero { path, rank, level });
        }
        match broker.rpc("service.add", &json!({ "service": SERVICE }), ANY).await {
            Err(error) if error.errnum() == Some(EEXIST) => return Err(Fault::NotAlone),
            answer => answer?,
        };
        let mut view = View::new(config.site());
        let starttime = attr(&broker, "broker.starttime").await?;
        view.starttime = starttime.parse().map_err(|_| Fault::Unreadable(format!("broker.starttime {starttime}")))?;
        let epilogs_in_housekeeping = plugin(&broker, &mut view).await?;
        let status = broker.rpc("resource.status", &json!({}), 0).await?;
        super::fold::status(&mut view, &status);
        let (sender, events) = mpsc::channel(EVENTS);
        let session = Self {
            config: config.clone(),
            broker,
            view,
            events,
            sender,
            epilogs_in_housekeeping,
            is_caught_up: false,
            link: None,
            link_backoff: FIRST_BACKOFF,
            link_at: None,
            in_flight: HashMap::new(),
            delayed: HashMap::new(),
            quiet: None,
            room: Arc::new(Semaphore::new(AT_ONCE)),
            status_asked: false,
            status_outdated: false,
            why: String::new(),
            shown: String::new(),
        };
        session.follow("groups.get", json!({ "name": "broker.online" }), Event::Online).await?;
        session.follow("resource.journal", json!({}), Event::Resource).await?;
        session.follow("job-manager.events-journal", json!({ "full": false }), Event::Journal).await?;
        Ok(session)
    }

    async fn follow(&self, topic: &str, payload: Value, event: fn(Value) -> Event) -> Result<(), Fault> {
        let mut stream = self.broker.stream(topic, &payload, 0).await?;
        let (sender, topic) = (self.sender.clone(), topic.to_owned());
        tokio::spawn(async move {
            let lost = loop {
                match stream.recv().await {
                    Some(Ok(reply)) => {
                        if sender.send(event(reply)).await.is_err() {
                            return;
                        }
                    }
                    Some(Err(error)) => break error,
                    None => break RpcError::Gone(format!("{topic} ended")),
                }
            };
            // An ended session needs no event.
            let _ = sender.send(Event::Lost(lost)).await;
        });
        Ok(())
    }
}

async fn attr(broker: &Broker, name: &str) -> Result<String, RpcError> {
    let answer = broker.rpc("attr.get", &json!({ "name": name }), ANY).await?;
    Ok(answer["value"].as_str().unwrap_or_default().to_owned())
}

/// Reads the plugin's references and the site's cap into the view. Returns `true` if the site runs epilogs as
/// housekeeping.
async fn plugin(broker: &Broker, view: &mut View) -> Result<bool, Fault> {
    let list = match broker.rpc(LIST, &json!({}), 0).await {
        Err(error) if error.errnum() == Some(ENOSYS) => {
            // While Flux starts, the job manager does not answer either.
            broker.rpc(JOB_MANAGER, &json!({}), 0).await.map_err(Fault::Starting)?;
            return Err(Fault::NoPlugin);
        }
        answer => answer?,
    };
    match list["interface"].as_u64().unwrap_or_default() {
        INTERFACE => {}
        other => return Err(Fault::OtherPlugin(other)),
    }
    let cap: serde_json::Map<String, Value> = ["max-tolerate", "max-tolerate-check"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), list.get(key)?.clone())))
        .collect();
    view.cap = Cap::read(&Value::Object(cap).to_string()).unwrap_or_else(|why| {
        tracing::error!("the site's cap cannot be read, so no job may tolerate a failure: {why}");
        Cap::none()
    });
    for row in list["jobs"].as_array().into_iter().flatten() {
        if let (Some(id), Some("before")) = (row["id"].as_u64(), row["prolog"].as_str()) {
            view.jobs.entry(id).or_insert_with(|| Job::new(id)).before = true;
        }
    }
    Ok(list["epilog"] == Epilog::Housekeeping.as_str())
}

/// Returns the plugin's references that are open according to the eventlog, of one job (`only`) or of all jobs. Each
/// comes with the job's id, and with the job's name for log lines.
///
/// # Errors
/// [`Fault::Rpc`]: Flux is gone, refuses its journal, or sends what is no JSON.
pub async fn open_references(broker: &Broker, only: Option<u64>) -> Result<Vec<(u64, Reference, String)>, Fault> {
    let mut view = View::new(crate::plan::view::Site::default());
    let mut journal = broker.stream("job-manager.events-journal", &json!({ "full": false }), 0).await?;
    loop {
        let reply = journal.recv().await.unwrap_or_else(|| Err(RpcError::Gone("the journal ended".to_owned())))?;
        if super::fold::journal(&mut view, &reply) {
            break;
        }
    }
    let jobs = view.jobs.values().filter(|job| only.is_none_or(|id| id == job.id));
    Ok(jobs
        .flat_map(|job| {
            let open = [(job.prolog, Reference::Prolog), (job.epilog, Reference::Epilog)];
            let open = open.into_iter().filter(|(held, _)| held.is_open());
            open.map(|(_, what)| (job.id, what, view.subject(job.id))).collect::<Vec<_>>()
        })
        .collect())
}

/// Sets the view's ranks and hosts from an answer to `resource.status`.
pub(super) fn ranks(view: &mut View, status: &Value) {
    if let Ok(r) = ResourceSet::from_json(&status["R"].to_string()) {
        view.set_ranks(&r);
    }
}
