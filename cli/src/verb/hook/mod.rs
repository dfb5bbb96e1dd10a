//! `perilog hook`: the program that a resource manager (Slurm, Flux) runs as its prolog or epilog.
//!
//! A hook starts no script itself. The hook asks the agent of its node ([`node`]) or the controller ([`job`]) to start
//! the action or attach to it, waits for the end, and exits with the action's status. So a killed hook loses nothing,
//! and a repeated hook doubles nothing: the same (job, attempt, action, rank) is the same task. A hook keeps no state,
//! with one exception: with `--pending`, an epilog's hook of Slurm records its call on disk ([`pending`]).
//!
//! ```text
//!   slurmd     Prolog, Epilog                    slurm-prolog, slurm-epilog          the agent of the node
//!   slurmctld  PrologSlurmctld, EpilogSlurmctld  slurmctld-prolog, slurmctld-epilog  the controller
//!   Flux       [job-manager.prolog], [.epilog]   flux-prolog, flux-epilog            the controller
//!              [job-manager.housekeeping]        flux-housekeeping, flux-wait        the agent of the node
//! ```
//! [`slurm`] and [`flux`] read the resource manager's variables from the environment; [`flux`] also asks flux(1).

mod environment;
mod flux;
mod job;
mod node;
mod pending;
mod slurm;
mod starter;
mod wait;

use clap::Subcommand;
use perilog_core::{ActionName, Span, Tolerance};

use crate::endpoint::{AgentSocket, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::values;

use self::environment::Environment;
use self::node::Manager;
use self::slurm::Side;

/// Run as prolog or epilog of a resource manager
///
/// Starts the action for the job that the environment names, or attaches to it, and waits for its end. If a restarted
/// daemon runs a hook again, the hook attaches and exits with the same status. To set it up, see slurm.md and flux.md
/// in /usr/share/doc/perilog.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    hook: Hook,
}

#[derive(Debug, Subcommand)]
enum Hook {
    /// As Slurm's Prolog, on each node
    #[command(after_help = format!("{NODE}\n\n{ASKED}"))]
    SlurmProlog(OnNode),
    /// As Slurm's Epilog, on each node
    #[command(after_help = format!("{NODE}\n\n{ASKED}\n{NOT_BEGUN}"))]
    SlurmEpilog(OnNode),
    /// As Slurm's PrologSlurmctld: the prolog of all nodes of the job, through the controller
    #[command(after_help = format!("{JOB}\n\n{NOT_ASKED}"))]
    SlurmctldProlog(OfJob),
    /// As Slurm's EpilogSlurmctld: the epilog of all nodes of the job, through the controller
    #[command(after_help = format!("{JOB}\n\n{NOT_ASKED}"))]
    SlurmctldEpilog(OfJob),
    /// As the command of [job-manager.prolog] of Flux, with per-rank = false
    #[command(after_help = format!("{JOB}\n\n{ASKED}"))]
    FluxProlog(OfJob),
    /// As the command of [job-manager.epilog] of Flux, with per-rank = false
    #[command(after_help = format!("{JOB}\n\n{ASKED}"))]
    FluxEpilog(OfJob),
    /// As the command of [job-manager.housekeeping] of Flux, on each node
    #[command(after_help = format!("{NODE}\n\n{ASKED}"))]
    FluxHousekeeping(OnNode),
    /// As the command of [job-manager.housekeeping] of Flux, on each node, where perilog-flux runs the epilogs: waits
    /// for the epilog of this node
    #[command(after_help = WAIT)]
    FluxWait(wait::Args),
}

/// Options of a hook through this node's agent.
#[derive(Debug, Clone, clap::Args)]
struct OnNode {
    /// Run this action instead of the one named like the hook.
    #[arg(long, value_name = "ACTION", value_parser = values::action)]
    action: Option<ActionName>,
    /// How long this hook waits each time that the agent is away.
    #[arg(long, value_name = "TIME", value_parser = values::span, default_value = "2m")]
    patience: Span,
    /// The limit of the task; the node's limit wins if it is smaller. Keep it below the limit of the resource manager.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    timeout: Option<Span>,
    /// Exit with 0 also if checks failed that were marked as tolerable.
    #[arg(long)]
    tolerate: bool,
    /// A program that the agent runs if this hook, or the daemon that runs it, dies: with the argument `begun` as soon
    /// as the agent notices, and with `ended` when the task has ended (PERILOG_OUTCOME, PERILOG_STATUS, PERILOG_REASON
    /// say how). PERILOG_STARTER is the process that ran the hook, as PID:STARTTIME (proc(5)). The agent runs the
    /// program again, after 1/4 s to 1 min, until it exits with 0.
    #[arg(long = "orphaned", value_name = "PROGRAM")]
    orphan_program: Option<std::path::PathBuf>,
    /// For Slurm's hooks: record a running epilog in this directory on disk. If a boot of the node cuts the epilog off,
    /// the next prolog runs the epilog again first.
    #[arg(long, value_name = "DIR")]
    pending: Option<std::path::PathBuf>,
    #[command(flatten)]
    agent: AgentSocket,
}

/// Options of a hook through the controller.
#[derive(Debug, clap::Args)]
struct OfJob {
    /// Run this action instead of `prolog`, or `epilog`.
    #[arg(long, value_name = "ACTION", value_parser = values::action)]
    action: Option<ActionName>,
    /// How long this hook waits each time that the controller is away.
    #[arg(long, value_name = "TIME", value_parser = values::span, default_value = "2m")]
    patience: Span,
    /// The limit of each task; a node's limit wins if it is smaller. Keep it below the limit of the resource manager.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    timeout: Option<Span>,
    /// Number of ranks, or a percentage of them (10%), that may fail named checks. Use the same value for prolog and
    /// epilog.
    #[arg(long, value_name = "N|P%", value_parser = values::tolerance)]
    tolerate: Option<Tolerance>,
}

const NODE: &str = "\
Exit status:
    0  ok, or tolerable with --tolerate
  1-255  the largest status of a script that failed (128 + a signal); where no script has one:
    1  failed, or a check that was marked as tolerable
    2  wrong usage, or the environment is not the resource manager's
    3  ended past its limit
    4  lost: the node rebooted, or the task vanished
    5  the node refused to begin: the action is not configured (agent.toml), too many tasks, /run is full
    6  cancelled
    7  no agent within --patience; scripts that have begun keep running
    8  not permitted, or another error
  130  ended by a second signal; scripts that have begun keep running
For every status but 0, Slurm drains the node. For one of a prolog, Slurm also requeues and holds a batch job \
(without a hold if SchedulerParameters has nohold_on_prolog_fail), and cancels an interactive job. Flux logs the \
status of housekeeping, and this hook drains the rank.";

const WAIT: &str = "Exit status: as of flux-housekeeping; also 3 if the limit has passed, and 130 after SIGTERM. For \
                    every status but 0 this hook drains the rank first, unless the epilog was cancelled, or a signal \
                    ended the hook. The epilog itself continues in every case.";

const ASKED: &str = "After SIGTERM, SIGINT or SIGHUP, the hook asks the scripts to stop (SIGTERM, once), and waits \
                     until they have ended. After SIGKILL of the hook, the scripts keep running.";

const NOT_BEGUN: &str = "An epilog that still waits for its turn is not asked to stop: it runs when its turn comes, \
                         also after PrologEpilogTimeout.";

const NOT_ASKED: &str = "After SIGINT, the hook asks the scripts to stop (SIGTERM, once), and waits until they have \
                         ended. The hook ignores SIGTERM and SIGHUP, because systemd sends them to all processes of \
                         slurmctld.service when slurmctld stops or has died. After SIGKILL of the hook, the scripts \
                         keep running.";

const JOB: &str = "\
Exit status:
    0  ok: the failures of a prolog are within the job's tolerance; after an epilog everything was released
    1  failed        2  wrong usage, or another job of that name        3  ended past its limit
    4  lost          5  a node refused to begin                          6  cancelled
    7  no controller within --patience; scripts that have begun keep running
    8  not permitted, or another error
  130  ended by a second signal; scripts that have begun keep running
Slurm requeues a job (cancels an interactive one) for every status but 0 of PrologSlurmctld, and only logs that of \
EpilogSlurmctld: nodes are drained by the drain command of controller.toml. Flux fails the job for every status but 0 \
of a prolog.";

pub(crate) fn run(args: Args, endpoint: Endpoint, out: Out) -> Result<Exit, Fault> {
    let env = Environment::of_process();
    match args.hook {
        Hook::SlurmProlog(on) => node::run(slurm::node(&env, Side::Prolog, on.action.clone())?, on, Manager::Slurm),
        Hook::SlurmEpilog(on) => node::run(slurm::node(&env, Side::Epilog, on.action.clone())?, on, Manager::Slurm),
        Hook::FluxWait(args) => wait::run(&args, &env),
        Hook::FluxHousekeeping(on) => node::run(flux::node(&env, on.action.clone())?, on, Manager::Flux),
        Hook::SlurmctldProlog(of) => job::prolog(slurm::job(&env, Side::Prolog, of)?, endpoint, out),
        Hook::SlurmctldEpilog(of) => job::epilog(slurm::job(&env, Side::Epilog, of)?, endpoint),
        Hook::FluxProlog(of) => job::prolog(flux::job(&env, of)?, endpoint, out),
        Hook::FluxEpilog(of) => job::epilog(flux::job(&env, of)?, endpoint),
    }
}

/// Parses the name of the action that a hook runs by default, such as `prolog`.
fn named(name: &str) -> Result<ActionName, Fault> {
    ActionName::new(name).map_err(|error| Fault::Usage(error.to_string()))
}
