//! Checks on a node with a slurmd: settings of Slurm that let a job run during an epilog, on a node whose epilog
//! failed, or twice, and those that leave it stuck.

use perilog_core::Span;
use toml::Table;

use super::{Finding, shell};

const ABOUT: &str = "slurm";
/// Names of the agent's actions that Slurm's hooks on a node run by default.
const ACTIONS: [&str; 2] = ["prolog", "epilog"];
/// PrologFlags with which Slurm runs the prolog at a job's allocation. All but the first imply the first.
const ALLOC: [&str; 6] = ["Alloc", "Contain", "ForceRequeueOnFail", "NoHold", "RunInJob", "X11"];
/// TimeoutStopSec in slurmd-waits.conf: no shorter patience is asked for, however long the limits are.
const DROP_IN_STOP: Span = Span::from_millis(180_000);
const DROP_IN: &str = "install -D -m 644 /usr/share/doc/perilog/examples/slurm/slurmd-waits.conf \
                       /etc/systemd/system/slurmd.service.d/perilog.conf; systemctl daemon-reload";

pub(super) fn inspect(config: &Table) -> Vec<Finding> {
    let asked = ["show", "slurmd.service", "--property", "LoadState,TimeoutStopUSec"];
    let Ok(shown) = shell::ask("systemctl", &asked) else { return Vec::new() };
    let get = |name: &str| shown.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    if get("LoadState") != Some("loaded") {
        return Vec::new();
    }
    let limit = longest(config);
    let stop = get("TimeoutStopUSec").and_then(span);
    match slurms(shell::ask("scontrol", &["show", "config"])) {
        Ok(config) => {
            vec![waits(stop, limit, &config), selects(&config), allocates(&config), kills(&config, limit)]
        }
        Err(why) => vec![Finding::skipped(ABOUT, why)],
    }
}

/// Returns the output of `scontrol show config`. `output`: the end of that program. `Err`: the reason why there is no
/// output.
fn slurms(output: Result<shell::ShellOutput, String>) -> Result<String, String> {
    match output? {
        output if output.ok => Ok(output.stdout),
        output => Err(format!("scontrol show config: {}", output.stderr.lines().next().unwrap_or("no answer"))),
    }
}

/// Returns the value of a key in Slurm's configuration, from a line such as `SelectType = select/linear`; `None`: no
/// line has the key.
fn value<'a>(config: &'a str, key: &str) -> Option<&'a str> {
    config.lines().find_map(|line| Some(line.strip_prefix(key)?.trim_start().strip_prefix('=')?.trim()))
}

/// Returns the longer of the time limits of the actions prolog and epilog; infinite if the configuration has no limit
/// for either.
fn longest(config: &Table) -> Span {
    let limit = |action: &&str| -> Option<Span> {
        config.get("action")?.as_table()?.get(*action)?.get("timeout")?.as_str()?.parse().ok()
    };
    ACTIONS.iter().filter_map(limit).max().unwrap_or(Span::INFINITE)
}

/// Checks how long a stopping slurmd waits for its prologs and epilogs. Slurm gives a node up that has not answered for
/// SlurmdTimeout, and begins its jobs elsewhere. A slurmd that still waits for the prolog of such a job then begins the
/// job a second time. `stop`: how long systemd waits before it kills slurmd; `None`: unknown. `limit`: the longer of
/// the limits of prolog and epilog. `config`: the output of `scontrol show config`.
fn waits(stop: Option<Span>, limit: Span, config: &str) -> Finding {
    let Some(stop) = stop else {
        return Finding::skipped(ABOUT, "systemd does not show how long it waits for slurmd to stop");
    };
    let seconds = value(config, "SlurmdTimeout").and_then(|value| value.split(' ').next()?.parse::<u64>().ok());
    let Some(seconds) = seconds else { return Finding::skipped(ABOUT, "scontrol show config shows no SlurmdTimeout") };
    // Slurm pings three times in that time: the last answer may be older than the stop by a third. 0: never.
    let given_up = if seconds == 0 { Span::INFINITE } else { Span::from_millis(seconds * 2_000 / 3) };
    let enough = given_up.as_millis().map_or(DROP_IN_STOP, |ms| DROP_IN_STOP.min(Span::from_millis(ms / 2)));
    let is_short = stop < limit && stop < enough;
    if stop >= given_up && seconds > 0 {
        let what = format!(
            "when slurmd stops, it waits up to {stop} for its prologs, but Slurm gives the node up after {given_up} \
             (SlurmdTimeout is {seconds} s) and begins the job elsewhere; then this slurmd begins the job, too"
        );
        let todo =
            format!("set TimeoutStopSec of slurmd.service below {given_up}, or a larger SlurmdTimeout; {DROP_IN}");
        Finding::warning(ABOUT, what, todo)
    } else if is_short {
        let limit = if limit.is_infinite() { "have no limit".to_owned() } else { format!("may take {limit}") };
        let what = format!("when slurmd stops, systemd kills it after {stop}, but prologs and epilogs {limit}");
        Finding::warning(ABOUT, what, DROP_IN)
    } else {
        Finding::ok(ABOUT, format!("slurmd has {stop} to stop, and Slurm does not give the node up in that time"))
    }
}

/// Checks that Slurm runs the prolog when it allocates a job. Otherwise Slurm shows no job that waits for its prolog,
/// and perilog cannot requeue a job whose slurmd has died there. `config`: the output of `scontrol show config`.
fn allocates(config: &str) -> Finding {
    let flags = value(config, "PrologFlags").unwrap_or_default();
    if flags.split(',').any(|flag| ALLOC.contains(&flag.trim())) {
        return Finding::ok(ABOUT, format!("PrologFlags is {flags}: a job waits for its prolog on each of its nodes"));
    }
    Finding::warning(
        ABOUT,
        "PrologFlags has no Alloc: nodes without a step run no prolog, and a job whose slurmd dies in the prolog is \
         stuck",
        "set PrologFlags=Alloc in slurm.conf; scontrol reconfigure",
    )
}

/// Checks that Slurm gives a node to no other job before the epilog there has ended; `SelectType` decides that.
/// `config`: the output of `scontrol show config`.
fn selects(config: &str) -> Finding {
    match value(config, "SelectType") {
        None => Finding::skipped(ABOUT, "scontrol show config shows no SelectType"),
        Some("select/linear") => Finding::warning(
            ABOUT,
            "SelectType is select/linear: Slurm gives a node to the next job while the epilog still runs, even if that \
             epilog fails",
            "stop all of Slurm, and set SelectType=select/cons_tres in slurm.conf; with select/linear, serialize = \
             \"host\" in agent.toml keeps the scripts of two jobs apart",
        ),
        Some(kind) => Finding::ok(ABOUT, format!("SelectType is {kind}: nodes are held until their epilog has ended")),
    }
}

/// From this number of seconds on, PrologEpilogTimeout means no limit (NO_VAL16, INFINITE16).
const NO_LIMIT: u64 = 65_534;

/// Checks that the limits of prolog and epilog are below the time (PrologEpilogTimeout) after which Slurm kills a hook.
fn kills(config: &str, limit: Span) -> Finding {
    let kills = value(config, "PrologEpilogTimeout").and_then(|value| value.parse::<u64>().ok());
    match kills.filter(|seconds| *seconds < NO_LIMIT) {
        None => Finding::ok(ABOUT, "Slurm has no limit for prologs and epilogs (PrologEpilogTimeout)"),
        Some(seconds) if limit < Span::from_millis(seconds * 1_000) => Finding::ok(
            ABOUT,
            format!("PrologEpilogTimeout is {seconds} s, above the limits of [action.prolog] and [action.epilog]"),
        ),
        Some(seconds) => {
            let limit =
                if limit.is_infinite() { "have no limit of perilog's".to_owned() } else { format!("may take {limit}") };
            let what = format!(
                "Slurm kills the hook of a prolog or epilog after {seconds} s (PrologEpilogTimeout) and drains the \
                 node, while the scripts keep running, because they {limit}"
            );
            let todo = "give [action.prolog] and [action.epilog] in agent.toml a timeout below PrologEpilogTimeout; \
                        on-timeout = \"kill\" for scripts that ignore SIGTERM";
            Finding::warning(ABOUT, what, todo)
        }
    }
}

/// Parses a time as systemctl shows it: `1min 30s`, `infinity`. `None`: the text is malformed.
fn span(text: &str) -> Option<Span> {
    if text == "infinity" {
        return Some(Span::INFINITE);
    }
    let word = |word: &str| -> Option<u64> {
        let digits = word.find(|c: char| !c.is_ascii_digit())?;
        let unit = match &word[digits..] {
            "us" => return Some(0),
            "ms" => 1,
            "s" => 1_000,
            "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "month" => 2_629_800_000,
            "y" => 31_557_600_000,
            _ => return None,
        };
        word[..digits].parse::<u64>().ok()?.checked_mul(unit)
    };
    let words: Option<Vec<u64>> = text.split_whitespace().map(word).collect();
    Some(Span::from_millis(words?.iter().try_fold(0_u64, |sum, ms| sum.checked_add(*ms))?))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn slurmd_stops_before_slurm_gives_its_node_up() {
        let config = |text: &str| text.parse::<Table>().unwrap();
        let both = config("[action.prolog]\ntimeout = '10m'\n[action.epilog]\ntimeout = '20m'\n");
        for (stop, config, timeout, level, part) in [
            ("1min 30s", &both, "300 sec", Level::Warning, "systemd kills"),
            ("3min", &both, "300 sec", Level::Ok, ""),
            ("3min 20s", &both, "300 sec", Level::Warning, "begins the job elsewhere"),
            ("1h", &both, "300 sec", Level::Warning, "begins the job elsewhere"),
            ("1h", &both, "7200 sec", Level::Ok, ""),
            ("10min", &both, "7200 sec", Level::Ok, ""),
            ("3min", &both, "600 sec", Level::Ok, ""),
            ("1min 30s", &both, "7200 sec", Level::Warning, "systemd kills"),
            ("infinity", &both, "7200 sec", Level::Warning, "begins the job elsewhere"),
            ("infinity", &both, "0 sec", Level::Ok, ""),
            ("1h", &config(""), "0 sec", Level::Ok, ""),
            ("1min 30s", &config(""), "0 sec", Level::Warning, "systemd kills"),
            ("infinity", &config(""), "0 sec", Level::Ok, ""),
            ("soon", &both, "300 sec", Level::Skipped, ""),
            ("3min", &both, "", Level::Skipped, ""),
        ] {
            let found = waits(span(stop), longest(config), &format!("SlurmdTimeout           = {timeout}\n"));
            assert!(found.level == level && found.what.contains(part), "{stop}, {timeout}: {found:?}");
        }
        assert_eq!((span("1min 30s 5ms 7us"), span("1x")), (Some(Span::from_millis(90_005)), None));
    }

    #[test]
    fn a_prolog_that_does_not_run_at_the_allocation_is_reported() {
        for (flags, level) in [
            ("Alloc", Level::Ok),
            ("Alloc,Contain,X11", Level::Ok),
            ("RunInJob", Level::Ok),
            ("Serial", Level::Warning),
            ("(null)", Level::Warning),
        ] {
            let found = allocates(&format!("PrologFlags             = {flags}\n"));
            assert_eq!(found.level, level, "{found:?}");
        }
        assert_eq!(allocates("").level, Level::Warning);
    }

    #[test]
    fn a_node_that_is_given_away_under_its_epilog_is_reported() {
        let output =
            |ok| slurms(Ok(shell::ShellOutput { ok, stdout: "all".to_owned(), stderr: "no way\n".to_owned() }));
        assert_eq!(
            (output(true), output(false)),
            (Ok("all".to_owned()), Err("scontrol show config: no way".to_owned()))
        );
        let linear = "SelectType              = select/linear\nSelectTypeParameters    = CR_CPU\n";
        assert_eq!(selects(linear).level, Level::Warning);
        assert_eq!(selects("SelectType = select/cons_tres\n").level, Level::Ok);
        assert_eq!(selects("").level, Level::Skipped);
    }

    #[test]
    fn a_hook_that_slurm_kills_before_perilogs_limit_is_reported() {
        let minutes = |minutes: u64| Span::from_millis(minutes * 60_000);
        for (timeout, limit, level) in [
            ("65534", Span::INFINITE, Level::Ok),
            ("3600", minutes(20), Level::Ok),
            ("3600", minutes(60), Level::Warning),
            ("3600", Span::INFINITE, Level::Warning),
        ] {
            let found = kills(&format!("PrologEpilogTimeout     = {timeout}\n"), limit);
            assert_eq!(found.level, level, "{found:?}");
        }
    }
}
