//! Order of the boots of one host, and the soft reboots between two of them.

use super::BootId;

impl BootId {
    /// Returns `true` if `other` is later than this boot, and every reboot in between was a soft reboot. `ID+N` is the
    /// user space after N soft reboots of the boot `ID` (systemd-soft-reboot.service(8)).
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        self.soft_reboots_until(other).is_some_and(|reboots| reboots > 0)
    }

    /// Returns the number of soft reboots from this boot to `other`. `None`: `other` belongs to another boot of the
    /// kernel, or is earlier.
    #[must_use]
    pub fn soft_reboots_until(&self, other: &Self) -> Option<u32> {
        let ((kernel, soft), (of, later)) = (self.parts(), other.parts());
        later.checked_sub(soft).filter(|_| kernel == of)
    }

    /// Returns the kernel's part of the id, which all boots of one kernel share. An id without a nonce, from an older
    /// agent, gives only a piece of the kernel's part, which no other id has.
    #[must_use]
    pub fn kernel(&self) -> &str {
        let (of, _) = self.parts();
        of.rsplit_once('-').map_or(of, |(kernel, _)| kernel)
    }

    fn parts(&self) -> (&str, u32) {
        match self.as_str().rsplit_once('+') {
            Some((kernel, soft)) => (kernel, soft.parse().unwrap_or(0)),
            None => (self.as_str(), 0),
        }
    }
}
