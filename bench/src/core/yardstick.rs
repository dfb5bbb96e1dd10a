//! Yardstick: the bare look-ups that any controller makes for a completion, in maps of the same size, without a
//! decision. More ranks need more memory than the processor's caches hold, so each look-up takes longer. The growth of
//! these times is that of the memory of this computer, and not of the machine's algorithm.

use std::collections::HashMap;
use std::hint::black_box;

use fastrand::Rng;
use perilog_core::IdSet;

use crate::nodes::names;
use crate::site::cpu_us;

/// Number of messages of a rank in a case: Accepted and Finished, of a prolog and of an epilog.
const MESSAGES: u32 = 4;
/// Size of a node, in words of eight bytes.
const NODE_WORDS: usize = 64;

/// Per rank: the session with its host, the node of the host, and the host in the list of the job. The state of each
/// rank is in one of two sets. Each message looks up the four, and moves its rank to the other set.
struct Maps {
    sessions: HashMap<u64, String>,
    nodes: HashMap<String, Box<[u64; NODE_WORDS]>>,
    hosts: Vec<String>,
    states: [IdSet; 2],
}

impl Maps {
    fn new(ranks: u32) -> Self {
        let hosts: Vec<String> = names(ranks).collect();
        Self {
            sessions: (0..).zip(hosts.iter().cloned()).collect(),
            nodes: hosts.iter().map(|host| (host.clone(), Box::new([0; NODE_WORDS]))).collect(),
            states: [(0..ranks).collect(), IdSet::new()],
            hosts,
        }
    }

    fn message(&mut self, rank: u32, from: usize) -> bool {
        let Some(host) = self.sessions.get(&u64::from(rank)) else { return false };
        let Some(node) = self.nodes.get_mut(host) else { return false };
        // One word of each line of the cache.
        node.iter_mut().step_by(8).for_each(|word| *word += 1);
        let is_its = self.hosts.get(rank as usize) == Some(host);
        is_its && self.states[from].remove(rank) && self.states[1 - from].insert(rank)
    }
}

/// Returns the CPU time, in milliseconds, of the look-ups for all messages of a job of so many ranks. The ranks are in
/// random order, as in the cases.
pub(crate) fn ms(ranks: u32) -> f64 {
    let (mut maps, mut random) = (Maps::new(ranks), Rng::with_seed(1));
    let mut order: Vec<u32> = (0..ranks).collect();
    let mut spent_us = 0.0;
    for message in 0..MESSAGES {
        random.shuffle(&mut order);
        let (began_us, from) = (cpu_us(), message as usize % 2);
        let done = order.iter().filter(|rank| maps.message(**rank, from)).count();
        spent_us += cpu_us() - began_us;
        black_box(done);
    }
    spent_us / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_moves_its_rank_to_the_other_set() {
        let mut maps = Maps::new(3);
        assert!([2, 0, 1].into_iter().all(|rank| maps.message(rank, 0)));
        assert_eq!(maps.states, [IdSet::new(), (0..3).collect()]);
        assert!(!maps.message(0, 0), "it is in the other set");
        assert!(maps.message(0, 1) && !maps.message(3, 0));
    }
}
