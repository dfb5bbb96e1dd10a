//! The edge's list of all attempts, in pages.

use std::collections::BTreeSet;

use perilog_core::Terms;
use perilog_core::controller::io::{JobPhase, Listed, ListedDrain, Request, SyncPage};

use super::{Load, Of, PendingRequest, Phase, World, hosts_of, site};

/// Number of attempts on a page of the edge's list.
const PAGE: usize = 2;

impl World {
    /// Sends the first of these pages to the controller.
    pub(super) fn send_page(&mut self, load: Load, mut pages: Vec<SyncPage>, refused: BTreeSet<Of>) {
        if !pages.is_empty() {
            let page = pages.remove(0);
            self.asks(PendingRequest::Sync(load, pages, refused), Request::Sync(Box::new(page)));
        }
    }

    /// Builds the pages of the edge's list: all attempts that have hosts, and the drained hosts. Each page has few
    /// attempts, so that most lists have several pages.
    pub(super) fn list(&self) -> Vec<SyncPage> {
        let attempts = self.scheduler.book.jobs.iter().filter(|(_, one)| !one.held.is_empty());
        let listed = attempts.map(|(of, one)| {
            let hosts = one.held.iter().filter_map(|rank| one.hosts.get(rank as usize));
            Listed {
                job: of.0.clone(),
                attempt: of.1,
                userid: Some(1_000),
                ranks: one.held.clone(),
                hosts: hosts_of(hosts),
                // The API's list has no R.
                terms: Terms { r: None, ..Self::terms_of(of, one) },
                phase: match one.phase {
                    Phase::Preparing => JobPhase::Preparing,
                    Phase::Running { .. } => JobPhase::Running,
                    Phase::Ended => JobPhase::Ended,
                },
            }
        });
        let drained =
            (0..self.plan.nodes).map(site::host).filter(|host| self.truth.is_drained_in_its_book(host.as_str()));
        let drains = drained.map(|host| ListedDrain { host, reason: "by an operator or [perilog: 1]".to_owned() });
        let listed: Vec<Listed> = listed.collect();
        let page = |attempts: &[Listed]| SyncPage {
            source: site::source(),
            sync: None,
            continues: true,
            attempts: attempts.to_vec(),
            unfit: Vec::new(),
            drains: Vec::new(),
        };
        let mut pages = vec![SyncPage { drains: drains.collect(), ..page(&[]) }];
        pages.extend(listed.chunks(PAGE).map(page));
        if let Some(last) = pages.last_mut() {
            last.continues = false;
        }
        pages
    }
}
