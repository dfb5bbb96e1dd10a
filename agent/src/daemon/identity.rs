//! Identity of this node: host, machine, boot.

use std::fs;
use std::path::Path;

use perilog_core::ids::{BootId, HostName, MachineId};

/// The reason why this node cannot determine its identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot read {path}: {source}")]
    Read { path: &'static str, source: std::io::Error },
    #[error("{0}")]
    Malformed(#[from] perilog_core::ParseError),
    #[error("the kernel's host name {0:?} is no host name; set `host` in agent.toml")]
    HostName(String),
}

/// Returns the configured host name, or the kernel's host name (uname(2)).
pub(super) fn host(configured: Option<&HostName>) -> Result<HostName, IdentityError> {
    match configured {
        Some(host) => Ok(host.clone()),
        None => {
            let uname = rustix::system::uname();
            let name = uname.nodename().to_string_lossy();
            HostName::new(&name).map_err(|_| IdentityError::HostName(name.into_owned()))
        }
    }
}

/// Returns the machine id of machine-id(5).
pub(super) fn machine() -> Result<MachineId, IdentityError> {
    Ok(MachineId::new(&read("/etc/machine-id")?)?)
}

/// Returns the kernel's boot id. If systemd counts restarts of user space, appends their number (`+N`).
pub(super) fn boot(soft_reboots: Option<u32>) -> Result<BootId, IdentityError> {
    let id = read("/proc/sys/kernel/random/boot_id")?;
    Ok(BootId::new(&match soft_reboots {
        None | Some(0) => id,
        Some(count) => format!("{id}+{count}"),
    })?)
}

fn read(path: &'static str) -> Result<String, IdentityError> {
    let text = fs::read_to_string(Path::new(path)).map_err(|source| IdentityError::Read { path, source })?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_reboot_is_another_boot() {
        let (hard, soft) = (boot(None).unwrap(), boot(Some(2)).unwrap());
        assert_eq!(boot(Some(0)).unwrap(), hard);
        assert_eq!(soft.as_str(), format!("{hard}+2"));
    }
}
