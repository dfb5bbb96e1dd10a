//! Errors as an operator reads them: what happened, where, and the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use perilog_core::JobId;

use crate::endpoint::Daemon;
use crate::exit::Exit;
use crate::text;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("no {} at {} ({source}); see whether {} runs: systemctl status {}", daemon.as_str(), path.display(),
            daemon.unit(), daemon.unit())]
    NoDaemon { daemon: Daemon, path: PathBuf, source: io::Error },

    #[error("no controller at {} ({source}): this host has an agent and no controller. Type the command on the \
             controller's host; commands for this host are perilog doctor and systemctl status 'perilog-task-*'",
            path.display())]
    OnNode { path: PathBuf, source: io::Error },

    /// The controller has several hosts, and this is one of them. `elsewhere`: where it may run.
    #[error("no controller at {} ({source}): {elsewhere}", path.display())]
    Passive { path: PathBuf, source: io::Error, elsewhere: String },

    #[error("no permission to open {} ({source}): be root, or a member of the group that the {}'s configuration names",
            path.display(), daemon.as_str())]
    NotLetIn { daemon: Daemon, path: PathBuf, source: io::Error },

    #[error("the {} went away before it answered ({why}); repeat the command, or see journalctl -u {}",
            daemon.as_str(), daemon.unit())]
    WentAway { daemon: Daemon, why: String },

    #[error("the {} did not answer within {}s; see systemctl status {}", daemon.as_str(), limit.as_secs(),
            daemon.unit())]
    NoAnswer { daemon: Daemon, limit: Duration },

    /// The error `Busy` of either daemon: the daemon has as many clients as it admits.
    #[error("the {} is busy: {}", daemon.as_str(), text::line(text))]
    Busy { daemon: Daemon, text: String },

    /// The error `io.perilog.Controller.Refused`: the controller refused the request. That interface defines `code`.
    #[error("{}", text::line(text))]
    Refused { code: String, text: String },

    /// The controller knew this job before an operator restored its store, or before the store was lost.
    #[error(
        "the controller's store no longer has {job}, because the store was restored from a backup, or lost (see \
         perilog controller recover); perilog job add adds {job} again"
    )]
    Vanished { job: JobId },

    /// The error `io.perilog.Agent.Refused`: the agent refused the request.
    #[error("this node refuses: {}", text::line(text))]
    RefusedByNode { text: String },

    #[error("not permitted: {}", text::line(text))]
    NotPermitted { text: String },

    #[error("the {} does not know {}, because its version is not that of this perilog; upgrade the older of the two",
            daemon.as_str(), text::line(what))]
    Unsupported { daemon: Daemon, what: String },

    #[error("perilog cannot read the {}'s answer: {}; if their versions differ, upgrade the older one",
            daemon.as_str(), text::line(why))]
    Malformed { daemon: Daemon, why: String },

    #[error("the {} answered with an error: {}", daemon.as_str(), text::line(what))]
    Remote { daemon: Daemon, what: String },

    /// A contradictory or malformed request, found before the verb asked a daemon.
    #[error("{0}")]
    Usage(String),

    /// Something that the command line names does not exist, for example an attempt: the verb saw that in the
    /// controller's answer.
    #[error("{0}")]
    NotFound(String),

    /// The awaited event has not come within the time limit.
    #[error("{0}")]
    Late(String),

    #[error("{what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },

    #[error("cannot run ssh ({source}), which -H needs; install openssh-client")]
    NoSsh { source: io::Error },

    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),

    #[error("{0}")]
    Other(String),

    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),

    /// The reader of the output is gone: the program ends quietly.
    #[error("the reader of the output is gone")]
    PipeClosed,
}

impl Fault {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NoDaemon { .. }
            | Self::Passive { .. }
            | Self::OnNode { .. }
            | Self::WentAway { .. }
            | Self::NoAnswer { .. } => Exit::NoDaemon,
            Self::Refused { code, .. } if code.starts_with("no-such-") => Exit::NotFound,
            Self::Refused { code, .. } if code != INVALID => Exit::NotNow,
            Self::NotFound(_) => Exit::NotFound,
            Self::Refused { .. } | Self::Usage(_) => Exit::Usage,
            Self::RefusedByNode { .. } => Exit::Refused,
            Self::Late(_) => Exit::StillRunning,
            Self::PipeClosed => Exit::PipeClosed,
            Self::NoSsh { .. } => Exit::NoHost,
            _ => Exit::Other,
        }
    }

    /// Returns `true` if a repeated request may succeed later, for example because the daemon is only away.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Self::NoDaemon { .. }
            | Self::Passive { .. }
            | Self::OnNode { .. }
            | Self::WentAway { .. }
            | Self::NoAnswer { .. }
            | Self::NotLetIn { .. }
            | Self::Busy { .. }
            | Self::Vanished { .. } => true,
            Self::Refused { code, .. } => code == UNAVAILABLE,
            _ => false,
        }
    }

    /// Returns the message of a command that waits for the controller until this absence ([`Self::is_absence`]) ends.
    pub(crate) fn waiting(&self) -> String {
        match self {
            Self::Vanished { job } => format!("{self}. This command waits until the controller has {job} again"),
            Self::WentAway { daemon, why } => {
                format!("the {} went away ({}); this command waits until it is back", daemon.as_str(), text::line(why))
            }
            Self::Refused { .. } | Self::Busy { .. } | Self::NotLetIn { .. } => {
                format!("{self}; this command tries again")
            }
            _ => format!("{self}; this command waits until the controller is back"),
        }
    }

    /// Returns `true` if the controller answered that it does not know the job, or the attempt.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if [NO_SUCH_JOB, NO_SUCH_ATTEMPT].contains(&code.as_str()))
    }

    pub(crate) fn is_closed_attempt(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == ATTEMPT_CLOSED)
    }
}

const INVALID: &str = "invalid";
const UNAVAILABLE: &str = "unavailable";
const ATTEMPT_CLOSED: &str = "attempt-closed";
const NO_SUCH_JOB: &str = "no-such-job";
const NO_SUCH_ATTEMPT: &str = "no-such-attempt";

impl From<io::Error> for Fault {
    /// Converts an error of writing to standard output. A closed pipe becomes [`Fault::PipeClosed`].
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::PipeClosed } else { Self::Output(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_say_what_where_and_what_to_do() {
        let refused = |code: &str| Fault::Refused { code: code.to_owned(), text: "no job f1\u{1b}[31m".to_owned() };
        #[rustfmt::skip]
        let table = [
            (Fault::NoDaemon { daemon: Daemon::Controller, path: "/run/perilog/controller.sock".into(),
                              source: io::Error::from_raw_os_error(2) }, 7, true,
             "no controller at /run/perilog/controller.sock (No such file or directory (os error 2)); see whether \
              perilog-controller runs: systemctl status perilog-controller"),
            (Fault::OnNode { path: "/c.sock".into(), source: io::Error::from_raw_os_error(2) }, 7, true,
             "no controller at /c.sock (No such file or directory (os error 2)): this host has an agent and no \
              controller. Type the command on the controller's host; commands for this host are perilog doctor and \
              systemctl status 'perilog-task-*'"),
            (Fault::NotLetIn { daemon: Daemon::Agent, path: "/a.sock".into(),
                              source: io::Error::from_raw_os_error(13) }, 8, true,
             "no permission to open /a.sock (Permission denied (os error 13)): be root, or a member of the group that \
              the agent's configuration names"),
            (refused("no-such-job"), 9, false, "no job f1\\u{1b}[31m"),
            (Fault::Busy { daemon: Daemon::Controller, text: "9 clients wait already".to_owned() }, 8, true,
             "the controller is busy: 9 clients wait already"),
            (refused("no-such-node"), 9, false, "no job f1\\u{1b}[31m"),
            (refused("conflict"), 10, false, "no job f1\\u{1b}[31m"),
            (refused("invalid"), 2, false, "no job f1\\u{1b}[31m"),
            (refused("unavailable"), 10, true, "no job f1\\u{1b}[31m"),
            (Fault::RefusedByNode { text: "too many tasks".to_owned() }, 5, false, "this node refuses: too many tasks"),
            (Fault::from(io::Error::from(io::ErrorKind::BrokenPipe)), 141, false, "the reader of the output is gone"),
        ];
        for (fault, code, absence, text) in table {
            assert_eq!((fault.exit().code(), fault.is_absence(), fault.to_string().as_str()), (code, absence, text));
        }
    }

    /// Regression test: after every kind of absence, a command that waits said "waits until the controller is back",
    /// also if the controller answered, and after "repeat the command".
    #[test]
    fn a_waiting_command_says_for_what_it_waits() {
        let vanished = Fault::Vanished { job: JobId::new("f1").unwrap() };
        assert!(vanished.waiting().ends_with(" again. This command waits until the controller has f1 again"));
        let away = Fault::WentAway { daemon: Daemon::Controller, why: "connection closed".to_owned() };
        assert_eq!(away.waiting(), "the controller went away (connection closed); this command waits until it is back");
        let refused = Fault::Refused { code: UNAVAILABLE.to_owned(), text: "not yet".to_owned() };
        assert_eq!(refused.waiting(), "not yet; this command tries again");
        let silent = Fault::NoAnswer { daemon: Daemon::Controller, limit: Duration::from_secs(9) };
        assert!(silent.waiting().ends_with("; this command waits until the controller is back"));
    }
}
