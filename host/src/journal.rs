//! Log output: to journald with fields if stderr is its stream, otherwise as short lines to stderr.
//!
//! Callers write `info!(job = %id, rank, "started")`. The journal stores the fields PERILOG_JOB and PERILOG_RANK, so
//! `journalctl PERILOG_JOB=f2a` shows the line beside the output of the job's units.
//!
//! Both outputs are synchronous, so log lines do not belong into hot loops. Without a buffer, a crash loses no line.

use std::io::{self, IsTerminal};
use std::str::FromStr;
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// The variable that overrides the level in the configuration.
const LEVEL_VARIABLE: &str = "PERILOG_LOG";
/// First part of the log targets of all perilog crates (`perilog_agent`); in capitals, that of journal fields
/// (`PERILOG_JOB`).
const OURS: &str = "perilog";

/// The reason why the log could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    #[error(
        "log level `{given}`: expected error, warn, info, debug, trace or off, or targets with levels: \
         `perilog_agent=debug,zbus=info`"
    )]
    Level { given: String },
    #[error("journald: {0}")]
    Journald(#[source] io::Error),
    #[error("logging was set up before")]
    Again,
}

/// Sets up logging for the whole process, once.
///
/// `level` is error, warn, info, debug, trace or off, and applies to perilog's crates; libraries log from `warn` up.
/// `PERILOG_LOG` overrides the level, and [`insist`] overrides both. Each may name targets instead
/// (`perilog_agent=trace,zbus=info`).
pub fn init(identifier: &str, level: &str) -> Result<(), JournalError> {
    let (targets, handle) = reload::Layer::new(targets(&effective(level))?);
    let registry = tracing_subscriber::registry();
    if libsystemd::logging::connected_to_journal() {
        let layer = tracing_journald::Layer::new()
            .map_err(JournalError::Journald)?
            .with_syslog_identifier(identifier.to_owned())
            .with_field_prefix(Some(OURS.to_ascii_uppercase()))
            .with_priority_mappings(priorities());
        registry.with(layer.with_filter(targets)).try_init()
    } else {
        let layer = tracing_subscriber::fmt::layer()
            .compact()
            .without_time()
            .with_target(false)
            .with_ansi(io::stderr().is_terminal())
            .with_writer(io::stderr);
        registry.with(layer.with_filter(targets)).try_init()
    }
    .map_err(|_| JournalError::Again)?;
    // Set only once: a second call failed above.
    let _ = FILTER.set(handle);
    Ok(())
}

static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Checks that a level has the form that [`init`] takes.
///
/// # Errors
/// [`JournalError::Level`]: the level has another form.
pub fn check_level(level: &str) -> Result<(), JournalError> {
    targets(level).map(drop)
}

static INSISTED: OnceLock<String> = OnceLock::new();

/// Sets the level of the command line, in the form that [`init`] takes: it stays in force until the process ends. Only
/// the first call counts, and only before [`init`].
pub fn insist(level: &str) {
    let _ = INSISTED.set(level.to_owned());
}

/// Changes the level, in the form that [`init`] takes. Does nothing if logging was not set up.
///
/// # Errors
/// [`JournalError::Level`]: the level that would be in force is malformed; the earlier level stays. A `level` that the
/// command line or `PERILOG_LOG` overrides is not checked.
pub fn set_level(level: &str) -> Result<(), JournalError> {
    let targets = targets(&effective(level))?;
    if let Some(filter) = FILTER.get() {
        // A reload fails only if the subscriber is gone, and this subscriber lives as long as the process.
        let _ = filter.reload(targets);
    }
    Ok(())
}

/// Returns the level in force: that of the command line, else that of `PERILOG_LOG` if the variable is set and not
/// empty, otherwise `level`.
fn effective(level: &str) -> String {
    let variable = || std::env::var(LEVEL_VARIABLE).ok().filter(|level| !level.is_empty());
    INSISTED.get().cloned().or_else(variable).unwrap_or_else(|| level.to_owned())
}

/// Returns the priorities of journald for the log levels: a line of level info is informational, not a notice.
fn priorities() -> PriorityMappings {
    PriorityMappings { info: Priority::Informational, debug: Priority::Debug, ..PriorityMappings::new() }
}

fn targets(level: &str) -> Result<Targets, JournalError> {
    // tracing reads the empty string as the level error; an operator hardly meant that.
    if let Ok(ours) = LevelFilter::from_str(level)
        && !level.is_empty()
    {
        return Ok(Targets::new().with_default(ours.min(LevelFilter::WARN)).with_target(OURS, ours));
    }
    let refused = || JournalError::Level { given: level.to_owned() };
    // `Targets` takes a bare word for a target; a misspelt level must not silence everything.
    if !level.split(',').all(|directive| directive.contains('=')) {
        return Err(refused());
    }
    Targets::from_str(level).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_is_for_our_crates_and_libraries_are_quiet() {
        for (level, target, at, expect) in [
            ("info", "perilog_agent::link", Level::INFO, true),
            ("info", "perilog_agent::link", Level::DEBUG, false),
            ("debug", "perilog_host", Level::DEBUG, true),
            ("debug", "zbus", Level::INFO, false),
            ("debug", "zbus", Level::WARN, true),
            ("error", "zbus", Level::WARN, false),
            ("off", "perilog_agent", Level::ERROR, false),
            ("perilog_agent=trace,zbus=info", "perilog_agent", Level::TRACE, true),
            ("perilog_agent=trace,zbus=info", "zbus", Level::INFO, true),
            ("perilog_agent=trace,zbus=info", "perilog_host", Level::ERROR, false),
        ] {
            assert_eq!(targets(level).unwrap().would_enable(target, &at), expect, "{level} {target} {at}");
        }
    }

    #[test]
    fn a_misspelt_level_is_refused() {
        for level in ["", "inof", "debug,", "perilog=loud", "7x"] {
            assert!(targets(level).unwrap_err().to_string().contains("expected error, warn"), "{level}");
        }
    }
}
