//! Record of a node's boot: distinguishes a boot from the earlier ones where the kernel does not. A container that
//! restarts keeps the kernel's boot id, and so does a soft reboot.
//!
//! ```text
//!   kernel's boot id  +  start time of PID 1  +  /run       another one of the three: another boot
//!   boot id = KERNEL-NONCE[+SOFT]                           the nonce lives in /run, as the record does
//! ```
//!
//! PID 1 keeps its start time when it executes itself again (daemon-reexec, and also a soft reboot, which systemd
//! counts).

use serde::{Deserialize, Serialize};

use crate::defect;
use crate::ids::BootId;
use crate::parse::ParseError;

/// The contents of `/run/perilog/boot.json`: the boot in which the agent wrote the file. The first agent of a boot
/// writes it; later agents of the boot only read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRecord {
    /// The kernel's boot id.
    pub kernel: String,
    /// Start time of PID 1 (`/proc/1/stat`, field 22). `None`: /proc hides PID 1 from the agent (`hidepid`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid1: Option<u64>,
    /// Random name of the boot. `None`: the boot began under an agent of a version without these records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

impl BootRecord {
    /// Returns `true` if the record is of the boot with this boot id of the kernel and this start time of PID 1. A
    /// start time that is not known, in the record or now (`None`), counts as equal.
    pub fn is_of(&self, kernel: &str, pid1: Option<u64>) -> bool {
        let same_pid1 = self.pid1.zip(pid1).is_none_or(|(before, now)| before == now);
        self.kernel == kernel && same_pid1
    }

    /// Returns the id of this boot after `soft` soft reboots.
    ///
    /// # Errors
    /// [`ParseError`] if the kernel's boot id or the nonce is longer than an id has room for, or has other characters.
    pub fn boot_id(&self, soft: u32) -> Result<BootId, ParseError> {
        let mut id = self.kernel.clone();
        if defect!(KernelIsTheBoot) {
        } else if let Some(nonce) = &self.nonce {
            id = format!("{id}-{nonce}");
        }
        if soft > 0 {
            id = format!("{id}+{soft}");
        }
        BootId::new(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "6e2f6a30-3f0f-4a0c-9c4b-0f1e2d3c4b5a";
    const NONCE: &str = "0123456789abcdef";

    fn record(pid1: Option<u64>, nonce: Option<&str>) -> BootRecord {
        BootRecord { kernel: KERNEL.to_owned(), pid1, nonce: nonce.map(str::to_owned) }
    }

    #[test]
    fn another_kernel_or_another_pid_1_is_another_boot() {
        let known = record(Some(7), Some(NONCE));
        for (kernel, pid1, same) in [
            (KERNEL, Some(7), true),
            (KERNEL, Some(8), false),
            ("another", Some(7), false),
            // A PID 1 that the agent cannot see proves nothing.
            (KERNEL, None, true),
            ("another", None, false),
        ] {
            assert_eq!(known.is_of(kernel, pid1), same, "{kernel} {pid1:?}");
        }
        assert!(record(None, Some(NONCE)).is_of(KERNEL, Some(8)));
    }

    #[test]
    fn the_longest_parts_fit_the_id_and_soft_reboots_are_counted() {
        let (new, old) = (record(Some(7), Some(NONCE)), record(Some(7), None));
        let id = |record: &BootRecord, soft| record.boot_id(soft).unwrap();
        assert_eq!(id(&new, 0).as_str(), format!("{KERNEL}-{NONCE}"));
        assert_eq!(id(&new, u32::MAX).as_str().len(), 64);
        assert_eq!(id(&new, 1).soft_reboots_until(&id(&new, 3)), Some(2));
        // The form of earlier versions, so that what is alive in an upgrade stays alive.
        assert_eq!((id(&old, 0).as_str(), id(&old, 2).as_str()), (KERNEL, &*format!("{KERNEL}+2")));
        assert_eq!(id(&old, 0).soft_reboots_until(&id(&new, 1)), None);
    }
}
