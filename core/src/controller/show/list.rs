//! Pages of the lists of drains and nodes, in the order of their hosts' names. A list may have as many hosts as the
//! cluster, so a page has a bounded size, and its cost is that of its own rows. A client that reads page after page
//! gets no host twice, and gets every host that stays in the list meanwhile.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::controller::facts::Facts;
use crate::controller::interface::io::{DrainRow, Refusal, Reply};
use crate::controller::interface::view::{DrainView, NodeView, PAGE_BYTES};
use crate::controller::state::Node;
use crate::defect;
use crate::hostlist::HostList;
use crate::ids::HostName;

/// Room (bytes of JSON) that a node takes beside its view: the API adds when its certificate ends.
const CERTIFICATE: usize = 48;

/// Drains that are equal except for their hosts.
struct Alike<'a> {
    first: &'a DrainRow,
    hosts: HostList,
}

/// The room that is left on a page.
struct Room(usize);

impl Room {
    const fn new() -> Self {
        Self(PAGE_BYTES)
    }

    /// Takes `bytes` from the room. Returns `false` if the page lacks the room; a page has room for one entry of any
    /// size.
    fn takes(&mut self, bytes: usize, is_first: bool) -> bool {
        match self.0.checked_sub(bytes) {
            Some(left) => self.0 = left,
            None if is_first => self.0 = 0,
            None if defect!(PageUnbounded) => {}
            None => return false,
        }
        true
    }
}

impl Facts<'_> {
    /// Returns a page of the drains of `targets`, or of all drains, from the host after `after` on. The page is empty
    /// if the list still has the number `known`.
    pub(crate) fn drains_page(
        &self,
        targets: Option<&HostList>,
        after: Option<&HostName>,
        known: Option<u64>,
    ) -> Reply {
        let revision = self.drains.revision();
        if known == Some(revision) {
            return Reply::Drains { drains: Vec::new(), next: None, revision };
        }
        match targets {
            Some(targets) => {
                let hosts = sorted(targets, after);
                self.page_of_drains(hosts.iter().filter_map(|host| self.drains.get(host)), revision)
            }
            None => {
                self.page_of_drains(self.drains.range::<HostName, _>(later(after)).map(|(_, drain)| drain), revision)
            }
        }
    }

    fn page_of_drains<'a>(&self, drains: impl Iterator<Item = &'a DrainRow>, revision: u64) -> Reply {
        let (mut page, mut room): (Vec<Alike<'_>>, _) = (Vec::new(), Room::new());
        let (mut last, mut next) = (None, None);
        for drain in drains {
            // The newest rows are likelier to be alike.
            let alike = page.iter().rposition(|of| are_alike(of.first, drain));
            let alike = if defect!(DrainsUnfolded) { None } else { alike };
            // A name counts whole, though brackets make most of it: so a page looks at a bounded number of hosts.
            let mut bytes = drain.host.as_str().len() + 1;
            if alike.is_none() {
                bytes += size(&DrainView::new(drain, HostList::new()));
            }
            if !room.takes(bytes, page.is_empty()) {
                next = last;
                break;
            }
            last = Some(drain.host.clone());
            let at = alike.unwrap_or(page.len());
            if alike.is_none() {
                page.push(Alike { first: drain, hosts: HostList::new() });
            }
            // The name of a host is a name of a list, and a page is far below the bound of a list.
            let _ = page[at].hosts.push(drain.host.as_str());
        }
        let drains = page.into_iter().map(|of| DrainView::new(of.first, of.hosts)).collect();
        Reply::Drains { drains, next, revision }
    }

    /// Returns a page of the nodes in `targets`, or of all nodes, from the host after `after` on.
    ///
    /// # Errors
    /// `NoSuchNode` for the first page, as of [`Self::node_named`]. A later page leaves out a node that is forgotten.
    pub(crate) fn nodes_page(&self, targets: Option<&HostList>, after: Option<&HostName>) -> Result<Reply, Refusal> {
        let Some(targets) = targets else {
            return Ok(self.page_of_nodes(self.nodes.range(later(after))));
        };
        if after.is_none() {
            targets.iter().try_for_each(|host| self.node_named(host).map(drop))?;
        }
        let hosts = sorted(targets, after);
        Ok(self.page_of_nodes(hosts.iter().filter_map(|host| self.nodes.get(host))))
    }

    fn page_of_nodes<'a>(&self, nodes: impl Iterator<Item = &'a Node>) -> Reply {
        let (mut page, mut room): (Vec<NodeView>, _) = (Vec::new(), Room::new());
        let (mut last, mut next) = (None, None);
        for node in nodes {
            let view = self.show_node(node, false);
            if !room.takes(size(&view) + CERTIFICATE, page.is_empty()) {
                next = last;
                break;
            }
            last = Some(node.row.host.clone());
            page.push(view);
        }
        let held = self.held_among(&page.iter().map(|node| node.host.as_str()).collect());
        let held: BTreeSet<String> = held.into_iter().map(str::to_owned).collect();
        page.iter_mut().for_each(|node| node.held = held.contains(&node.host));
        Reply::Nodes { nodes: page, next }
    }
}

/// Returns `true` if the drains differ in nothing but the host: a list shows them as one row.
fn are_alike(one: &DrainRow, other: &DrainRow) -> bool {
    // Names every field: a new one is not forgotten.
    let DrainRow {
        host: _,
        since_ms,
        reason,
        by,
        confirmed,
        lifted,
        notified,
        stuck,
        again,
        notice_id,
        asked_ms,
        doubtful,
        passing,
    } = other;
    (one.since_ms, one.notice_id, one.asked_ms) == (*since_ms, *notice_id, *asked_ms)
        && (one.by, one.stuck, one.notified, one.doubtful) == (*by, *stuck, *notified, *doubtful)
        && (one.confirmed, one.lifted) == (*confirmed, *lifted)
        && (&one.reason, &one.again, &one.passing) == (reason, again, passing)
}

/// Returns the range of the hosts after `after`; `None`: of all.
fn later(after: Option<&HostName>) -> (Bound<&HostName>, Bound<&HostName>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

/// Returns the hosts of a list after `after`, each once, in the order of all lists.
fn sorted(hosts: &HostList, after: Option<&HostName>) -> BTreeSet<HostName> {
    let hosts = hosts.iter().filter(|host| after.is_none_or(|after| *host > after.as_str()));
    hosts.filter_map(|host| HostName::new(host).ok()).collect()
}

/// Returns the size of an entry of a list in JSON, with the comma behind it.
fn size(entry: &impl serde::Serialize) -> usize {
    serde_json::to_vec(entry).map_or(0, |json| json.len()) + 1
}
