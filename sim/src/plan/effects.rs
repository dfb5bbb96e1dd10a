//! Names of the daemons' effects, by which traps find the effects: one table for plans and for worlds.

use perilog_core::agent::Effect as AgentEffect;
use perilog_core::controller::Effect as ControllerEffect;
use perilog_core::message::{FromAgent, ToAgent};

/// Defines `$names`, a list of effect names, and `$name_of`, the function from an effect to its name. `beside`: further
/// names in the list, for traps that belong to no effect. `unmet`: effects that occur in no world; the list lacks their
/// names.
macro_rules! table {
    ($names:ident, $name_of:ident: $effect:ty; beside $($beside:literal),*;
     $($pattern:pat => $name:literal),*; unmet $($other:pat => $unmet:literal),*) => {
        pub const $names: &[&str] = &[$($beside,)* $($name),*];

        pub(crate) const fn $name_of(effect: &$effect) -> &'static str {
            match effect {
                $($pattern => $name,)*
                $($other => $unmet,)*
            }
        }
    };
}

table! {
    AGENT_EFFECTS, of_agent: AgentEffect;
    beside;
    AgentEffect::WriteIntent { .. } => "write-intent",
    AgentEffect::StartUnit { .. } => "start-unit",
    AgentEffect::Watch { .. } => "watch",
    AgentEffect::WatchEmpty { .. } => "watch-empty",
    AgentEffect::Inspect { .. } => "inspect",
    AgentEffect::TakeClaim { .. } => "take-claim",
    AgentEffect::SignalRunner { .. } => "signal-runner",
    AgentEffect::MarkBootExpected { .. } => "mark-boot-expected",
    AgentEffect::KillLingering { .. } => "kill-lingering",
    AgentEffect::WriteOutcome { .. } => "write-outcome",
    AgentEffect::Unload { .. } => "unload",
    AgentEffect::WriteTombstone { .. } => "write-tombstone",
    AgentEffect::RemoveTombstone { .. } => "remove-tombstone",
    AgentEffect::WriteEpoch { .. } => "write-epoch",
    AgentEffect::Send(FromAgent::Hello(_)) => "send-hello",
    AgentEffect::Send(FromAgent::EpochRefused { .. }) => "send-epoch-refused",
    AgentEffect::Send(FromAgent::Accepted { .. }) => "send-accepted",
    AgentEffect::Send(FromAgent::PhaseChanged { .. }) => "send-phase-changed",
    AgentEffect::Send(FromAgent::Milestone { .. }) => "send-milestone",
    AgentEffect::Send(FromAgent::Finished { .. }) => "send-finished",
    AgentEffect::Send(FromAgent::ExpectsBoot { .. }) => "send-expects-boot",
    AgentEffect::Send(FromAgent::Probed { .. }) => "send-probed",
    // The daemon sends this effect, with the answer that it has gathered; the machine never does.
    AgentEffect::Send(FromAgent::Answer { .. }) => "send-answer",
    AgentEffect::Hang { .. } => "hang",
    AgentEffect::RedialWindow { .. } => "redial-window",
    AgentEffect::WakeAt { .. } => "wake-at",
    AgentEffect::ExecReply { .. } => "exec-reply",
    AgentEffect::StatusReply { .. } => "status-reply",
    AgentEffect::Answer { .. } => "answer",
    AgentEffect::Note { .. } => "note";
    unmet
    // No hook of this world asks for notices.
    AgentEffect::CallHook(_) => "call-hook",
    // All daemons of a world have the same version.
    AgentEffect::Send(FromAgent::Unsupported { .. }) => "send-unsupported"
}

// Each name belongs to one daemon: an effect of both daemons has two names.
table! {
    CONTROLLER_EFFECTS, of_controller: ControllerEffect;
    beside "commit";
    ControllerEffect::Send { message: ToAgent::Welcome { .. }, .. } => "send-welcome",
    ControllerEffect::Send { message: ToAgent::TurnedAway { .. }, .. } => "send-turned-away",
    ControllerEffect::Send { message: ToAgent::Start(_), .. } => "send-start",
    ControllerEffect::Send { message: ToAgent::Begin { .. }, .. } => "send-begin",
    ControllerEffect::Send { message: ToAgent::Cancel { .. }, .. } => "send-cancel",
    ControllerEffect::Send { message: ToAgent::Signal { .. }, .. } => "send-signal",
    ControllerEffect::Send { message: ToAgent::Ack { .. }, .. } => "send-ack",
    ControllerEffect::Send { message: ToAgent::Forget { .. }, .. } => "send-forget",
    ControllerEffect::Send { message: ToAgent::BootExpected { .. }, .. } => "send-boot-expected",
    ControllerEffect::Send { message: ToAgent::Probe { .. }, .. } => "send-probe",
    ControllerEffect::Send { message: ToAgent::Ask { .. }, .. } => "send-ask",
    ControllerEffect::Fan { .. } => "fan",
    ControllerEffect::Close { .. } => "close",
    ControllerEffect::Reply { .. } => "reply",
    ControllerEffect::Publish { .. } => "publish",
    ControllerEffect::OutboxGrew => "outbox-grew",
    ControllerEffect::Answer { .. } => "pass-answer",
    ControllerEffect::WakeAt { .. } => "controller-wake-at",
    ControllerEffect::Note { .. } => "controller-note";
    unmet
    ControllerEffect::Send { message: ToAgent::Unsupported { .. }, .. } => "send-unsupported"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{AGENT_EFFECTS, CONTROLLER_EFFECTS};

    #[test]
    fn a_name_is_that_of_one_effect() {
        let names: Vec<&str> = AGENT_EFFECTS.iter().chain(CONTROLLER_EFFECTS).copied().collect();
        let different: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(different.len(), names.len());
    }
}
