//! Services that run external actions: they report in parts, twice, with contradictions, late, and die. A service
//! decides when its work is done; the controller gets the reports, and `truth::services` checks the controller's
//! conclusions.

use std::collections::{BTreeMap, BTreeSet};

use perilog_core::controller::io::{ActionStart, Refusal, Reply, Report, ReportKind, Request, RunRequest};
use perilog_core::{Attempt, IdSet, ResourceName, Targets};

use super::World;
use super::event::Event;
use super::site;

/// Maximum number of requests that a service makes before it falls silent.
const TURNS: u64 = 6;

#[derive(Debug)]
pub(crate) struct Service {
    start: Box<ActionStart>,
    /// Attempt and ranks of the external action; `None`: the controller has not answered the start, or no
    /// longer knows the action.
    mine: Option<(Attempt, IdSet)>,
    /// Client number of the service's last request, by which the world finds the service of a reply.
    asked: u64,
    turns: u64,
    last: Option<Box<Report>>,
}

impl World {
    pub(crate) fn serve(&mut self, job: u8, nodes: Option<(usize, usize)>, resources: bool, lease_ms: u64) {
        let run = RunRequest {
            job: site::job(job),
            attempt: None,
            action: site::action(site::SERVED),
            nodes: nodes.map(|(first, count)| self.hosts(first, count)),
            targets: None,
            userid: None,
            env: BTreeMap::new(),
            timeout_ms: None,
            known: false,
        };
        let resources = if resources { site::rabbits() } else { BTreeSet::new() };
        let start = Box::new(ActionStart { run, resources, lease_ms });
        let turns = self.dice.range(1, TURNS);
        self.services.push(Service { start, mine: None, asked: 0, turns, last: None });
        self.service_turn(self.services.len() - 1);
    }

    /// Makes the next request of the service with this index: the start of its action, or a report. Does nothing if the
    /// service has made all its requests, or if faults have stopped.
    pub(crate) fn service_turn(&mut self, index: usize) {
        let Some(service) = self.services.get(index).filter(|service| service.turns > 0 && !self.quiet) else { return };
        let lease_ms = service.start.lease_ms;
        let request = match service.mine.clone() {
            None => Request::ActionStart(service.start.clone()),
            Some((attempt, ranks)) => self.next_report(index, attempt, &ranks),
        };
        let clients = self.controllers[0].clients + 1;
        if let Some(service) = self.services.get_mut(index) {
            service.asked = clients;
            service.turns -= 1;
            if let Request::ActionReport(report) = &request {
                service.last = Some(report.clone());
            }
        }
        self.ask(0, request);
        // Most reports come in time.
        let delay = if self.dice.one_in(6) {
            lease_ms + self.dice.range(1, lease_ms)
        } else {
            self.dice.range(1, lease_ms / 2)
        };
        self.after(delay, Event::Service { index });
    }

    fn next_report(&mut self, index: usize, attempt: Attempt, ranks: &IdSet) -> Request {
        let service = &self.services[index];
        let (job, action) = (service.start.run.job.clone(), service.start.run.action.clone());
        let resources = service.start.resources.clone();
        if let Some(last) = service.last.clone().filter(|_| self.dice.one_in(4)) {
            return Request::ActionReport(last);
        }
        let kind = match self.dice.below(8) {
            0 => ReportKind::Renew,
            1 => ReportKind::Tolerable { check: None, message: "slow".to_owned() },
            2 => ReportKind::Failed { check: None, message: "no space".to_owned() },
            _ => ReportKind::Ok,
        };
        let (targets, resources) = if self.services[index].turns == 1 || self.dice.one_in(5) {
            (None, None)
        } else {
            let some: IdSet = ranks.iter().filter(|_| self.dice.one_in(2)).collect();
            let named: BTreeSet<ResourceName> = resources.into_iter().filter(|_| self.dice.one_in(2)).collect();
            (Some(Targets::Ranks(some)), Some(named))
        };
        Request::ActionReport(Box::new(Report { job, attempt: Some(attempt), action, targets, resources, kind }))
    }

    /// Handles an answer to a service. If the controller does not know the action, the service starts the action again.
    pub(crate) fn service_receives(&mut self, client: u64, reply: &Result<Reply, Refusal>) {
        let Some(service) = self.services.iter_mut().find(|service| service.asked == client) else { return };
        match reply {
            Ok(Reply::Running { attempt, ranks, .. }) => service.mine = Some((*attempt, ranks.clone())),
            Err(Refusal::NoSuchAction(_) | Refusal::NoSuchJob(_) | Refusal::NoSuchAttempt(_)) => service.mine = None,
            _ => {}
        }
    }
}
