//! Callbacks of the plugin, in safe Rust; `abi.rs` translates to and from C. The plugin never holds the lock of its
//! state during a call of Flux, because Flux may call back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use perilog_terms::{Epilog, Site, Terms, json};

use crate::abi::{Call, Errno, Level, Plugin, Request};
use crate::references::{References, Refusal, State, What};

/// Version of the interface between plugin and edge: the services and their payloads, as README.md describes them.
const INTERFACE: u32 = 1;

struct Held {
    references: References,
    site: Site,
    /// The state of the table `[perilog]` in Flux's configuration. `None`: Flux has not sent its configuration yet.
    /// `Some(None)`: the table in force has no mistake. `Some(Some(text))`: its mistake.
    configured: Option<Option<String>>,
}

impl Held {
    const fn new() -> Self {
        Self { references: References::new(), site: Site::new(), configured: None }
    }
}

static HELD: Mutex<Held> = Mutex::new(Held::new());

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets the state of an earlier load of the plugin in this process.
pub(crate) fn begin() {
    *held() = Held::new();
}

/// Runs the callback for `topic`.
///
/// # Errors
/// The text with which Flux refuses the user's job (`job.validate`) or the configuration (`conf.update`).
pub(crate) fn called(plugin: &Plugin, topic: &[u8], call: &Call) -> Result<(), String> {
    match topic {
        b"conf.update" => return configure(plugin, call),
        b"job.validate" => return validate(call),
        b"job.new" => found(call),
        b"job.state.run" => run(plugin, call),
        b"job.state.cleanup" => cleanup(plugin, call),
        b"job.destroy" => call.id().into_iter().for_each(|id| held().references.forget(id)),
        _ => {}
    }
    Ok(())
}

/// Logs a panic of the callback for `topic`, and stops what must not go on without the callback's work. A job before
/// its prolog (`job.state.run`) gets a fatal exception; a submitted job or a configuration is refused by the error.
///
/// # Errors
/// The text with which Flux refuses the user's job (`job.validate`) or the configuration (`conf.update`).
pub(crate) fn panicked(plugin: &Plugin, topic: &[u8]) -> Result<(), String> {
    let text = format!("perilog-hold: a defect in {}; Flux's log has more", String::from_utf8_lossy(topic));
    plugin.log(Level::Critical, &text);
    match topic {
        b"job.state.run" => plugin.fail_job(&text),
        b"job.validate" | b"conf.update" => return Err(text),
        _ => {}
    }
    Ok(())
}

/// Reads the site's table `[perilog]`, at load and at each `flux config reload`.
///
/// At load, a refusal of a malformed table would keep rank 0 from starting. So the plugin logs the mistake and accepts
/// the table, and no job may tolerate a failure. Flux makes this call twice at load, so the plugin always accepts a
/// table with the same mistake as the table in force.
///
/// # Errors
/// At a reload: a mistake that the table in force does not have.
fn configure(plugin: &Plugin, call: &Call) -> Result<(), String> {
    let all = call.configuration();
    let read = all.as_deref().and_then(|all| json::at(all, &["conf", "perilog"])).map_or(Ok(Site::new()), Site::read);
    let configured = held().configured.take();
    match (read, configured) {
        (Ok(site), _) => {
            let mut held = held();
            (held.site, held.configured) = (site, Some(None));
        }
        (Err(why), Some(before)) if before.as_ref() != Some(&why) => {
            held().configured = Some(before);
            return Err(why);
        }
        (Err(why), _) => {
            let until = "until the operator fixes that, no job may tolerate a failure";
            plugin.log(Level::Error, &format!("perilog-hold: {why}; {until}"));
            let mut held = held();
            (held.site, held.configured) = (Site::unreadable(), Some(Some(why)));
        }
    }
    Ok(())
}

/// Refuses a job with bad terms when the user submits it.
fn validate(call: &Call) -> Result<(), String> {
    let Some(job) = call.job_with_terms() else { return Ok(()) };
    let jobspec = json::member(&job, "jobspec").unwrap_or_default();
    let terms = Terms::read(json::at(jobspec, &["attributes", "system", "perilog"]).unwrap_or_default())?;
    held().site.check(&terms, jobspec)
}

/// Records the callback's job if its state is RUN or CLEANUP: the job then existed before Flux loaded the plugin. A
/// newly submitted job has an earlier state, and is not recorded.
fn found(call: &Call) {
    if let (Some(id), Some(state)) = (call.id(), call.state().and_then(State::read)) {
        held().references.found(id, state);
    }
}

/// Takes a prolog reference on a job that has resources from the scheduler. `alloc-bypass` gives a job the resources of
/// other jobs: no prolog runs there.
fn run(plugin: &Plugin, call: &Call) {
    if call.is_bypass() {
        return;
    }
    match call.id().ok_or(Errno::PROTOCOL).and_then(|id| plugin.take(What::Prolog).map(|()| id)) {
        Ok(id) => held().references.take(id, What::Prolog),
        Err(errno) => plugin.fail_job(&format!("perilog cannot hold the prolog: errno {}", errno.0)),
    }
}

/// Takes an epilog reference on a job that has ended, was cancelled, failed in its prolog, or was lost with rank 0.
/// Until the edge finishes the reference, Flux does not free the job's resources. Ignores a job that the plugin does
/// not know, and a job without resources. Takes no reference on a site that runs epilogs as housekeeping.
fn cleanup(plugin: &Plugin, call: &Call) {
    let is_ours = |id: &u64| {
        let held = held();
        held.site.epilog == Epilog::Hold && held.references.knows(*id)
    };
    let Some(id) = call.id().filter(|id| call.has_resources() && is_ours(id)) else { return };
    match plugin.take(What::Epilog) {
        Ok(()) => held().references.take(id, What::Epilog),
        Err(errno) => {
            let text = format!("perilog-hold: cannot hold the epilog of job {id}: errno {}", errno.0);
            plugin.log(Level::Critical, &text);
        }
    }
}

/// Answers a request to the service `finish`: finishes a reference for the edge.
pub(crate) fn finish(plugin: &Plugin, request: Request) {
    let read = request.read_finish().and_then(|(id, what, status)| Some((id, What::read(&what)?, status)));
    let Some((id, what, status)) = read else {
        return request.refuse(Errno::PROTOCOL, c"expected {id, what: \"prolog\" or \"epilog\", status}");
    };
    let granted = held().references.finish(id, what);
    match granted {
        Err(Refusal::NoneIsOpen) => request.refuse(Errno::NO_SUCH_ENTRY, c"perilog holds no such reference of the job"),
        Err(Refusal::FinishedAlready) => request.refuse(Errno::ALREADY, c"finished already"),
        Ok(granted) => match plugin.finish(what, id, status) {
            Ok(()) => request.answer(None),
            Err(errno) => {
                held().references.take_back(granted);
                request.refuse(errno, c"");
            }
        },
    }
}

/// Answers a request to the service `list`: lists the references and the site's settings for the edge.
pub(crate) fn list(request: Request) {
    let json = {
        let held = held();
        let cap: String = held.site.cap.to_members().iter().map(|member| format!("{member},")).collect();
        let (epilog, jobs) = (held.site.epilog.as_str(), held.references.to_json());
        format!(r#"{{"interface":{INTERFACE},"epilog":"{epilog}",{cap}"jobs":{jobs}}}"#)
    };
    request.answer(Some(&json));
}
