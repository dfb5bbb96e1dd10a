//! The daemon: runs one session with Flux after another, until SIGTERM.

use std::time::Duration;

use perilog_core::Fluid;
use perilog_host::notify;
use perilog_host::signals::{Signal, Signals};
use serde_json::json;

use crate::broker::Broker;
use crate::config::Config;
use crate::session::Session;

/// Delay before the next attempt to reach Flux; an instance takes seconds to boot.
const AGAIN: Duration = Duration::from_millis(500);

/// Runs the edge until a signal ends it.
///
/// # Errors
/// A text: the signal handlers cannot be installed.
pub async fn run(config: &Config) -> Result<(), String> {
    let mut signals = Signals::new().map_err(|error| format!("cannot install handlers of signals: {error}"))?;
    // The daemon is ready at once: Flux may start later, and no unit waits for the edge.
    notify::ready("waits for Flux");
    let mut logged = String::new();
    loop {
        let session = async {
            match Session::open(config).await {
                Ok(session) => session.run().await,
                Err(fault) => fault,
            }
        };
        let fault = tokio::select! {
            fault = session => fault.to_string(),
            () = terminated(&mut signals) => return Ok(()),
        };
        // Logs a repeated fault once.
        if fault != logged {
            tracing::warn!("{fault}; trying again");
            notify::status(&format!("waits: {fault}"));
            logged = fault;
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = terminated(&mut signals) => return Ok(()),
        }
    }
}

async fn terminated(signals: &mut Signals) {
    while signals.next().await != Signal::Terminate {}
}

/// Carries out `--drop-hold`: has the plugin finish its references on one job, or on all jobs, whatever the state of
/// the job in perilog. `job`: a job id, or `all`.
///
/// # Errors
/// A text for the operator: `job` is no job id; Flux is away, refuses, or gives no readable answer in time; or the
/// plugin has no open reference on the one job.
pub async fn release(config: &Config, job: &str) -> Result<(), String> {
    let path = &*config.flux;
    let only = match job {
        "all" => None,
        job => Some(job.parse::<Fluid>().map_err(|error| error.to_string())?),
    };
    let broker = Broker::connect(path).await.map_err(|error| format!("{}: {error}", path.display()))?;
    let open =
        crate::session::open_references(&broker, only.map(|id| id.0)).await.map_err(|error| error.to_string())?;
    match (only, open.is_empty()) {
        (Some(id), true) => return Err(format!("perilog holds nothing of {id}")),
        (None, true) => print_line("perilog holds nothing of any job"),
        (_, false) => {}
    }
    for (id, what, subject) in open {
        let asked = json!({ "id": id, "what": what.as_str(), "status": 0 });
        broker.rpc("job-manager.perilog-hold.finish", &asked, 0).await.map_err(|error| error.to_string())?;
        print_line(&format!("{subject}: {} is released", what.as_str()));
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the answer to the operator who typed --drop-hold")]
fn print_line(line: &str) {
    println!("{line}");
}
