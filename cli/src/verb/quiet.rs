//! `perilog quiesce` and `perilog resume`: make the controller begin nothing new except after-actions, for example
//! before it is replaced, and let it begin all work again.

use std::convert::Infallible;
use std::sync::mpsc::RecvTimeoutError;

use perilog_core::Span;
use perilog_host::clock;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::endpoint::{Answer, Endpoint};
use crate::exit::{self, Exit};
use crate::fault::Fault;
use crate::out::{Out, Page, Render, aside};
use crate::session::{SessionEvent, keep};
use crate::{text, values};

/// Begin nothing new, so that the controller can be replaced
///
/// Running actions continue, also while the controller is down, and after-actions (the epilog) still begin. Until
/// `perilog resume`, the controller refuses every other new request, also after a restart.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub(crate) struct Args {
    /// Wait until all work has ended, at most this long; 0s only checks.
    #[arg(long, value_name = "TIME", value_parser = values::span, num_args = 0..=1)]
    wait: Option<Option<Span>>,
    /// The reason, for other operators.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Accept new work again
///
/// Ends what perilog quiesce began. To put a node back into service: perilog undrain NODE.
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    #[arg(hide = true, value_name = "NAME", value_parser = elsewhere)]
    name: Option<Infallible>,
}

/// Refuses any name as an argument of `resume`. The error names the verb that is `scontrol update state=resume`.
fn elsewhere(name: &str) -> Result<Infallible, String> {
    let name = text::line(name);
    Err(format!(
        "perilog resume ends perilog quiesce and takes no name; to put {name} back into service: perilog undrain {name}"
    ))
}

fn help() -> String {
    format!(
        "{}\n\
         \n\
         With --wait: 0 when nothing is open; 124 when the time is over and work is still open; 10 when an operator \
         resumes meanwhile. After 0 and 124 the controller stays quiesced.",
        exit::help()
    )
}

pub(crate) fn run(args: Args, endpoint: Endpoint, mut out: Out) -> Result<Exit, Fault> {
    let parameters = |wait: bool| json!({"reason": args.reason, "wait": wait});
    let now: Answer<Open> = endpoint.ask("Quiesce", &parameters(false))?;
    let Some(limit) = args.wait.filter(|_| now.body.actions > 0) else {
        out.show(&now)?;
        return Ok(Exit::Ok);
    };
    let deadline_ms = limit.and_then(Span::as_millis).map(|ms| clock::mono_ms().saturating_add(ms));
    aside(format_args!("the controller is quiesced; waiting for {}", now.body.text()));
    let (parameters, at) = (parameters(true), endpoint.clone());
    let session_events = keep(endpoint, true, move |client, sender| {
        sender.answered()?;
        at.wait_for_ever(client)?;
        let answer: Answer<Open> = at.ask_on(client, "Quiesce", &parameters)?;
        sender.send_message(answer)
    })?;
    loop {
        let event = match deadline_ms {
            None => session_events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline_ms) => session_events.recv_timeout(clock::until(deadline_ms)),
        };
        match event {
            Ok(SessionEvent::Message(answer)) => {
                out.show(&answer)?;
                return Ok(Exit::Ok);
            }
            // The text of the refusal says that this command tries again.
            Ok(SessionEvent::Away(fault @ Fault::Refused { .. })) => aside(fault),
            Ok(SessionEvent::Away(fault)) => aside(fault.waiting()),
            Ok(SessionEvent::Back(back)) => aside(back),
            Ok(SessionEvent::Over(fault)) => return Err(fault),
            Ok(SessionEvent::Interrupted) => {
                aside("this command no longer waits; the controller stays quiesced until: perilog resume");
                return Ok(Exit::Detached);
            }
            Ok(SessionEvent::Done) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::Other("the wait ended unexpectedly; repeat the command".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {
                aside("work is still open (perilog ps); the controller stays quiesced until: perilog resume");
                return Ok(Exit::StillRunning);
            }
        }
    }
}

pub(crate) fn resume(_: Resume, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    out.show(&endpoint.ask::<Resumed>("Resume", &json!({}))?)?;
    Ok(Exit::Ok)
}

#[derive(Debug, Clone, Deserialize)]
struct Open {
    actions: u64,
    tasks: u64,
}

#[derive(Debug, Deserialize)]
struct Resumed {
    was_quiet: bool,
}

impl Open {
    fn text(&self) -> String {
        format!("{} over {}", text::count(self.actions, "action"), text::count(self.tasks, "task"))
    }
}

impl Render for Answer<Open> {
    fn table(&self, page: &mut Page) {
        let open = match self.body.actions {
            0 => "nothing is open".to_owned(),
            _ => format!("still open, and not stopped: {} (perilog ps)", self.body.text()),
        };
        page.line(format_args!("the controller is quiesced and begins nothing new until: perilog resume; {open}"));
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}

impl Render for Answer<Resumed> {
    fn table(&self, page: &mut Page) {
        page.line(if self.body.was_quiet {
            "the controller accepts new work again"
        } else {
            "the controller was not quiesced"
        });
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, _page: &mut Page) {}
}
