//! Runs the site's program for an orphaned hook (`perilog hook --orphaned`), in a unit of its own. The agent's sandbox
//! must not confine the program, and a restart of the agent must not end it. The unit's name is unique per task, so at
//! most one run per task exists.

use perilog_core::agent::io::HookCall;
use perilog_core::ids::UNIT_PREFIX;
use tokio::process::Command;

use crate::local::status;

/// Property of systemd-run that limits how long the site's program for an orphaned hook may run. The programs for Slurm
/// call scontrol, which gives up after some ten seconds.
const LIMIT: &str = "RuntimeMaxSec=120";

/// Property of systemd-run without which systemd refuses to start a unit while the host shuts down. A script may end
/// then, and the shutdown waits for the program (`farewell`).
const AT_SHUTDOWN: &str = "DefaultDependencies=no";

/// Runs the site's program for an orphaned hook, and waits for its end.
///
/// # Errors
/// A text for people: systemd-run cannot be run, or the program or its unit failed. The agent then runs the program
/// again.
pub(super) async fn run(call: &HookCall) -> Result<(), String> {
    let mut command = Command::new("systemd-run");
    command.args(arguments(call)).stdin(std::process::Stdio::null()).kill_on_drop(true);
    match command.output().await {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            let text = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
            Err(format!("{}{text} (journalctl -u {})", output.status, unit(call)))
        }
        Err(error) => Err(format!("cannot run systemd-run: {error}")),
    }
}

fn unit(call: &HookCall) -> String {
    let name = call.stem.strip_prefix(UNIT_PREFIX).unwrap_or(&call.stem);
    format!("perilog-orphaned-{name}.service")
}

fn arguments(call: &HookCall) -> Vec<String> {
    let mut arguments = vec!["--quiet".to_owned(), "--wait".to_owned(), "--collect".to_owned()];
    arguments.push(format!("--unit={}", unit(call)));
    let job = call.env.get("PERILOG_JOB").map(|job| format!("LogExtraFields=PERILOG_JOB={job}"));
    let properties = [LIMIT.to_owned(), AT_SHUTDOWN.to_owned()];
    arguments.extend(properties.into_iter().chain(job).map(|property| format!("--property={property}")));
    let exit = call.outcome.as_ref().map(|outcome| status(outcome).to_string()).unwrap_or_default();
    let variables = call.env.iter().map(|(name, value)| format!("--setenv={name}={value}"));
    arguments.extend(variables.chain([format!("--setenv=PERILOG_STATUS={exit}")]));
    // systemd-run searches for the program in the agent's sandbox, which has no home directories.
    let program = ["--".to_owned(), "/usr/bin/env".to_owned(), call.program.clone()];
    arguments.extend(program.into_iter().chain([call.event.to_string()]));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use perilog_core::agent::io::HookEvent;
    use perilog_core::outcome::{Failure, Outcome};

    #[test]
    fn a_run_has_the_name_of_its_task_and_the_status_of_its_hook() {
        let call = HookCall {
            task: testing::intent().start.task,
            stem: format!("{UNIT_PREFIX}epilog-5-0-abc"),
            program: "/usr/libexec/perilog/slurm/orphaned".to_owned(),
            event: HookEvent::Ended,
            env: [("PERILOG_JOB".to_owned(), "5".to_owned())].into(),
            outcome: Some(Outcome::Failed { why: Failure::Exit(9) }),
        };
        let arguments = arguments(&call).join(" ");
        for part in [
            "--unit=perilog-orphaned-epilog-5-0-abc.service ",
            " --property=LogExtraFields=PERILOG_JOB=5 ",
            " --setenv=PERILOG_STATUS=9 ",
        ] {
            assert!(arguments.contains(part), "no {part:?} in {arguments}");
        }
        assert!(arguments.ends_with(" -- /usr/bin/env /usr/libexec/perilog/slurm/orphaned ended"), "{arguments}");
    }
}
