//! Asks another host for its inventory, over ssh(1): with the site's own permissions, also if no daemon runs there.

use std::time::Duration;

use super::{Inventory, inventory};
use crate::verb::shell;
use crate::{remote, text};

/// Time limit for the answer. On the host, systemctl may wait 10 s, twice.
const LIMIT: Duration = Duration::from_secs(45);

/// Maximum size of the answer in bytes: room for the largest files that [`inventory::MOST_BROUGHT`] permits, and for
/// the others.
const MOST: u64 = 4 * inventory::MOST_BROUGHT;

/// Returns the inventory of `host`, with the contents of its files if `contents` is set. `Err`: a text for people.
pub(in crate::verb) fn ask(host: &str, contents: bool) -> Result<Inventory, String> {
    let command =
        if contents { "perilog --json controller inventory --contents" } else { "perilog --json controller inventory" };
    let arguments =
        ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ControlMaster=no", "-n", "--", host, command];
    let output = shell::ask_for(MOST, LIMIT, remote::SSH, &arguments)?;
    if output.stdout.len() as u64 >= MOST {
        return Err(format!("ssh {host}: its files have more than {MOST} bytes: copy the large ones (scp -p)"));
    }
    serde_json::from_str(&output.stdout).map_err(|_| {
        let last = output.stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no answer");
        format!("ssh {host}: {}", text::line(last))
    })
}
