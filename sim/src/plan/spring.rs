//! Traps: faults that strike at an effect of a daemon, and the table of the faults that are possible at each effect.

use serde::{Deserialize, Serialize};

use super::effects::{AGENT_EFFECTS, CONTROLLER_EFFECTS};

/// A fault that strikes when the effect with this name occurs for the `nth` time, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trap {
    /// The node whose agent has the effect; `None`: the effect is the first controller's.
    pub node: Option<usize>,
    pub effect: String,
    pub nth: u32,
    pub spring: Spring,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spring {
    /// The daemon's process dies before the effect (`CrashAfter`: after the effect), and starts again after `down_ms`.
    CrashBefore {
        down_ms: u64,
    },
    CrashAfter {
        down_ms: u64,
    },
    /// The daemon's process dies in the middle of an effect with two halves, and starts again after `down_ms`. Such
    /// effects are a tombstone (it is written, then the directory removed) and a fan-out of Starts.
    CrashWithin {
        down_ms: u64,
    },
    /// The whole node loses its power before the effect (`PowerAfter`: after the effect), and boots again after
    /// `down_ms`.
    PowerBefore {
        down_ms: u64,
    },
    PowerAfter {
        down_ms: u64,
    },
    /// The effect fails and reports the failure.
    Fail,
    /// PID 1's reply to a call that starts a unit is lost. `happens`: whether PID 1 carries out the call.
    Unanswered {
        happens: bool,
    },
    /// A call that starts a unit reaches PID 1 late, by this time (ms).
    Late {
        ms: u64,
    },
}

const CRASH_BEFORE: &str = "crash before";
const CRASH_AFTER: &str = "crash after";
const CRASH_WITHIN: &str = "crash within";
const POWER_BEFORE: &str = "power before";
const POWER_AFTER: &str = "power after";
const FAIL: &str = "fail";
const UNANSWERED: &str = "reply lost";
const UNDONE: &str = "call lost";
const LATE: &str = "late";

impl Spring {
    pub const WORDS: [&str; 9] =
        [CRASH_BEFORE, CRASH_AFTER, CRASH_WITHIN, POWER_BEFORE, POWER_AFTER, FAIL, UNANSWERED, UNDONE, LATE];

    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::CrashBefore { .. } => CRASH_BEFORE,
            Self::CrashAfter { .. } => CRASH_AFTER,
            Self::CrashWithin { .. } => CRASH_WITHIN,
            Self::PowerBefore { .. } => POWER_BEFORE,
            Self::PowerAfter { .. } => POWER_AFTER,
            Self::Fail => FAIL,
            Self::Unanswered { happens: true } => UNANSWERED,
            Self::Unanswered { happens: false } => UNDONE,
            Self::Late { .. } => LATE,
        }
    }
}

/// Effect of an agent that has two halves.
pub(super) const HALVES: &str = "write-tombstone";

/// Effects of agents that can fail, and then report the failure to the machine.
pub(super) const CAN_FAIL: [&str; 8] =
    ["write-intent", "start-unit", "inspect", "take-claim", "write-outcome", "unload", HALVES, "write-epoch"];

/// Returns the names of the faults that can strike at an effect of an agent.
fn of_agent(effect: &'static str) -> impl Iterator<Item = &'static str> {
    Spring::WORDS.into_iter().filter(move |word| match *word {
        CRASH_WITHIN => effect == HALVES,
        FAIL => CAN_FAIL.contains(&effect),
        UNANSWERED | UNDONE | LATE => effect == "start-unit",
        _ => true,
    })
}

/// Returns the names of the faults that can strike at an effect of a controller.
fn of_controller(effect: &'static str) -> impl Iterator<Item = &'static str> {
    Spring::WORDS.into_iter().filter(move |word| match *word {
        CRASH_BEFORE | CRASH_AFTER => true,
        CRASH_WITHIN => effect == "fan",
        FAIL => effect == "commit",
        _ => false,
    })
}

/// Returns every possible pair of an effect's name and the name of a fault that can strike at this effect.
pub fn possible() -> impl Iterator<Item = (&'static str, &'static str)> {
    let agent = AGENT_EFFECTS.iter().flat_map(|effect| of_agent(effect).map(move |word| (*effect, word)));
    let controller =
        CONTROLLER_EFFECTS.iter().flat_map(|effect| of_controller(effect).map(move |word| (*effect, word)));
    agent.chain(controller)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a renamed effect kept its earlier name here, and no fault struck at it.
    #[test]
    fn each_fault_can_strike_at_an_effect() {
        for effect in CAN_FAIL {
            assert!(AGENT_EFFECTS.contains(&effect), "{effect}");
        }
        for word in Spring::WORDS {
            assert!(AGENT_EFFECTS.iter().any(|effect| of_agent(effect).any(|other| other == word)), "{word}");
        }
    }
}
