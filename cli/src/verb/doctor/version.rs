//! Checks of versions: whether these programs fit together, and whether systemd has the needed features.

use perilog_proto::{Agreed, Mismatch};

use super::{Finding, shell};
use crate::endpoint::Endpoint;

const ABOUT: &str = "version";
/// Oldest supported version of systemd: that of RHEL 8. perilog does without features that came later
/// (docs/building.md).
const LEAST_SYSTEMD: u32 = 239;
const OURS: &str = env!("CARGO_PKG_VERSION");

/// Returns the version of the running agent, or else of its program; `None`: neither tells its version.
pub(super) fn of_agent(endpoint: &Endpoint, program: &str) -> Option<String> {
    let installed = || {
        let answer = shell::ask(program, &["--version"]).ok().filter(|answer| answer.ok)?;
        answer.stdout.split_whitespace().last().map(str::to_owned)
    };
    endpoint.version().ok().or_else(installed)
}

pub(super) fn agent_and_ours(agent: Option<&str>) -> Finding {
    match agent {
        None => Finding::skipped(ABOUT, "the version of the agent is not known"),
        Some(OURS) => Finding::ok(ABOUT, format!("agent and this perilog are {OURS}")),
        Some(agent) => Finding::warning(
            ABOUT,
            format!("the version of the agent is {agent}, that of this perilog {OURS}"),
            "upgrade the older package; if perilog-agent is upgraded already, restart it: systemctl restart \
             perilog-agent",
        ),
    }
}

/// Compares the version that the controller at `address` gave in its first message (`answer`) with the version of the
/// agent (`agent`). `None`: the agent does not give one.
pub(super) fn agent_and_controller(agent: Option<&str>, address: &str, answer: &Result<Agreed, Mismatch>) -> Finding {
    match (answer, agent) {
        (Err(mismatch @ Mismatch::Versions { .. }), _) => {
            Finding::wrong(ABOUT, format!("{address}: {mismatch}"), "upgrade the older one")
        }
        (Err(mismatch), _) => {
            let todo = "check which program listens there; `controller` in agent.toml must name the port of \
                        perilog-controller (5115)";
            Finding::wrong(ABOUT, format!("{address}: {mismatch}"), todo)
        }
        (Ok(Agreed { release, .. }), None) => Finding::skipped(
            ABOUT,
            format!("the version of the controller at {address} is {release}, and that of the agent is not known"),
        ),
        (Ok(Agreed { release, .. }), Some(agent)) if release == agent => {
            Finding::ok(ABOUT, format!("the controller at {address} and the agent have version {release}"))
        }
        (Ok(Agreed { release, .. }), Some(agent)) => Finding::warning(
            ABOUT,
            format!("the version of the controller at {address} is {release}, that of the agent {agent}"),
            "upgrade the older one; two successive versions (N and N-1) work together meanwhile",
        ),
    }
}

pub(super) fn systemd() -> Finding {
    let answer = shell::ask("systemctl", &["show", "--property", "Version", "--value"]);
    judge_systemd(answer.ok().filter(|answer| answer.ok).map(|answer| answer.stdout).unwrap_or_default().trim())
}

/// Checks that systemd is not too old. `answer`: its version, written as `252.39-1~deb12u1`, `239 (239-82.el8)`, or
/// `v255.4`.
fn judge_systemd(answer: &str) -> Finding {
    let digits = answer.trim_start_matches(|c: char| !c.is_ascii_digit());
    let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
    match digits.parse::<u32>() {
        Err(_) => Finding::skipped(ABOUT, "the version of systemd is not known"),
        Ok(found) if found < LEAST_SYSTEMD => Finding::wrong(
            ABOUT,
            format!("systemd is {found}, but perilog needs {LEAST_SYSTEMD} or newer"),
            "upgrade this host's system",
        ),
        Ok(found) => Finding::ok(ABOUT, format!("systemd is {found}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn an_old_systemd_is_wrong() {
        for (answer, level, part) in [
            ("252.39-1~deb12u1", Level::Ok, "systemd is 252"),
            ("239 (239-82.el8)", Level::Ok, "systemd is 239"),
            ("systemd 238", Level::Wrong, "systemd is 238, but"),
            ("v255.4-1-arch", Level::Ok, "systemd is 255"),
            ("", Level::Skipped, ""),
            ("unknown", Level::Skipped, ""),
        ] {
            let found = judge_systemd(answer);
            assert!(found.level == level && found.what.contains(part), "{answer}: {found:?}");
        }
    }

    #[test]
    fn an_agent_of_another_version_is_named() {
        assert_eq!(agent_and_ours(Some(OURS)).level, Level::Ok);
        assert_eq!(agent_and_ours(None).level, Level::Skipped);
        let other = agent_and_ours(Some("0.0.9"));
        assert!(
            other.level == Level::Warning && other.what.starts_with("the version of the agent is 0.0.9, that of this"),
            "{other:?}"
        );

        let agreed = |release: &str| Ok(Agreed { version: 1, release: release.to_owned() });
        let versions =
            Mismatch::Versions { release: "9.0".to_owned(), lowest: 7, highest: 8, ours_lowest: 1, ours_highest: 1 };
        for (agent, answer, level, part) in [
            (Some("1.0"), agreed("1.0"), Level::Ok, "ctl:5115 and the agent have version 1.0"),
            (Some("1.0"), agreed("1.1"), Level::Warning, "ctl:5115 is 1.1, that of the agent 1.0"),
            (None, agreed("1.1"), Level::Skipped, "ctl:5115 is 1.1"),
            (Some("1.0"), Err(versions), Level::Wrong, "ctl:5115: no common version"),
            (None, Err(Mismatch::NotPerilog("\"SSH-2.0\"".to_owned())), Level::Wrong, "it began with \"SSH"),
        ] {
            let found = agent_and_controller(agent, "ctl:5115", &answer);
            assert!(found.level == level && found.what.contains(part), "{answer:?}: {found:?}");
        }
    }
}
