//! Stage between the runner and a script of another user: the runner executes itself as `perilog-runner --enter`, which
//! becomes that user and then the script. std can change uid and gid of a child but not its supplementary groups, and
//! code between fork and exec is `unsafe`; a separate process needs neither.
//!
//! ```text
//!   runner                               stage (the runner's child, root)
//!     | Order, as JSON, over its stdin   ->    | owner of the pipes, groups, gid, uid, directory, exec
//!     |    <- end of file: exec succeeded    |
//!     |    <- a sentence: exec failed      | (and exits)
//! ```
//! The stage runs with an empty environment: variables from outside take effect only as the script's user. The stage
//! inherits limits, umask and process group from the runner. The stage enters the directory as the user: on a file
//! system that squashes root, only the user may enter.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use perilog_host::accounts;
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::exit;

/// The runner's order to the stage process, which becomes the script: the user to become, the directory to enter, and
/// the script to execute.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) cwd: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Environment,
}

/// Returns the command that starts a stage process, and the runner's end of the socket to that process. The caller
/// starts the command, then sends the order with [`give`].
pub(crate) fn command() -> io::Result<(Command, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    // The runner's own file, also if a package has replaced the file meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("perilog-runner").arg("--enter").env_clear();
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    Ok((command, ours))
}

/// Sends the order to the stage process. The stage reads the order before anything else, so this call waits at most for
/// the stage's start.
pub(crate) fn give(stage: &mut UnixStream, order: &Order) -> io::Result<()> {
    stage.write_all(&serde_json::to_vec(order)?)?;
    stage.shutdown(Shutdown::Write)
}

/// Runs as the stage process: reads the order, becomes the order's user, and executes the script. Returns only after a
/// failure. The stage sends the reason to the runner, and its exit code shows the failure as a shell does (126 or 127).
pub(crate) fn enter() -> ExitCode {
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::from(exit::NOT_EXECUTABLE);
    };
    let mut socket = UnixStream::from(socket);
    let (why, status) = match prepare(&mut socket) {
        Ok(order) => {
            let error = Command::new(&order.program).args(&order.args).env_clear().envs(&order.env).exec();
            (cannot_execute(&error), exit::of_exec(&error))
        }
        Err(why) => (why, exit::NOT_EXECUTABLE),
    };
    // The runner, if still listening, records the message; stderr belongs to the script.
    let _ = socket.write_all(why.as_bytes());
    ExitCode::from(status)
}

/// Returns a sentence for people: why a script could not be executed. The script's file existed, because the runner
/// just read it. So if a file is missing, it is normally the script's interpreter.
pub(crate) fn cannot_execute(error: &io::Error) -> String {
    let hint =
        if error.kind() == io::ErrorKind::NotFound { " (is the interpreter of its #! line installed?)" } else { "" };
    format!("cannot be executed: {error}{hint}")
}

/// Reads the runner's order, takes the order's user and groups, and enters its working directory. Returns the order.
///
/// # Errors
/// A sentence with the step that failed, for people.
fn prepare(socket: &mut UnixStream) -> Result<Order, String> {
    let order = read(socket).map_err(|e| format!("cannot read the order of the runner: {e}"))?;
    give_output(&order)?;
    take_identity(&order)?;
    std::env::set_current_dir(&order.cwd)
        .map_err(|e| format!("cannot enter the working directory {}: {e}", order.cwd))?;
    Ok(order)
}

fn read(socket: &mut UnixStream) -> io::Result<Order> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes)?;
    let order = serde_json::from_slice(&bytes)?;
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    Ok(order)
}

/// Makes the order's user the owner of the pipes for stdout and stderr. A script that opens `/dev/stderr` opens the
/// pipe anew, and the kernel asks the pipe's owner and mode (0600).
fn give_output(order: &Order) -> Result<(), String> {
    let (uid, gid) = (Some(Uid::from_raw(order.uid)), Some(Gid::from_raw(order.gid)));
    for (name, pipe) in [("stdout", io::stdout().as_fd()), ("stderr", io::stderr().as_fd())] {
        rustix::fs::fchown(pipe, uid, gid).map_err(|e| format!("cannot give its {name} to uid {}: {e}", order.uid))?;
    }
    Ok(())
}

fn take_identity(order: &Order) -> Result<(), String> {
    // setresuid(2) reads the largest id as "leave unchanged": the script would stay root.
    if [order.uid, order.gid].contains(&u32::MAX) || order.groups.contains(&u32::MAX) {
        return Err(format!("no process can have the id {}", u32::MAX));
    }
    let groups: Vec<Gid> = order.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(order.uid), Gid::from_raw(order.gid));
    // The system calls affect one thread; this process has no other thread.
    rustix::thread::set_thread_groups(&groups)
        .map_err(|e| format!("cannot take the groups of uid {}: {e}", order.uid))?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(|e| format!("cannot take gid {}: {e}", order.gid))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(|e| format!("cannot take uid {}: {e}", order.uid))?;
    let (uids, gids) =
        accounts::own_ids().map_err(|e| format!("cannot read the uid and gid of its own process: {e}"))?;
    is_all(order, uids, gids)
}

/// Checks that the process has the ids of the order. `uids` and `gids` are its real, effective and saved ids, as the
/// kernel names them.
///
/// # Errors
/// A sentence with the wanted ids and the present ids.
fn is_all(order: &Order, uids: [u32; 3], gids: [u32; 3]) -> Result<(), String> {
    if uids != [order.uid; 3] || gids != [order.gid; 3] {
        return Err(format!(
            "the process must have uid {} and gid {}, but it has {uids:?} and {gids:?}",
            order.uid, order.gid
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(uid: u32, gid: u32) -> Order {
        Order {
            uid,
            gid,
            groups: Vec::new(),
            cwd: "/".to_owned(),
            program: "/bin/true".into(),
            args: Vec::new(),
            env: Environment::new(),
        }
    }

    /// To setresuid(2), the largest id means "leave unchanged". So the stage must refuse an order with that uid or gid.
    /// Each try runs in a thread of its own, because the system calls change the ids of one thread.
    #[test]
    fn the_id_that_means_as_it_is_becomes_nobody() {
        let take = |uid, gid| std::thread::spawn(move || take_identity(&order(uid, gid))).join().unwrap();
        assert_eq!(take(65534, 65534), Ok(()));
        assert!(take(u32::MAX, 65534).unwrap_err().contains("4294967295"));
        assert!(take(65534, u32::MAX).unwrap_err().contains("4294967295"));
    }

    /// Simulates a kernel that reports success but leaves one id unchanged: in turn each of the real, effective and
    /// saved uid and gid. The stage must refuse to go on.
    #[test]
    fn an_id_that_was_not_dropped_is_refused() {
        let order = order(1000, 100);
        assert_eq!(is_all(&order, [1000; 3], [100; 3]), Ok(()));
        for place in 0..3 {
            let (mut uids, mut gids) = ([1000; 3], [100; 3]);
            (uids[place], gids[place]) = (0, 0);
            for (uids, gids) in [(uids, [100; 3]), ([1000; 3], gids)] {
                let why = is_all(&order, uids, gids).unwrap_err();
                let expect = format!("the process must have uid 1000 and gid 100, but it has {uids:?} and {gids:?}");
                assert_eq!(why, expect);
            }
        }
        assert!(is_all(&order, [100; 3], [1000; 3]).is_err(), "uid and gid changed places");
    }
}
