//! Nodes by their hosts. Each message of a node looks up its node some five times, among those of a large cluster: a
//! map of names in order compares some sixteen names for that, each in memory of its own. So the nodes are found by the
//! hash of their name, and the names are kept in order beside them. A walk has that order: equal inputs give equal
//! outputs.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::RangeBounds;

use crate::controller::state::node::Node;
use crate::ids::HostName;

/// All nodes, each with the name of its host.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ByHost {
    names: BTreeSet<HostName>,
    nodes: HashMap<HostName, Box<Node>>,
}

impl ByHost {
    pub(crate) fn get<Q>(&self, host: &Q) -> Option<&Node>
    where
        HostName: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.nodes.get(host).map(|node| &**node)
    }

    pub(crate) fn get_mut<Q>(&mut self, host: &Q) -> Option<&mut Node>
    where
        HostName: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.nodes.get_mut(host).map(|node| &mut **node)
    }

    pub(crate) fn contains_key<Q>(&self, host: &Q) -> bool
    where
        HostName: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.nodes.contains_key(host)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the names of all hosts, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &HostName> {
        self.names.iter()
    }

    /// Returns all nodes, in the order of their hosts.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Node> {
        self.names.iter().filter_map(|host| self.get(host))
    }

    /// Returns the nodes of a range of hosts, in order.
    pub(crate) fn range(&self, hosts: impl RangeBounds<HostName>) -> impl Iterator<Item = &Node> {
        self.names.range(hosts).filter_map(|host| self.get(host))
    }

    /// Returns the node of a host; adds it if there is none.
    pub(crate) fn get_or_insert_with(&mut self, host: &HostName, new: impl FnOnce() -> Node) -> &mut Node {
        if !self.nodes.contains_key(host) {
            self.names.insert(host.clone());
        }
        self.nodes.entry(host.clone()).or_insert_with(|| Box::new(new()))
    }

    pub(crate) fn remove(&mut self, host: &HostName) -> Option<Node> {
        self.names.remove(host);
        self.nodes.remove(host).map(|node| *node)
    }
}
