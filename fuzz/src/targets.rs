//! The table of the targets.

mod files;
mod flux;
mod texts;
mod wire;

use crate::{bounds, memory};

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// The parser, as the page about tests names it.
    pub parser: &'static str,
    check: fn(&Input<'_>),
}

impl Target {
    /// Checks an input.
    ///
    /// # Panics
    /// If the parser does, if it takes more memory than its bound, or if what it returns breaks a rule.
    pub fn check(&self, bytes: &[u8]) {
        (self.check)(&Input { target: self.name, bytes });
    }
}

/// An input of a target.
struct Input<'a> {
    target: &'static str,
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Returns the input as text; `None` if it is none.
    fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes).ok()
    }

    /// Calls the parser, and checks its memory.
    fn parse<T>(&self, parser: impl FnOnce() -> T) -> T {
        let (parsed, peak) = memory::peak(parser);
        let (length, most) = (self.bytes.len(), bounds::of(self.target, self.bytes));
        assert!(peak <= most, "{}: {peak} bytes of memory for {length} of input; at most {most}", self.target);
        parsed
    }

    /// Returns the parts of the input between these bytes.
    fn parts(&self, between: u8) -> impl Iterator<Item = &'a [u8]> {
        self.bytes.split(move |byte| *byte == between)
    }
}

/// Checks that an error's text is one line, as logs and answers take it.
fn one_line(text: &str) {
    assert!(!text.contains('\n'), "an error of several lines: {text:?}");
}

const fn target(name: &'static str, parser: &'static str, check: fn(&Input<'_>)) -> Target {
    Target { name, parser, check }
}

/// All targets, in the order in which they are searched.
pub const TARGETS: [Target; 29] = [
    target("preamble", "first frame of a connection", wire::preamble),
    target("frames", "frames of agent and controller", wire::frames),
    target("from-agent", "messages of agents", wire::from_agent),
    target("to-agent", "messages of controllers", wire::to_agent),
    target("varlink", "requests to the controller", wire::varlink),
    target("agent-parameters", "requests to the agent", wire::agent_parameters),
    target("reports", "reports of scripts", wire::reports),
    target("enrolment", "line of a node that enrols, and its answer", wire::enrolment),
    target("signing-request", "certificate signing requests", wire::signing_request),
    target("certificate", "names in certificates", wire::certificate),
    target("unmunge", "munge credentials, as unmunge prints them", wire::unmunged),
    target("agent-config", "agent.toml", files::agent),
    target("controller-config", "controller.toml", files::controller),
    target("edge-config", "flux.toml of the edge", files::edge),
    target("drop-ins", "drop-ins of a configuration", files::drop_ins),
    target("spool", "records of tasks", files::spool),
    target("judge", "judgement of what a spool has", files::judged),
    target("unit-drop-ins", "paths of drop-ins of units", files::unit_drop_ins),
    target("resource-set", "R (RFC 20)", flux::resource_set),
    target("terms", "terms of a jobspec, and caps of a site", flux::terms),
    target("jobspec", "jobspec (RFC 14, RFC 25), for a site's cap", flux::jobspec),
    target("event-log", "event log (RFC 18)", flux::event_log),
    target("broker", "messages of Flux's broker (RFC 3)", flux::broker),
    target("hostlist", "hostlists (RFC 29)", texts::hostlist),
    target("idset", "idsets (RFC 22)", texts::idset),
    target("targets", "ranks or hosts that a person names", texts::targets),
    target("duration", "durations (RFC 23)", texts::duration),
    target("ids", "ids and names", texts::ids),
    target("slurm", "variables of Slurm's hooks", texts::slurm),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_that_takes_too_much_is_found() {
        let is_found = |target: &'static str, bytes: &[u8]| {
            let input = Input { target, bytes };
            std::panic::catch_unwind(|| input.parse(|| drop(std::hint::black_box(vec![0_u8; 1 << 20])))).is_err()
        };
        assert!(is_found("hostlist", b"n1,n2") && is_found("spool", b"[1,2]"));
        assert!(!is_found("hostlist", b"n[1-2]") && !is_found("spool", b"\"n[1-2]\""));
    }
}
