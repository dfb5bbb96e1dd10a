//! Keeps the drains of Flux and perilog alike. The edge makes Flux show the drains of perilog's list, and then confirms
//! them to perilog. If a person lifts such a drain in Flux, the edge lifts it in perilog. The reason of a drain by
//! perilog ends with the number of perilog's notice, `[perilog:NUMBER]`. This mark distinguishes perilog's drains from
//! drains by people, and an old drain from a new one.
//!
//! | perilog | Flux | then |
//! |---|---|---|
//! | drained, not confirmed | not drained, or drained by perilog for an older notice | `resource.drain` |
//! | | drained for this notice, or by a person | confirm |
//! | drained, confirmed | not drained, and its log has an undrain | lift in perilog: a person undrained |
//! | | not drained, and its log has no undrain | `resource.drain`: Flux has forgotten it |
//! | lifted | drained by perilog | `resource.undrain` |
//! | | not drained, or drained by a person | confirm |
//!
//! A drain for the cleanup after a job that Flux has lost waits for its confirmation until Flux counts the host as
//! online again: tasks of the job may live until then.

use perilog_core::controller::io::{DrainRow, Passing};
use perilog_core::{HostList, HostName};

use super::action::Action;
use super::job::Allocated;
use super::view::View;
use super::{Due, Step};

/// Time (ms) for which the edge waits for other brokers after a start of rank 0, although the patience of a job may be
/// over: systemd starts a broker again after half a minute (`RestartSec=30s` of flux.service), and it joins in seconds.
const REJOIN_MS: u64 = 60_000;

pub(super) fn plan(view: &View, now_ms: u64, due: &mut Due) {
    for drain in view.drains.values() {
        if let Some(step) = step(view, drain, now_ms) {
            due.add(step);
        }
    }
}

fn step(view: &View, drain: &DrainRow, now_ms: u64) -> Option<Step> {
    if drain.doubtful {
        // The grace of a restore has not decided yet about this drain.
        return None;
    }
    let host = drain.host.clone();
    // The host is not in this instance: Flux runs nothing there.
    let is_ours = view.ranks.contains_key(&host);
    let standing = view.flux_drains.get(&host);
    let reported =
        || Some(Step::Do(Action::Notified { host: host.clone(), notice_id: drain.notice_id, lifted: drain.lifted }));
    let ours = standing.and_then(|standing| notice_id(&standing.reason));
    match (drain.lifted, standing) {
        (true, Some(_)) if ours.is_some() => Some(Step::Do(Action::Undrain { host })),
        (true, _) => reported(),
        (false, _) if !is_ours => (!drain.confirmed).then(reported).flatten(),
        (false, None) if drain.confirmed && view.flux_lifted.contains(&host) => {
            Some(Step::Do(Action::Lifted { host, notice_id: drain.notice_id }))
        }
        (false, None) => Some(Step::Do(Action::Drain { host, reason: reason(drain), overwrite: false })),
        (false, Some(_)) if drain.confirmed => None,
        (false, Some(_)) if ours.is_some_and(|ours| ours != drain.notice_id) => {
            Some(Step::Do(Action::Drain { host, reason: reason(drain), overwrite: true }))
        }
        (false, Some(_)) if matches!(drain.passing, Some(Passing::Cleaning { .. })) && !is_up(view, &host) => {
            let until = until(view, drain.asked_ms);
            // Flux itself waits without a limit for what lives on a node whose broker is online.
            let is_late = now_ms >= until && !is_online(view, &host);
            if is_late { reported() } else { Some(Step::WaitUntil(until)).filter(|_| now_ms < until) }
        }
        (false, Some(_)) => reported(),
    }
}

fn is_online(view: &View, host: &HostName) -> bool {
    view.ranks.get(host).is_some_and(|rank| view.online.contains(*rank))
}

fn is_up(view: &View, host: &HostName) -> bool {
    is_online(view, host) && view.ranks.get(host).is_some_and(|rank| view.up.contains(*rank))
}

fn reason(drain: &DrainRow) -> String {
    format!("perilog: {} [perilog:{}]", drain.newest().reason, drain.notice_id)
}

/// Returns the number of perilog's notice in the reason of a drain. `None`: the reason has no number, because a person,
/// Flux or a hook made the drain, or the edge made it for an absent broker.
pub(super) fn notice_id(reason: &str) -> Option<u64> {
    reason.rsplit_once("[perilog:")?.1.strip_suffix(']')?.parse().ok()
}

/// Returns `true` if Flux has not yet confirmed the drain of one of these hosts.
pub(super) fn are_awaited(view: &View, hosts: &HostList) -> bool {
    hosts.iter().filter_map(|host| HostName::new(host).ok()).any(|host| view.is_draining(&host))
}

/// Returns the time (ms since 1970) at which the site's patience is over, counted from `since_ms`. After a restart of
/// rank 0 the brokers of other nodes have at least [`REJOIN_MS`] to join anew.
pub(super) fn until(view: &View, since_ms: u64) -> u64 {
    let (patience, started_ms) = (view.site.online_patience_ms, (view.starttime * 1000.0) as u64);
    since_ms.saturating_add(patience).max(started_ms.saturating_add(patience.min(REJOIN_MS)))
}

/// Returns the next step of a job that is to go on with `then` when its hosts are online. `away`: the job's hosts that
/// are offline; if there are none, returns `then`. Otherwise returns a wait until the site's patience, counted from
/// `since_ms`, is over; after that the drain of one of these hosts, and `then` once no host is left to drain.
pub(super) fn when_online(
    view: &View,
    of: &Allocated<'_>,
    away: &[HostName],
    since_ms: u64,
    now_ms: u64,
    then: Step,
) -> Step {
    if away.is_empty() {
        return then;
    }
    let until = until(view, since_ms);
    if now_ms < until {
        return Step::WaitUntil(until);
    }
    match away.iter().find(|host| !view.flux_drains.contains_key(*host) && view.ranks.contains_key(*host)) {
        Some(host) => {
            let reason = format!("perilog: its broker is not online (job {})", of.job);
            Step::Do(Action::Drain { host: host.clone(), reason, overwrite: false })
        }
        None => then,
    }
}
