//! `perilog try`: runs script directories on this host exactly as a task's unit would, for authors of scripts.
//!
//! This host's agent runs the scripts; no controller is involved. The verb reads the output from the journal.

mod journal;
mod trial;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use perilog_core::{ActionName, JobId, Span};
use perilog_host::clock;
use perilog_host::limited::Lookup;
use serde::Serialize;
use serde_json::json;

use crate::endpoint::AgentSocket;
use crate::exec;
use crate::exit::{self, Exit};
use crate::fault::Fault;
use crate::out::{Out, aside};
use crate::session::{SessionEvent, keep};
use crate::verb::doctor;
use crate::{text, values};

use self::trial::Trial;

/// Run script directories on this host as a task's unit would
///
/// Exits with the status of the scripts. Their environment, user, limits and order are those of the action; the
/// controller takes no part. Ctrl-C cancels the scripts as `perilog cancel` would (SIGTERM once); a second Ctrl-C ends
/// this command and leaves them running. With --json: the replies of io.perilog.Agent.Exec.
#[derive(Debug, clap::Args)]
#[command(name = "try", after_help = exit::help())]
pub(crate) struct Args {
    /// Run in this order.
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// The action whose settings apply.
    #[arg(long, value_name = "ACTION", default_value = "prolog", value_parser = values::action)]
    action: ActionName,
    /// The job's owner, as scripts get it: a uid, or a user of this host.
    #[arg(long, value_name = "UID", value_parser = values::user)]
    user: Option<u32>,
    /// A variable for the scripts; they see it if env-allow in agent.toml names it. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = values::variable)]
    env: Vec<(String, String)>,
    /// The job's name for the scripts; the name of a running task attaches to that task. Default: a new name.
    #[arg(long, value_name = "JOB", value_parser = values::job)]
    job: Option<JobId>,
    /// Time limit for all scripts together.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    timeout: Option<Span>,
    #[command(flatten)]
    agent: AgentSocket,
}

/// The parameters of the method `Exec`.
#[derive(Debug, Clone, Serialize)]
struct Request {
    job: JobId,
    action: ActionName,
    userid: Option<u32>,
    env: BTreeMap<String, String>,
    timeout: Option<String>,
    directories: Vec<PathBuf>,
}

/// Period of reading the journal while scripts print.
const POLL: Duration = Duration::from_millis(500);

pub(crate) fn run(args: Args, out: Out) -> Result<Exit, Fault> {
    let endpoint = args.agent.endpoint();
    let request = args.request()?;
    let overriding = doctor::overriding();
    for path in &overriding.of_tasks {
        aside(format_args!("the site's drop-in {} for tasks is in effect", text::line(path)));
    }
    for path in &overriding.of_others {
        aside(format_args!("the drop-in {} may change the unit of every task; see perilog doctor", text::line(path)));
    }
    let mut trial = Trial::new(out);
    let session_endpoint = endpoint.clone();
    let session =
        move |client: &mut _, sender: &mut _| exec::session(&session_endpoint, client, &request, sender, |_| {});
    let session_events = keep(endpoint.clone(), true, session)?;
    loop {
        match session_events.recv_timeout(POLL) {
            Ok(SessionEvent::Message(reply)) => {
                if let Some(exit) = trial.reply(&reply)? {
                    return Ok(exit);
                }
            }
            Ok(SessionEvent::Away(_)) => {
                aside("the agent is away; the scripts keep running, and this command waits until it is back")
            }
            Ok(SessionEvent::Back(back)) => aside(back),
            Ok(SessionEvent::Interrupted) => match trial.unit() {
                Some(unit) => {
                    aside("asked the scripts to stop; Ctrl-C again ends this command and leaves them running");
                    if let Err(fault) = endpoint.ask::<serde_json::Value>("Cancel", &json!({ "unit": unit })) {
                        aside(fault);
                    }
                }
                None => return Ok(Exit::Detached),
            },
            Ok(SessionEvent::Over(fault)) => return Err(fault),
            Err(RecvTimeoutError::Timeout) => trial.show_output()?,
            Ok(SessionEvent::Done) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::Other(
                    "the replies of the agent ended before the scripts did; see journalctl -u perilog-agent".to_owned(),
                ));
            }
        }
    }
}

impl Args {
    fn request(self) -> Result<Request, Fault> {
        let mut directories = Vec::new();
        for path in self.directories {
            let given = path.clone();
            let seen = Lookup::begin(format!("directory {}", path.display()), move || {
                given.canonicalize().map(|absolute| (absolute.is_dir(), absolute))
            });
            let seen = seen.answer().map_err(|none| Fault::Other(none.to_string()))?;
            let (is_dir, absolute) =
                seen.map_err(|source| Fault::File { what: "cannot run", path: path.clone(), source })?;
            if !is_dir {
                return Err(Fault::Usage(format!("{} is no directory", path.display())));
            }
            directories.push(absolute);
        }
        // A fresh name: with a used name, the call would attach to a task that ended long ago.
        let fresh = format!("try-{}-{}", std::process::id(), clock::wall_ms());
        let job = match self.job {
            Some(job) => job,
            None => JobId::new(&fresh).map_err(|error| Fault::Usage(error.to_string()))?,
        };
        Ok(Request {
            job,
            action: self.action,
            userid: self.user,
            env: self.env.into_iter().collect(),
            timeout: self.timeout.map(Span::to_exact),
            directories,
        })
    }
}
