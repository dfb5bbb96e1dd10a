//! Protocol between perilog-report and the runner over `$PERILOG_CONTROL`, a stream socket.
//!
//! The script's side sends one [`perilog_core::task::Report`] per line, as JSON. The runner records each report and
//! then answers with one [`Reply`] per line. Any program that can write a line to a socket can use the protocol:
//!
//! ```text
//!   {"report":"tolerable","check":"lustre","message":"mount missing"}      ->
//!                                                                          <-  {"reply":"acknowledged"}
//!   {"report":"expect-reboot"}                                             ->
//!                                                                          <-  {"reply":"recorded"}
//!                                   once the controller knows:             <-  {"reply":"acknowledged"}
//! ```

use perilog_core::ParseError;
use serde::{Deserialize, Serialize};

/// Maximum size in bytes of a record with its line break: a report is a sentence, not a log.
pub(crate) const MAX_RECORD: usize = 4096;

/// Maximum size in bytes of the name of a check or a milestone.
const MAX_NAME: usize = 64;

/// The runner's answer to a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// The runner has recorded the report, or has shown it if it is a progress. The record outlives the script, the
    /// runner and the agent.
    Acknowledged,
    /// The runner has recorded the report, but a reboot would destroy the record: `acknowledged` follows when the
    /// controller knows.
    Recorded,
    Refused {
        why: String,
    },
}

/// Checks that `name` is a name of a check or a milestone: 1 to 64 of `[A-Za-z0-9._-]`, not starting with `.` or `-`.
/// `what` says in the error what is named, for example `check name`.
///
/// # Errors
/// The position of the first mistake, and what is permitted there.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), ParseError> {
    let fits = |at, b: u8| b.is_ascii_alphanumeric() || b == b'_' || (at > 0 && b".-".contains(&b));
    let wrong = |at, expected: &str| Err(ParseError::new(what, name, at, expected));
    match name.bytes().enumerate().position(|(at, b)| !fits(at, b)) {
        Some(0) => wrong(0, "one of [A-Za-z0-9_] to begin with"),
        Some(at) => wrong(at, "one of [A-Za-z0-9._-]"),
        None if name.is_empty() => wrong(0, "1 to 64 of [A-Za-z0-9._-]"),
        None if name.len() > MAX_NAME => wrong(MAX_NAME, "at most 64 characters"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_and_where_others_do_not() {
        let long = "n".repeat(65);
        for (name, expect) in [
            ("lustre", Ok(())),
            ("data-out_2.b", Ok(())),
            ("", Err(1)),
            ("mount missing", Err(6)),
            ("é", Err(1)),
            (&long, Err(65)),
            ("-rf", Err(1)),
            ("..", Err(1)),
            ("a..", Ok(())),
        ] {
            assert_eq!(check_name("check", name).map_err(|e| e.column()), expect, "{name:?}");
        }
    }

    #[test]
    fn replies_are_as_documented() {
        let refused = Reply::Refused { why: "no".to_owned() };
        for (reply, text) in [
            (Reply::Acknowledged, r#"{"reply":"acknowledged"}"#),
            (Reply::Recorded, r#"{"reply":"recorded"}"#),
            (refused, r#"{"reply":"refused","why":"no"}"#),
        ] {
            assert_eq!(serde_json::to_string(&reply).unwrap(), text);
            assert_eq!(serde_json::from_str::<Reply>(text).unwrap(), reply);
        }
    }
}
