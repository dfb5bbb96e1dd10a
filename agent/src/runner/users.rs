//! User of a script.
//!
//! Root needs no lookup, as in systemd: uid and gid 0, home /root, no supplementary groups. So a task of root depends
//! on no directory service. Other users come from NSS (files, LDAP, sssd), with groups as login(1) sets them. A service
//! that does not answer costs a bounded time, not the task's limit.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use perilog_core::task::Plan;
use perilog_host::accounts::{self, Account};

use crate::second;

/// Longest wait for the look-up of a user. sssd gives up on a dead server after some seconds; a slower answer will not
/// come.
const LOOKUP: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Gids of all groups, including the primary group.
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
    pub(crate) shell: String,
}

impl User {
    pub(crate) fn root() -> Self {
        Self {
            name: "root".to_owned(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            home: "/root".to_owned(),
            shell: "/bin/sh".to_owned(),
        }
    }
}

/// Returns `true` if the plan has users other than root, which NSS has to look up.
pub(crate) fn need_lookup(plan: &Plan) -> bool {
    let own = plan.scripts.values().filter_map(|script| script.user.as_deref());
    own.chain([plan.user.as_str()]).any(|name| !is_root(name))
}

fn is_root(name: &str) -> bool {
    name == "root" || name == "0"
}

/// Returns the user of a name, or of a uid written as a number.
///
/// # Errors
/// A sentence for the result's `configuration`: there is no such user, the look-up cannot begin or fails, no answer
/// comes within [`LOOKUP`], or this build of the runner can look up no users.
pub(crate) fn find(name: &str) -> Result<User, String> {
    if is_root(name) {
        return Ok(User::root());
    }
    if !second::HAS_NAME_SERVICE {
        return Err(format!("cannot look up user `{name}`: {} is not installed beside this runner", second::NAME));
    }
    let (answer, answered) = mpsc::sync_channel(1);
    let asked = name.to_owned();
    // The runner never joins the thread: a thread that NSS blocks for ever ends with the process.
    thread::Builder::new()
        .name("nss".to_owned())
        .spawn(move || answer.send(accounts::account(&asked)))
        .map_err(|e| format!("cannot look up user `{name}`: {e}"))?;
    match answered.recv_timeout(LOOKUP) {
        Ok(account) => user(account.map_err(|e| e.to_string())?),
        Err(_) => Err(format!("cannot look up user `{name}`: no answer within {}s", LOOKUP.as_secs())),
    }
}

fn user(account: Account) -> Result<User, String> {
    let name = account.name;
    let text =
        |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| format!("user `{name}`: {path:?} is not UTF-8"));
    let shell = match text(&account.shell)? {
        // A script that calls $SHELL wants a shell; `nologin` only forbids the user to log in.
        shell if shell.is_empty() || shell.ends_with("/nologin") || shell.ends_with("/false") => "/bin/sh".to_owned(),
        shell => shell,
    };
    Ok(User { uid: account.uid, gid: account.gid, groups: account.groups, home: text(&account.home)?, shell, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_needs_no_lookup_and_nobody_has_a_shell() {
        assert_eq!(find("root"), Ok(User::root()));
        assert_eq!(find("0"), Ok(User::root()));
        let nobody = find("nobody").unwrap();
        assert_eq!((nobody.name.as_str(), nobody.shell.as_str()), ("nobody", "/bin/sh"));
        assert!(nobody.groups.contains(&nobody.gid));
        assert_eq!(find("no-such-user-here").unwrap_err(), "there is no user `no-such-user-here` on this host");
    }
}
