//! Second build of the runner, to which the first build passes a task whose scripts have other users than root.
//!
//! | program | linked | looks up users |
//! |---|---|---|
//! | `perilog-runner` | statically, against musl: it begins in half the time (docs/performance.md) | no |
//! | [`NAME`], beside it | against the host's libc | by NSS: files, LDAP, sssd |
//!
//! NSS modules belong to one libc, so a static program cannot load the modules of the host. A package may have only one
//! runner, which is linked against the host's libc and does everything itself.
//!
//! ```text
//!   perilog-runner: intent --root only--> handlers of signals, claim, scripts
//!                     `-- other users --> exec perilog-runner-nss: intent, handlers of signals, claim, scripts
//! ```

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use perilog_core::task::Plan;

use crate::exit::{NO_TASK, Refusal};
use crate::users;

/// File name of the runner that is linked against the host's libc, beside the static one.
pub(crate) const NAME: &str = "perilog-runner-nss";

/// Whether this build can look up users as the host does.
pub(crate) const HAS_NAME_SERVICE: bool = cfg!(not(target_env = "musl"));

/// Becomes the second build ([`NAME`]) if the plan has users to look up and a package has that build. Returns if this
/// build runs the task itself. The caller has neither the claim nor handlers of signals: a signal that came before
/// ends the process, and none is lost.
///
/// # Errors
/// The second build is there and cannot be executed.
pub(crate) fn pass_on(plan: &Plan) -> Result<(), Refusal> {
    if !users::need_lookup(plan) {
        return Ok(());
    }
    let Ok(own) = env::current_exe() else { return Ok(()) };
    let second = own.with_file_name(NAME);
    if own == second || !second.exists() {
        return Ok(());
    }
    let error = Command::new(&second).arg0("perilog-runner").args(env::args_os().skip(1)).exec();
    Err(Refusal::new(NO_TASK, format!("{}, which looks up users, cannot be executed: {error}", second.display())))
}
