//! Layout: which host each rank of an attempt has, as in R (RFC 20).

use std::sync::Arc;

use crate::hostlist::HostList;
use crate::ids::{HostName, Rank};
use crate::idset::{IdSet, Positions};
use crate::targets::Targets;

/// The hosts of an attempt in rank order. Clones share the data. A look-up of a rank or host does not walk the whole
/// layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    ranks: IdSet,
    hosts: HostList,
    positions: Positions,
    /// Indices into `hosts`, sorted by the names of the hosts.
    by_name: Vec<u32>,
}

impl Layout {
    /// Creates a layout; `hosts` has the host of each rank, in rank order.
    ///
    /// # Errors
    /// A text for the requester: a host occurs twice, a name is no host name, or `hosts` and `ranks` differ in number.
    pub fn new(ranks: IdSet, hosts: HostList) -> Result<Self, String> {
        if ranks.len() != hosts.len() as u64 {
            return Err(format!("{} ranks but {} hosts", ranks.len(), hosts.len()));
        }
        if let Some(twice) = hosts.first_duplicate() {
            return Err(format!("host {twice} is named twice"));
        }
        if let Some(e) = hosts.iter().find_map(|h| HostName::new(h).err()) {
            return Err(e.to_string());
        }
        let mut by_name: Vec<u32> = (0..).take(hosts.len()).collect();
        by_name.sort_unstable_by_key(|at| hosts.get(*at as usize));
        Ok(Self(Arc::new(Inner { positions: Positions::of(&ranks), ranks, hosts, by_name })))
    }

    /// Creates the layout of ranks 0, 1, 2 and so on, one for each host.
    ///
    /// # Errors
    /// A text for the requester: `hosts` is empty or too long, names a host twice, or has a name that is no host name.
    pub fn counted(hosts: HostList) -> Result<Self, String> {
        let mut ranks = IdSet::new();
        match u32::try_from(hosts.len()) {
            Ok(0) => return Err("no hosts".to_owned()),
            Ok(n) => ranks.insert_range(0, n - 1),
            Err(_) => return Err("more than 2^32 hosts".to_owned()),
        }
        Self::new(ranks, hosts)
    }

    pub fn ranks(&self) -> &IdSet {
        &self.0.ranks
    }

    /// Returns the hosts in rank order.
    pub fn hosts(&self) -> &HostList {
        &self.0.hosts
    }

    /// Returns the host of a rank; `None`: the rank is outside the layout.
    pub fn host(&self, rank: Rank) -> Option<HostName> {
        self.name(rank).and_then(|host| HostName::new(host).ok())
    }

    /// Returns the name of a rank's host, for a look-up; `None`: the rank is outside the layout.
    pub(crate) fn name(&self, rank: Rank) -> Option<&str> {
        let position = usize::try_from(self.0.positions.position(rank.0)?).ok()?;
        self.hosts().get(position)
    }

    /// Returns the rank of a host; `None`: the host is outside the layout.
    pub fn rank(&self, host: &str) -> Option<u32> {
        let named = |at: &u32| self.hosts().get(*at as usize);
        let found = self.0.by_name.binary_search_by(|at| named(at).cmp(&Some(host))).ok()?;
        self.0.by_name.get(found).and_then(|at| self.0.positions.id(u64::from(*at)))
    }

    /// Returns the hosts of the given ranks, in rank order. Ignores ranks outside the layout.
    pub fn hosts_of(&self, ranks: &IdSet) -> HostList {
        if ranks == self.ranks() {
            return self.hosts().clone();
        }
        self.hosts().select(&self.0.positions.select(ranks))
    }

    /// Returns the given ranks with their hosts, in rank order. Ignores ranks outside the layout.
    pub fn pairs(&self, ranks: &IdSet) -> impl Iterator<Item = (Rank, &str)> {
        let ranks = ranks.intersection(self.ranks());
        let positions = self.0.positions.select(&ranks);
        let pairs: Vec<(Rank, u32)> = ranks.iter().map(Rank).zip(positions.iter()).collect();
        pairs.into_iter().filter_map(|(rank, at)| Some((rank, self.hosts().get(at as usize)?)))
    }

    /// Returns the ranks of `hosts`.
    ///
    /// # Errors
    /// The first host outside this layout.
    pub fn ranks_of(&self, hosts: &HostList) -> Result<IdSet, String> {
        hosts.iter().map(|host| self.rank(host).ok_or_else(|| host.to_owned())).collect()
    }

    /// Returns the ranks that `targets` chooses.
    ///
    /// # Errors
    /// A text with the first rank or host outside this layout.
    pub fn choose(&self, targets: &Targets) -> Result<IdSet, String> {
        match targets {
            Targets::Ranks(ranks) => match ranks.difference(self.ranks()).first() {
                Some(rank) => Err(format!("rank {rank} is not one of ranks {} ({})", self.ranks(), self.hosts())),
                None => Ok(ranks.clone()),
            },
            Targets::Hosts(hosts) => {
                self.ranks_of(hosts).map_err(|host| format!("host {host} is not one of hosts {}", self.hosts()))
            }
        }
    }

    /// Returns `true` if every rank of this layout is in `whole` too, on the same host.
    pub fn is_part_of(&self, whole: &Self) -> bool {
        self.pairs(self.ranks()).all(|(rank, host)| whole.rank(host) == Some(rank.0))
    }

    /// Returns the layout of `hosts` alone, with their ranks in this layout; `None`: one of `hosts` is outside this
    /// layout.
    pub fn on(&self, hosts: &HostList) -> Option<Self> {
        let ranks: Option<IdSet> = hosts.iter().map(|host| self.rank(host)).collect();
        let ranks = ranks?;
        Self::new(ranks.clone(), self.hosts_of(&ranks)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(ranks: &str, hosts: &str) -> Layout {
        Layout::new(ranks.parse().unwrap(), hosts.parse().unwrap()).unwrap()
    }

    #[test]
    fn ranks_and_hosts_both_ways() {
        let r = layout("19-22,30", "node[186-189],x");
        for (rank, host) in
            [(18, None), (19, Some("node186")), (22, Some("node189")), (23, None), (30, Some("x")), (31, None)]
        {
            assert_eq!(r.host(Rank(rank)).as_ref().map(HostName::as_str), host);
        }
        assert_eq!(r.hosts_of(&"20,30".parse().unwrap()).to_string(), "node187,x");
        assert_eq!(r.choose(&"x,node186".parse().unwrap()).unwrap().to_string(), "19,30");
        assert_eq!(r.choose(&"19-20".parse().unwrap()).unwrap().to_string(), "19-20");
        assert_eq!(
            r.choose(&"19-23".parse().unwrap()).unwrap_err(),
            "rank 23 is not one of ranks 19-22,30 (node[186-189],x)"
        );
        assert_eq!(r.choose(&"y".parse().unwrap()).unwrap_err(), "host y is not one of hosts node[186-189],x");
    }

    #[test]
    fn a_layout_must_make_sense() {
        let bad = |ranks: &str, hosts: &str| Layout::new(ranks.parse().unwrap(), hosts.parse().unwrap()).unwrap_err();
        assert_eq!(bad("0-2", "a,b"), "3 ranks but 2 hosts");
        assert_eq!(bad("0-1", "a,a"), "host a is named twice");
        assert!(Layout::counted(HostList::new()).is_err());
    }
}
