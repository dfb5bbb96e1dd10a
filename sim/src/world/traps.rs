//! Springs the plan's traps. A trap ([`Trap`]) is a fault that the plan sets at an effect of a daemon. The fault
//! strikes before or after the effect, in its middle, or in its place.

use std::collections::BTreeMap;

use perilog_core::agent::Effect as AgentEffect;

use super::World;
use crate::plan::{Spring, Trap, of_agent};

pub(crate) struct Traps {
    set: Vec<Trap>,
    /// Number of times that each effect has occurred so far. The key: the agent's node (`None`: the first controller),
    /// and the effect's name.
    met: BTreeMap<(Option<usize>, &'static str), u32>,
    /// Number of times that each fault struck at each effect, by the names of effect and fault.
    pub(crate) hits: BTreeMap<(String, &'static str), u64>,
    pub(crate) off: bool,
}

/// Result of the check whether a trap of the plan ([`Trap`]) strikes at an effect of a daemon. Either no trap strikes,
/// or the trap's fault strikes before or after the effect, or the effect itself goes wrong.
pub(crate) enum Sprung {
    No,
    Before(Spring),
    After(Spring),
    How(How),
}

/// The way in which a trap makes an effect go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Fails,
    Half { down_ms: u64 },
    Unanswered { happens: bool },
    Late { ms: u64 },
}

impl Traps {
    pub(crate) fn new(traps: &[Trap]) -> Self {
        Self { set: traps.to_vec(), met: BTreeMap::new(), hits: BTreeMap::new(), off: false }
    }

    pub(crate) fn agent(&mut self, at: usize, effect: &AgentEffect) -> Sprung {
        self.meet(Some(at), of_agent(effect))
    }

    pub(crate) fn controller(&mut self, name: &'static str) -> Sprung {
        self.meet(None, name)
    }

    fn meet(&mut self, who: Option<usize>, name: &'static str) -> Sprung {
        if self.off || self.set.is_empty() {
            return Sprung::No;
        }
        let met = self.met.entry((who, name)).or_default();
        let nth = *met;
        *met += 1;
        let Some(trap) = self.set.iter().find(|trap| trap.node == who && trap.effect == name && trap.nth == nth) else {
            return Sprung::No;
        };
        let spring = trap.spring.clone();
        *self.hits.entry((name.to_owned(), spring.as_str())).or_default() += 1;
        match spring {
            Spring::CrashBefore { .. } | Spring::PowerBefore { .. } => Sprung::Before(spring),
            Spring::CrashAfter { .. } | Spring::PowerAfter { .. } => Sprung::After(spring),
            Spring::CrashWithin { down_ms } => Sprung::How(How::Half { down_ms }),
            Spring::Fail => Sprung::How(How::Fails),
            Spring::Unanswered { happens } => Sprung::How(How::Unanswered { happens }),
            Spring::Late { ms } => Sprung::How(How::Late { ms }),
        }
    }
}

impl World {
    /// Springs a trap on node `at`: kills the agent, or cuts the power of the whole node.
    pub(crate) fn spring(&mut self, at: usize, spring: Spring) {
        self.injected += 1;
        self.disturb(at);
        self.log_line(|| format!("TRAP on n{at}: {spring:?}"));
        match spring {
            Spring::PowerBefore { down_ms } | Spring::PowerAfter { down_ms } => self.power_fail(at, down_ms),
            Spring::CrashBefore { down_ms } | Spring::CrashAfter { down_ms } => self.kill_agent(at, down_ms),
            // These springs go off with the effect itself.
            Spring::CrashWithin { .. } | Spring::Fail | Spring::Unanswered { .. } | Spring::Late { .. } => {}
        }
    }
}
