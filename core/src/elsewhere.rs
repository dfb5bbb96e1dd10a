//! Text for a host that may run the controller, and does not run it now: where the controller may be.

use crate::HostList;

/// Returns the text that sends an operator from the host `own` to the other `hosts` of the controller; `None`: there is
/// no other.
pub fn elsewhere(hosts: &HostList, own: &str) -> Option<String> {
    let own = hosts.listed(own);
    let others: Vec<&str> = hosts.iter().filter(|host| Some(*host) != own).collect();
    let first = others.first()?;
    Some(format!(
        "by [failover], the controller runs on this host or on {}. To ask it there: perilog -H {first} COMMAND. If it \
         runs on none of them: crm_mon -1",
        others.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_hosts_are_named() {
        let of = |hosts: &str, own: &str| elsewhere(&hosts.parse().unwrap(), own);
        let text = of("ctl[0-1]", "ctl1.hpc").unwrap();
        assert!(text.contains("this host or on ctl0. To ask it there: perilog -H ctl0 COMMAND"), "{text}");
        assert!(of("ctl[0-2]", "ctl1").unwrap().contains("on ctl0, ctl2. To ask it there: perilog -H ctl0"));
        assert_eq!(of("ctl0", "ctl0"), None);
    }
}
