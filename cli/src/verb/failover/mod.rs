//! Controller on two hosts (`[failover]`): the parts of the controller that each host has for itself, and the
//! comparison of two hosts. All that lies on the file system that moves is on one host at a time, and is not compared.
//!
//! | module | holds |
//! |---|---|
//! | `inventory` | `perilog controller inventory`: the parts on this host |
//! | `peer` | the inventory of another host, asked over ssh |
//! | `compare` | differences between two hosts |

mod compare;
pub(in crate::verb) mod inventory;
mod peer;

use std::net::IpAddr;
use std::path::Path;

use perilog_core::{HostList, HostName};
use toml::Table;

pub(in crate::verb) use compare::{Difference, between, same_ids};
#[cfg(test)]
pub(in crate::verb) use inventory::Access;
pub(in crate::verb) use inventory::{Inventory, Text};
pub(in crate::verb) use peer::ask;

use super::doctor::config;
use super::own_name;

/// User of the controller's unit.
pub(in crate::verb) const USER: &str = "perilog";

/// Returns the hosts of `[failover]`; `None`: the controller has one host.
pub(in crate::verb) fn hosts(config: &Table) -> Option<HostList> {
    config::text(config, &["failover", "hosts"])?.parse().ok()
}

/// Returns the directory on which the active host mounts the store's file system; `None`: the controller has one host.
pub(in crate::verb) fn mount(config: &Table) -> Option<&Path> {
    hosts(config)?;
    let mount = config::text(config, &["failover", "mount"]).map(Path::new);
    mount.or_else(|| Path::new(config::text(config, &["store"])?).parent())
}

/// Returns `true` if a file system is mounted on `mount`, as the controller decides it.
pub(in crate::verb) fn is_mounted(mount: &Path) -> bool {
    perilog_host::mount::is_mounted(mount).unwrap_or(false)
}

/// Returns the first of a certificate's names by which nodes find the controller on either host: a name of none of the
/// `hosts`. Addresses do not count, because an address does not tell whether it moves.
pub(in crate::verb) fn moving_name<'n>(hosts: &HostList, names: &'n [String]) -> Option<&'n str> {
    let is_name = |name: &&String| HostName::new(name).is_ok() && name.parse::<IpAddr>().is_err();
    names.iter().filter(is_name).map(String::as_str).find(|name| hosts.listed(name).is_none())
}

/// Returns the text of where else the controller may run, if this is one of its hosts; for error messages of verbs that
/// find no controller here.
pub(crate) fn elsewhere() -> Option<String> {
    let role = super::doctor::Role::Controller;
    let config = config::printed(role, &role.file())?;
    perilog_core::elsewhere(&hosts(&config)?, &own_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_its_whole_name_or_its_first_label() {
        let hosts: HostList = "ctl0.hpc,ctl1".parse().unwrap();
        for (own, expected) in
            [("ctl0", Some("ctl0.hpc")), ("CTL1.hpc", Some("ctl1")), ("ctl1", Some("ctl1")), ("ctl", None)]
        {
            assert_eq!(hosts.listed(own), expected, "{own}");
        }
    }

    #[test]
    fn a_name_that_moves_is_the_name_of_no_host() {
        let hosts: HostList = "ctl[0-1]".parse().unwrap();
        for (names, expected) in [
            (vec!["ctl", "ctl0", "ctl1"], Some("ctl")),
            (vec!["ctl0.hpc", "ctl1", "10.77.0.200", "*.hpc", "ctl.hpc", "ctl"], Some("ctl.hpc")),
            (vec!["CTL0", "ctl1", "10.77.0.200", "fd00::1"], None),
            (vec![], None),
        ] {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            assert_eq!(moving_name(&hosts, &names), expected, "{names:?}");
        }
    }

    #[test]
    fn the_mount_is_the_stores_directory_unless_it_is_named() {
        let mount = |text: &str| super::mount(&text.parse().unwrap()).map(|path| path.display().to_string());
        assert_eq!(mount("store = '/var/lib/perilog/controller.db'"), None);
        let two = "store = '/var/lib/perilog/controller.db'\n[failover]\nhosts = 'ctl[0-1]'\n";
        assert_eq!(mount(two).as_deref(), Some("/var/lib/perilog"));
        assert_eq!(mount(&format!("{two}mount = '/srv'")).as_deref(), Some("/srv"));
    }
}
