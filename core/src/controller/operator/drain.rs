//! `drain` and `undrain`: decides whether an operator's request to drain hosts, or to lift their drains, is carried
//! out.

use crate::agent::io::Level;
use crate::controller::context::Context;
use crate::controller::giveback::drain::{Cause, Drains, Fault, MAX_REASON, Told};
use crate::controller::io::{DrainRow, Now, Refusal, Reply};
use crate::controller::node::Nodes;
use crate::hostlist::HostList;
use crate::ids::HostName;

/// Time (ms) for which a new reason of a drain counts as unseen: an operator who types `undrain` this soon cannot have
/// read the reason.
const UNSEEN_MS: u64 = 1_000;

impl Drains {
    /// Drains hosts by an operator's request. Returns the number of hosts that were not drained before.
    ///
    /// # Errors
    /// The reason is empty, or without `force` a host is unknown: its agent has never connected, and it has no drain.
    pub(crate) fn drain_by_hand(
        &mut self,
        hosts: &HostList,
        reason: &str,
        force: bool,
        uid: u32,
        nodes: &Nodes,
        cx: &mut Context,
    ) -> Result<Reply, Refusal> {
        if reason.trim().is_empty() {
            return Err(Refusal::Invalid("drain needs a reason".to_owned()));
        }
        let reason: String = reason.trim().chars().take(MAX_REASON).collect();
        if !force {
            nodes.check_known(hosts, self, "nothing was drained; to drain such hosts too:")?;
        }
        let (list, hosts) = (hosts, names(hosts)?);
        let mut count = 0;
        for host in hosts {
            let cause = Cause { reason: reason.clone(), by: Some(uid), fault: Fault::Other };
            count += u64::from(self.drain(&host, cause, cx) == Told::First);
        }
        cx.note(Level::Warning, None, None, format!("uid {uid} drained {list}: {reason}"));
        Ok(Reply::Reached { tasks: count })
    }

    /// Lifts the drains of all `hosts`; after an error, no drain is lifted. With `forget`, the drain hook gets no
    /// notice. An operator sets `forget` for example for a host that the resource manager does not know.
    ///
    /// # Errors
    /// A host is not drained, its drain is lifted already and `forget` is not set, or the operator cannot have read the
    /// newest reason yet ([`UNSEEN_MS`]).
    pub(crate) fn undrain(
        &mut self,
        hosts: &HostList,
        forget: bool,
        uid: u32,
        nodes: &Nodes,
        cx: &mut Context,
    ) -> Result<Reply, Refusal> {
        let (list, hosts) = (hosts, names(hosts)?);
        for host in &hosts {
            match self.get(host) {
                None => {
                    let meant =
                        if nodes.contains_key(host) { String::new() } else { nodes.did_you_mean(host.as_str()) };
                    return Err(Refusal::Conflict(format!("{host} is not drained{meant}")));
                }
                Some(drain) if drain.lifted && !forget => {
                    let text = format!(
                        "the drain of {host} is lifted, and the drain hook has not carried that out; to drop it \
                         without the hook: --forget"
                    );
                    return Err(Refusal::Conflict(text));
                }
                Some(drain) => {
                    // The operator may have read the reason in the resource manager, which has it from the drain hook
                    // or the edge.
                    let is_told = drain.confirmed && (forget || self.hook);
                    if let Some(reason) = unseen(drain, cx.now).filter(|_| !is_told) {
                        let text = format!(
                            "{host} was drained again within the last second, and nothing was lifted: {reason}; to \
                             lift that too, ask again"
                        );
                        return Err(Refusal::Conflict(text));
                    }
                }
            }
        }
        for host in &hosts {
            if forget {
                self.in_force(host, cx);
                self.remove(host, cx);
            } else {
                self.lift(host, cx);
            }
        }
        let without = if forget { ", without the drain hook" } else { "" };
        cx.note(Level::Warning, None, None, format!("uid {uid} lifted the drain of {list}{without}"));
        Ok(Reply::Reached { tasks: hosts.len() as u64 })
    }
}

/// Returns the later reason of a drain ([`DrainRow::again`]) if the controller added that reason within the last
/// [`UNSEEN_MS`].
fn unseen(drain: &DrainRow, now: Now) -> Option<&str> {
    let fault = drain.again.as_ref().filter(|again| again.by.is_none() && !drain.lifted)?;
    (now.wall_ms.abs_diff(fault.at_ms) < UNSEEN_MS).then_some(&fault.reason)
}

fn names(hosts: &HostList) -> Result<Vec<HostName>, Refusal> {
    hosts.iter().map(|host| HostName::new(host).map_err(|error| Refusal::Invalid(error.to_string()))).collect()
}
