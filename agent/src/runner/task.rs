//! Run of a task, from its claim to its result.
//!
//! ```text
//!   open, intent, not-after, claim     or the runner runs nothing, and stderr has the reason
//!        `-- or another build of the runner does all of it (second)
//!   -> limits, control socket          a failure is only logged
//!   -> steps.jsonl, every script found and checked, every user known                or `configuration`
//!   -> the scripts in order (sequence), each with its tries (attempt)
//!   -> the processes that outlive them (leftovers)
//!   -> result.json, exit
//! ```

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::rc::Rc;

use perilog_core::ids::InvocationId;
use perilog_core::task::{Empty, Intent, Retries};
use perilog_host::clock;

use crate::control::Control;
use crate::directory::Directory;
use crate::environment::{self, Environment};
use crate::exit::{self, Refusal};
use crate::lists::Lists;
use crate::output::{Level, Sinks};
use crate::rlimits;
use crate::scripts::Script;
use crate::second;
use crate::sequence::Sequence;
use crate::signals::Signals;
use crate::steps::{self, Steps};
use crate::tally::{Tally, Times};
use crate::users::{self, User};
use crate::watchdog::Limit;

/// A script with its settings from the plan.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) script: Script,
    pub(crate) identity: Rc<Identity>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) retries: Retries,
    pub(crate) tolerable: bool,
}

/// The user of a script, and the environment of all scripts of this user.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) user: User,
    pub(crate) env: Environment,
}

/// A moment on two clocks: milliseconds since 1970, and CLOCK_MONOTONIC in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) wall_ms: u64,
    pub(crate) mono_ms: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { wall_ms: clock::wall_ms(), mono_ms: clock::mono_ms() }
    }
}

/// Runs the task `stem` from its claim to its result. Its limit counts from `since_boot_ms` (CLOCK_BOOTTIME), or from
/// the claim. Returns the runner's exit status.
///
/// # Errors
/// [`Refusal`]: the runner claimed nothing and ran nothing, because systemd did not start it, the task's directory or
/// intent is missing or not to be trusted, the second build cannot be executed, not-after has passed, or another
/// process has the claim.
pub(crate) fn run(run_dir: &Path, since_boot_ms: Option<u64>, stem: &str) -> Result<u8, Refusal> {
    let invocation = invocation()?;
    let cannot = |what: &str, e: std::io::Error| Refusal::new(exit::NO_TASK, format!("{what}: {e}"));
    let mut sinks = Sinks::new().map_err(|e| cannot("cannot use stdout and stderr", e))?;
    let directory = Directory::open(run_dir, stem)?;
    let intent = directory.intent(stem)?;
    second::pass_on(&intent.plan)?;
    let signals = Signals::new().map_err(|e| cannot("cannot install handlers of signals", e))?;
    directory.claim(&intent, &invocation)?;

    // From here on the task ends in a result.
    let began = Moment::now();
    let waited = since_boot_ms.map_or(0, |since| clock::boottime_ms().saturating_sub(since));
    let limit = intent.limit_ms().map(|limit_ms| Limit::new(began.mono_ms.saturating_sub(waited), limit_ms));
    let (tally, ended) = match Steps::open(&directory) {
        Ok(steps) => {
            // systemd passes no supplementary groups, but another parent may, and root's scripts would inherit the
            // groups.
            if let Err(error) = rustix::thread::set_thread_groups(&[]) {
                sinks.write_line(Level::Warning, &format!("cannot drop the supplementary groups: {error}"));
            }
            if let Some(warning) = rlimits::raise(intent.plan.nofile) {
                sinks.write_line(Level::Warning, &warning);
            }
            // A script's orphans become the runner's children, in whatever cgroup they are.
            if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
                sinks.write_line(
                    Level::Warning,
                    &format!("the task does not wait for processes that scripts leave outside of its unit: {error}"),
                );
            }
            let control = open_control(run_dir, stem, &intent, &mut sinks);
            Sequence::new(&intent, &directory, steps, control, signals, sinks, (began.mono_ms, limit)).run()
        }
        Err(error) => {
            let mut tally = Tally::new(0);
            tally.misconfigured(unrecorded(&directory, &error));
            sinks.write_line(Level::Error, &unrecorded(&directory, &error));
            sinks.flush(began.mono_ms);
            (tally, began)
        }
    };
    let elapsed_ms = ended.mono_ms.saturating_sub(began.mono_ms);
    let times = Times { began_ms: began.wall_ms, ended_ms: ended.wall_ms, elapsed_ms };
    let status = tally.status();
    let result = serde_json::to_vec(&tally.result(invocation, times)).map_err(std::io::Error::from);
    match result.and_then(|result| directory.with_room(|| directory.replace("result.json", &result))) {
        Ok(()) => {
            directory.give_up_room();
            Ok(status)
        }
        Err(error) => {
            complain(&format!("cannot write {}: {error}", directory.file("result.json")));
            Ok(if status == 0 { exit::NO_RESULT } else { status })
        }
    }
}

/// Writes a message to stderr at once. The runner uses this function before it has created its [`Sinks`], and after it
/// has dropped them.
pub(crate) fn complain(text: &str) {
    use std::io::Write as _;
    // Without a stderr the exit status still shows the failure.
    let _ = writeln!(std::io::stderr(), "perilog-runner: {text}");
}

/// Returns the sentence for a task that ends because the runner cannot write its steps.
pub(crate) fn unrecorded(directory: &Directory, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}; the runner runs no script that it cannot record", directory.file(steps::FILE))
}

fn invocation() -> Result<InvocationId, Refusal> {
    let text = env::var("INVOCATION_ID").map_err(|_| {
        Refusal::new(exit::USAGE, "INVOCATION_ID is not set: only systemd can start the runner, in a unit")
    })?;
    InvocationId::new(&text).map_err(|e| Refusal::new(exit::USAGE, e.to_string()))
}

/// Opens the control socket. Without a socket the task goes on, because an epilog must not fail for that reason:
/// perilog-report reports the missing socket to scripts.
fn open_control(run_dir: &Path, stem: &str, intent: &Intent, sinks: &mut Sinks) -> Option<Control> {
    match Control::open(run_dir, stem, &intent.start) {
        Ok(control) => Some(control),
        Err(error) => {
            let place = run_dir.display();
            let text = format!("cannot open a control socket in {place}: {error}; reports of scripts will not arrive");
            sinks.write_line(Level::Error, &text);
            None
        }
    }
}

/// Checks every script before the first one runs. Returns the scripts with their settings from the plan.
///
/// # Errors
/// A sentence, with which the task ends as `configuration`: there is no script although the plan demands one, the
/// working directory is missing, or a script's user cannot be looked up.
pub(crate) fn prepare(
    intent: &Intent,
    control: Option<&Path>,
    lists: &Lists,
    found: Vec<Script>,
) -> Result<Vec<Planned>, String> {
    let plan = &intent.plan;
    if found.is_empty() && plan.empty == Empty::Fail {
        return Err("there is no script to run, and the action's table says empty = \"fail\"".to_owned());
    }
    if !Path::new(&plan.cwd).is_dir() {
        return Err(format!("working directory {} is missing", plan.cwd));
    }
    let mut identities: BTreeMap<&str, Rc<Identity>> = BTreeMap::new();
    let mut planned = Vec::new();
    for script in found {
        let own = plan.scripts.get(&script.name);
        let name = own.and_then(|own| own.user.as_deref()).unwrap_or(&plan.user);
        let identity = match identities.get(name) {
            Some(identity) => Rc::clone(identity),
            None => {
                let user = users::find(name)?;
                let env = environment::build(intent, &user, control, lists);
                let identity = Rc::new(Identity { user, env });
                identities.insert(name, Rc::clone(&identity));
                identity
            }
        };
        planned.push(Planned {
            identity,
            timeout_ms: own.and_then(|own| own.timeout_ms).or(plan.script_timeout_ms),
            retries: own.and_then(|own| own.retries).unwrap_or(plan.retries),
            tolerable: own.is_some_and(|own| own.tolerable),
            script,
        });
    }
    Ok(planned)
}
