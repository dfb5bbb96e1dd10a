//! Identity of this node: host, machine, boot.

use std::fs;
use std::path::Path;

use perilog_core::BootRecord;
use perilog_core::ids::{HostName, MachineId};
use perilog_host::process_stat::Stat;

use crate::spool::{Lock, Spool, SpoolError};

/// The reason why this node cannot determine its identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot read {path}: {source}")]
    Read { path: &'static str, source: std::io::Error },
    #[error("{0}")]
    Malformed(#[from] perilog_core::ParseError),
    #[error(transparent)]
    Record(#[from] SpoolError),
    #[error("the kernel's host name {0:?} is not a valid host name; set `host` in agent.toml")]
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

/// Returns the record of the present boot. Writes it, if /run has none of this boot. The caller holds the lock, so two
/// agents never write two.
pub(super) fn boot(spool: &Spool, lock: &Lock) -> Result<BootRecord, IdentityError> {
    let kernel = read("/proc/sys/kernel/random/boot_id")?;
    let pid1 = Stat::of(1).map(|stat| stat.start);
    Ok(spool.boot(&kernel, pid1, lock)?)
}

fn read(path: &'static str) -> Result<String, IdentityError> {
    let text = fs::read_to_string(Path::new(path)).map_err(|source| IdentityError::Read { path, source })?;
    Ok(text.trim().to_owned())
}
