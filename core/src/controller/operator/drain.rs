//! `drain` and `undrain`: decides whether an operator's request to drain hosts, or to lift their drains, is carried
//! out.

use std::collections::BTreeSet;

use crate::agent::io::Level;
use crate::controller::interface::io::{Client, DrainRow, Now, Refusal};
use crate::controller::state::Nodes;
use crate::controller::state::context::Context;
use crate::controller::state::drain_order::{Act, DrainOrder};
use crate::controller::state::drains::{Cause, DrainChange, Drains, Fault, MAX_REASON};
use crate::defect;
use crate::hostlist::HostList;
use crate::ids::HostName;
use crate::output;

/// Time (ms) for which, without a drain hook, a later reason of a drain counts as unseen: an operator who types
/// `undrain` this soon cannot have read the reason.
const UNSEEN_MS: u64 = 1_000;

impl Drains {
    /// Checks an operator's request to drain hosts.
    ///
    /// # Errors
    /// The reason is empty; or a name is no host name; or without `force` a host is unknown: its agent has never
    /// connected, and it has no drain.
    pub(crate) fn drain_for_operator(
        &self,
        by: (Client, u32),
        hosts: &HostList,
        reason: &str,
        force: bool,
        nodes: &Nodes,
        now: Now,
    ) -> Result<DrainOrder, Refusal> {
        if reason.trim().is_empty() {
            return Err(Refusal::Invalid("drain needs a reason".to_owned()));
        }
        let reason = output::beginning(reason.trim(), MAX_REASON);
        if !force {
            nodes.check_known(hosts, self, "nothing was drained; to drain hosts before their first connection, add")?;
        }
        Ok(DrainOrder::new(by, Act::Drain { reason }, hosts, names(hosts)?, now))
    }

    /// Checks a request to lift the drains of those of `hosts` that have one; after an error, no drain is lifted. With
    /// `forget`, the drain hook gets no notice, also of a drain that is lifted already. An operator sets `forget` for
    /// example for a host that the resource manager does not know. With `notice_id`, lifts only a drain whose newest
    /// notice has this number.
    ///
    /// # Errors
    /// A name is no host name; or a host has no drain and is unknown; or its drain has another notice than `notice_id`;
    /// or the operator cannot have read the newest reason yet ([`Self::check_seen`]).
    pub(crate) fn undrain(
        &self,
        by: (Client, u32),
        list: &HostList,
        forget: bool,
        notice_id: Option<u64>,
        nodes: &Nodes,
        now: Now,
    ) -> Result<DrainOrder, Refusal> {
        let hosts: BTreeSet<HostName> = names(list)?.into_iter().collect();
        for host in &hosts {
            match self.get(host) {
                None if nodes.contains_key(host) => {}
                None => {
                    let meant = nodes.did_you_mean(host.as_str());
                    let text =
                        format!("no host {host} is drained, and no node has that name; nothing was undrained{meant}");
                    return Err(Refusal::NoSuchNode(text));
                }
                Some(drain) if drain.lifted && !forget => {}
                Some(drain) if notice_id.is_some_and(|notice_id| notice_id != drain.notice_id) => {
                    let text = format!("nothing was undrained: {host} was drained again ({})", drain.newest().reason);
                    return Err(Refusal::Conflict(text));
                }
                Some(drain) => self.check_seen(drain, forget, now)?,
            }
        }
        Ok(DrainOrder::new(by, Act::Undrain { forget, notice_id }, list, hosts, now))
    }

    /// Carries an order out for as many of its hosts as the batch may still change. Returns the hosts of an undrain
    /// that this batch has dealt with, drained or not; none for an order to drain.
    pub(crate) fn carry_out(&mut self, order: &mut DrainOrder, cx: &mut Context) -> Vec<HostName> {
        let count = usize::try_from(cx.quota.left()).unwrap_or(usize::MAX).min(order.hosts.len());
        cx.quota.spend(count as u64);
        let part: Vec<HostName> = order.hosts.drain(..count).collect();
        match order.act.clone() {
            Act::Drain { reason } => {
                for host in &part {
                    let cause = Cause { reason: reason.clone(), by: Some(order.uid), fault: Fault::Other };
                    match self.drain_at(host, cause, order.at_ms, cx) {
                        DrainChange::New => order.done += 1,
                        DrainChange::ReasonAdded | DrainChange::Unchanged => order.already.push(host.clone()),
                    }
                }
                if order.is_done() {
                    let (uid, list) = (order.uid, &order.asked);
                    cx.note(Level::Warning, None, None, format!("uid {uid} drained {list}: {reason}"));
                }
                Vec::new()
            }
            Act::Undrain { forget, notice_id } => {
                self.lift_part(order, &part, forget, notice_id, cx);
                part
            }
        }
    }

    fn lift_part(
        &mut self,
        order: &mut DrainOrder,
        part: &[HostName],
        forget: bool,
        notice_id: Option<u64>,
        cx: &mut Context,
    ) {
        let mut lifts = Vec::new();
        for host in part {
            match self.get(host) {
                None => order.already.push(host.clone()),
                Some(drain) if drain.lifted && !forget => order.lifting.push(host.clone()),
                // The host was drained again since the request was checked, in an earlier batch: that drain stays.
                Some(drain) if notice_id.is_some_and(|notice_id| notice_id != drain.notice_id) => {}
                Some(drain) if self.check_seen(drain, forget, cx.now).is_err() => {}
                Some(_) => lifts.push(host),
            }
        }
        for host in &lifts {
            if forget {
                self.in_force(host, cx);
                self.remove(host, cx);
            } else {
                self.lift(host, cx);
            }
        }
        if !lifts.is_empty() {
            let list = HostList::sorted(lifts.iter().map(|host| host.as_str()));
            let without = if forget { ", without the drain hook" } else { "" };
            cx.note(Level::Warning, None, None, format!("uid {} undrained {list}{without}", order.uid));
        }
        order.done += lifts.len() as u64;
    }

    /// Checks that the operator can have read the newest reason of the drain, which the controller may have found a
    /// moment ago. With a drain hook, an operator can have read it once the hook has carried out its notice: a lift
    /// before that would release ranks at fault of which the resource manager never learns. Without a hook, once
    /// [`UNSEEN_MS`] have passed. With `forget`, the operator drops a drain that no hook carries out.
    fn check_seen(&self, drain: &DrainRow, forget: bool, now: Now) -> Result<(), Refusal> {
        let newest = drain.newest();
        if defect!(UndrainUnseen) {
            return Ok(());
        }
        if forget || drain.lifted || newest.by.is_some() {
            return Ok(());
        }
        let (host, reason) = (&drain.host, &newest.reason);
        if self.hook && !drain.confirmed {
            return Err(Refusal::Conflict(format!(
                "nothing was undrained: the drain hook is still draining {host} ({reason}). Repeat when `perilog \
                 drain` shows {host} as drained, or skip the hook: perilog undrain {host} --forget"
            )));
        }
        let is_young = drain.again.is_some() && now.wall_ms.abs_diff(newest.at_ms) < UNSEEN_MS;
        if !self.hook && is_young {
            return Err(Refusal::Conflict(format!(
                "nothing was undrained: {host} was drained again within the last second ({reason}). To undrain it all \
                 the same, repeat the command"
            )));
        }
        Ok(())
    }
}

fn names(hosts: &HostList) -> Result<Vec<HostName>, Refusal> {
    hosts.iter().map(|host| HostName::new(host).map_err(|error| Refusal::Invalid(error.to_string()))).collect()
}
