//! Folds received events into the view, and decides nothing. Logs and skips malformed events.

use perilog_core::controller::view::{DrainView, EdgeAttempt};
use perilog_core::{Event as JobEvent, Fluid, HostList, HostName, IdSet};
use serde::Deserialize as _;
use serde_json::Value;

use super::{Event, FIRST_BACKOFF, Fault, Session, open, send};
use crate::plan::view::FluxDrain;
use crate::plan::{Job, View};

impl Session {
    /// Handles one event: updates the view, and asks Flux for more where the event calls for it. Returns the fault if
    /// the session must end; `None`: the session goes on.
    pub(super) fn fold(&mut self, event: Event) -> Option<Fault> {
        match event {
            Event::Journal(reply) => {
                if journal(&mut self.view, &reply) {
                    self.ask_housekeeping();
                }
            }
            Event::Housekeeping(reported) => {
                self.housekeeping(&reported);
                self.is_caught_up = true;
                tracing::info!("Flux's journal is read, jobs: {}", self.view.jobs.len());
            }
            Event::Resource(reply) => {
                lifted(&mut self.view, &reply);
                self.ask_status();
            }
            Event::Status(reply) => {
                self.status_asked = false;
                let were_up = self.view.up.clone();
                status(&mut self.view, &reply);
                if self.view.up != were_up {
                    self.query_again();
                }
                if std::mem::take(&mut self.status_outdated) {
                    self.ask_status();
                }
            }
            Event::Online(reply) => self.view.online = idset(&reply["members"]),
            Event::Lost(error) => return Some(error.into()),
            // An event of an abandoned connection, which precedes the next connection's list.
            Event::Synced { .. } | Event::Feed(_) | Event::Away(_) if self.link.is_none() => {}
            Event::Synced { is_first, reported } => self.synced(is_first, &reported),
            Event::Feed(reply) => {
                let is_current = feed(&mut self.view, &reply);
                if self.syncs_again() {
                    return None;
                }
                if is_current && !self.view.is_current {
                    tracing::info!("follows perilog's controller, attempts: {}", self.view.attempts.len());
                    self.link_backoff = FIRST_BACKOFF;
                    self.why.clear();
                }
                self.view.is_current |= is_current;
            }
            Event::Away(why) => self.away(&why),
            Event::Done(answers) => answers.into_iter().for_each(|(action, outcome)| self.done(&action, outcome)),
        }
        None
    }

    /// Requests `resource.status`, because a resource of Flux has changed.
    fn ask_status(&mut self) {
        if std::mem::replace(&mut self.status_asked, true) {
            self.status_outdated = true;
            return;
        }
        let (broker, sender) = (self.broker.clone(), self.sender.clone());
        tokio::spawn(async move {
            let event = match broker.rpc("resource.status", &serde_json::json!({}), 0).await {
                Ok(status) => Event::Status(status),
                Err(error) => Event::Lost(error),
            };
            let _ = sender.send(event).await;
        });
    }

    pub(super) fn key_is_done(&mut self, action: &crate::plan::Action) {
        let key = send::key(action);
        self.in_flight.remove(&key);
        self.delayed.remove(&key);
    }
}

/// Updates the view by a reply of `job-manager.events-journal`. Returns `true` if this reply ends the backlog.
pub(super) fn journal(view: &mut View, reply: &Value) -> bool {
    // The sentinel is -1, which some versions encode as the largest id.
    let Some(id) = reply["id"].as_u64().filter(|id| *id != u64::MAX) else { return true };
    let job = view.jobs.entry(id).or_insert_with(|| Job::new(id));
    if let Some(jobspec) = object(&reply["jobspec"]) {
        job.externals = view.site.externals_of(&jobspec);
        if let Some(wrong) = job.set_jobspec(&jobspec) {
            tracing::warn!(job = %Fluid(id), "{}: the terms of this job are ignored: {wrong}", Fluid(id));
        }
    }
    for event in reply["events"].as_array().into_iter().flatten() {
        match JobEvent::deserialize(event) {
            Ok(event) => job.take(&event),
            Err(error) => {
                tracing::warn!(job = %Fluid(id), "{}: an event of its eventlog is skipped: {error}", Fluid(id));
            }
        }
    }
    if let Some(r) = object(&reply["R"]) {
        job.set_r(&r);
    }
    view.settle(id);
    false
}

/// Returns the value itself if it is an object, and the JSON in its text if it is a string; `None`: it is something
/// else, or the text is no JSON.
fn object(value: &Value) -> Option<Value> {
    match value {
        Value::Object(_) => Some(value.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// Updates the view's ranks, online ranks and drains from an answer to `resource.status`.
pub(super) fn status(view: &mut View, status: &Value) {
    open::ranks(view, status);
    view.up = idset(&status["online"]);
    view.flux_drains.clear();
    for (ranks, drain) in status["drain"].as_object().into_iter().flatten() {
        let ranks: IdSet = ranks.parse().unwrap_or_default();
        let reason = drain["reason"].as_str().unwrap_or_default().to_owned();
        let hosts = view.ranks.iter().filter(|(_, rank)| ranks.contains(**rank));
        let drains: Vec<_> = hosts.map(|(host, _)| (host.clone(), FluxDrain { reason: reason.clone() })).collect();
        view.flux_drains.extend(drains);
    }
}

/// Updates, from events of `resource.journal`, the set of hosts whose newest drain event is an undrain.
fn lifted(view: &mut View, reply: &Value) {
    for event in reply["events"].as_array().into_iter().flatten() {
        let ranks = idset(&event["context"]["idset"]);
        let named: HostList =
            event["context"]["nodelist"].as_str().and_then(|list| list.parse().ok()).unwrap_or_default();
        let by_rank = view.ranks.iter().filter(|(_, rank)| ranks.contains(**rank)).map(|(host, _)| host.clone());
        let hosts: Vec<HostName> = match named.is_empty() {
            true => by_rank.collect(),
            false => named.iter().filter_map(|host| HostName::new(host).ok()).collect(),
        };
        match event["name"].as_str() {
            Some("undrain") => view.flux_lifted.extend(hosts),
            Some("drain") => view.flux_lifted.retain(|host| !hosts.contains(host)),
            _ => {}
        }
    }
}

/// Updates the view's attempts and drains by a reply of the controller's feed. Returns `true` if the reply says that
/// the view is current. Keeps a reply that is part of a change until the change is complete.
pub(super) fn feed(view: &mut View, reply: &Value) -> bool {
    let is_complete = reply["current"] == true;
    // Nothing is decided before the view is current: the first list, which may be long, needs no second place.
    if !is_complete && (view.is_current || reply["drains"].is_array()) {
        view.half.push(reply.clone());
        return false;
    }
    if is_complete {
        let mut half = std::mem::take(&mut view.half);
        half.push(reply.clone());
        half.iter().for_each(|reply| attempts(view, reply));
        drains(view, &half);
    } else {
        attempts(view, reply);
    }
    is_complete
}

/// Replaces the view's drains if these replies, together a change, list the drains.
fn drains(view: &mut View, replies: &[Value]) {
    let lists: Vec<&Vec<Value>> = replies.iter().filter_map(|reply| reply["drains"].as_array()).collect();
    if !lists.is_empty() {
        let rows = lists.into_iter().flatten().filter_map(|row| DrainView::deserialize(row).ok());
        view.drains = rows.flat_map(DrainView::rows).map(|drain| (drain.host.clone(), drain)).collect();
    }
}

/// Updates the view's attempts by a reply of the controller's feed.
fn attempts(view: &mut View, reply: &Value) {
    for attempt in reply["attempts"].as_array().into_iter().flatten() {
        match EdgeAttempt::deserialize(attempt) {
            Ok(attempt) => {
                let id = (attempt.job.clone(), attempt.attempt);
                let known = attempt.job.as_str().parse::<Fluid>().ok().filter(|of| view.jobs.contains_key(&of.0));
                // An attempt that Flux has forgotten and perilog has released is complete on both sides.
                if attempt.complete && known.is_none() {
                    view.attempts.remove(&id);
                } else {
                    view.attempts.insert(id, attempt);
                    known.into_iter().for_each(|of| view.settle(of.0));
                }
            }
            Err(error) => tracing::warn!("an attempt that the controller reports is skipped: {error}"),
        }
    }
}

fn idset(value: &Value) -> IdSet {
    value.as_str().and_then(|ids| ids.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use perilog_core::Attempt;

    use super::*;
    use crate::broker::wire::{Kind, Message};
    use crate::plan::view::Site;

    /// A recorded session of Flux 0.88.0 (tests/fixtures/README.md).
    const RECORDED: &str = include_str!("../../tests/fixtures/session-0.88.0.txt");

    fn recorded() -> impl Iterator<Item = (bool, Vec<u8>)> {
        RECORDED.lines().map(|line| {
            let (way, hex) = line.split_once(' ').unwrap();
            let digits = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
            (way == ">", digits.collect())
        })
    }

    #[test]
    fn recorded_messages_are_read_and_written_to_the_byte() {
        for (is_ours, bytes) in recorded() {
            let message = Message::decode(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
            assert_eq!(is_ours, matches!(message.kind, Kind::Request { .. }), "{message:?}");
            assert_eq!(message.encode(), bytes, "{message:?}");
        }
    }

    /// Feeds the replies of a recorded session to the functions that update the view. Checks the job after each reply,
    /// from the journal's backlog to the job's end, and the drains at last.
    #[test]
    fn a_recorded_job_is_folded() {
        let mut view = View::new(Site::default());
        let mut seen = Vec::new();
        for (_, bytes) in recorded().filter(|(is_ours, _)| !is_ours) {
            let message = Message::decode(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
            let payload = message.payload.as_deref().unwrap_or_default();
            let reply = serde_json::from_slice(payload).unwrap_or(Value::Null);
            match message.topic.as_str() {
                "resource.status" => status(&mut view, &reply),
                "job-manager.events-journal" => {
                    let is_end = journal(&mut view, &reply);
                    let job = view.jobs.values().next();
                    let held = job.map(|job| (job.prolog.is_open(), job.epilog.is_open(), job.is_gone(0.0)));
                    if is_end || seen.last() != Some(&(false, held)) {
                        seen.push((is_end, held));
                    }
                    if is_end {
                        let job = job.unwrap();
                        let held = job.held().unwrap();
                        assert_eq!((held.r.hosts().to_string(), job.userid), ("vm".to_owned(), Some(0)));
                        assert_eq!(job.terms.tolerate.map(|count| count.to_string()), Some("1".to_owned()));
                        assert_eq!(held.attempt, Attempt::of_alloc(1795444657.5656674).unwrap());
                    }
                }
                _ => {}
            }
        }
        let states = [
            (false, Some((true, false, true))),
            (true, Some((true, false, true))),
            // Flux has started the job: tasks may live.
            (false, Some((false, false, false))),
            (false, Some((false, true, false))),
            (false, Some((false, true, true))),
            (false, Some((false, false, true))),
            (false, None),
        ];
        assert_eq!(seen, states);
        let drains: Vec<_> = view.flux_drains.values().map(|drain| drain.reason.as_str()).collect();
        assert_eq!(drains, ["perilog: bad memory [perilog:4]"]);
    }

    /// The controller lists drains in pages; the view has all of them, or those of before, and no verdict without them.
    #[test]
    fn a_change_in_pages_counts_when_it_is_complete() {
        let mut view = View::new(Site::default());
        let attempt = serde_json::json!({"job": "f1", "attempt": "0", "ranks": "0", "hosts": "n0", "open": true,
            "hold": "0", "released": "", "complete": false, "abandoned": false, "actions": [], "milestones": []});
        let drain = |hosts: &str| {
            serde_json::json!({"hosts": hosts, "since_ms": 1, "reason": "x", "by": null, "confirmed": false,
                "lifted": false, "notice_id": 7})
        };
        let page = |attempts: &[&Value], drains: Option<&str>, current: bool| {
            let mut page = serde_json::json!({"attempts": attempts, "current": current});
            if let Some(hosts) = drains {
                page["drains"] = serde_json::json!([drain(hosts)]);
            }
            page
        };
        let seen = |view: &View| (view.attempts.len(), view.drains.len());
        assert!(!feed(&mut view, &page(&[], Some("n[0-3]"), false)));
        assert!(feed(&mut view, &page(&[], Some("n9"), true)));
        assert_eq!(seen(&view), (0, 5));
        assert!(view.drains.values().all(|drain| drain.notice_id == 7));
        view.is_current = true;
        assert!(!feed(&mut view, &page(&[&attempt], None, false)));
        assert!(!feed(&mut view, &page(&[], Some("n1"), false)));
        assert_eq!(seen(&view), (0, 5));
        assert!(feed(&mut view, &page(&[], Some("n2"), true)));
        assert_eq!((seen(&view), view.half.len()), ((1, 2), 0));
        // Without a list of drains they stay; an empty one lifts all.
        assert!(feed(&mut view, &page(&[], None, true)));
        assert_eq!(seen(&view), (1, 2));
        assert!(feed(&mut view, &serde_json::json!({"attempts": [], "drains": [], "current": true})));
        assert_eq!(seen(&view), (1, 0));
    }

    #[test]
    fn the_last_entry_of_fluxs_own_log_shows_who_lifted_a_drain() {
        let mut view = View::new(Site::default());
        let context = |hosts: &str| serde_json::json!({"idset": "0", "nodelist": hosts});
        for (name, hosts, expect) in [
            ("drain", "n[0-1]", 0),
            ("undrain", "n0", 1),
            ("undrain", "n1", 2),
            ("drain", "n0", 1),
            ("online", "n0", 1),
        ] {
            lifted(
                &mut view,
                &serde_json::json!({"events": [{"timestamp": 1.0, "name": name, "context": context(hosts)}]}),
            );
            assert_eq!(view.flux_lifted.len(), expect, "{name} {hosts}");
        }
    }
}
