//! Events of a job's log as RFC 21 defines them, with the required keys of their contexts. Further keys are an error
//! only where RFC 21 allows none (`start`, `free`, `clean`, `resource-update`). Unknown event names are no error. The
//! controller's own log has a `finish` of another meaning (ranks of an action), which [`JobEvent`] does not describe.

use serde_json::{Map, Value};

use crate::eventlog::Event;
use crate::idset::IdSet;

/// An event of RFC 21 that a job's log may contain once the job has resources.
#[derive(Debug, Clone, PartialEq)]
pub enum JobEvent {
    PrologStart {
        description: String,
    },
    PrologFinish {
        description: String,
        status: i64,
    },
    EpilogStart {
        description: String,
    },
    EpilogFinish {
        description: String,
        status: i64,
    },
    Alloc,
    Start,
    /// Ranks of the job were released. `ranks`: these ranks; `None`: all ranks of the job. `last`: whether this is the
    /// job's last release (the key `final`).
    Release {
        ranks: Option<IdSet>,
        last: bool,
    },
    Free,
    Clean,
    /// The job's shells have ended. `status`: the largest of their wait statuses (wait(2)).
    Finish {
        status: i64,
    },
    Exception(Exception),
    /// The time at which the job's resources expire has changed. `expiration`: the new time, in seconds since
    /// 1970.
    ResourceUpdate {
        expiration: i64,
    },
    Memo(Map<String, Value>),
}

/// An exception of a job. At severity 0 the job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    pub kind: String,
    pub severity: u8,
    pub note: String,
    pub userid: Option<u32>,
    /// The wait status (wait(2)) that the job's `finish` reports in place of the shells' status; `None`: the exception
    /// sets none.
    pub wait_status: Option<i64>,
}

impl Exception {
    /// Returns the job's exit status after a fatal exception: an exit code, or 128 plus the number of a signal. `None`:
    /// the exception is not fatal, or sets no status.
    pub const fn finish_status(&self) -> Option<i64> {
        match self.wait_status {
            Some(status) if self.severity == 0 => {
                let signal = status & 0x7f;
                Some(if signal == 0 { status >> 8 & 0xff } else { 128 + signal })
            }
            _ => None,
        }
    }
}

impl JobEvent {
    /// Converts a log event. `None`: an event that this enum leaves out, such as `submit` or `priority`, which come
    /// before a job has resources.
    ///
    /// # Errors
    ///
    /// A text with the event and the key, if a required key is missing or a key has the wrong form.
    pub fn read(event: &Event) -> Result<Option<Self>, String> {
        let none = Map::new();
        let context = Context { name: event.name(), keys: event.context().unwrap_or(&none) };
        let event = match event.name() {
            "prolog-start" => Self::PrologStart { description: context.text("description")? },
            "prolog-finish" => {
                Self::PrologFinish { description: context.text("description")?, status: context.int("status")? }
            }
            "epilog-start" => Self::EpilogStart { description: context.text("description")? },
            "epilog-finish" => {
                Self::EpilogFinish { description: context.text("description")?, status: context.int("status")? }
            }
            "alloc" => Self::Alloc,
            "start" => context.empty(Self::Start)?,
            "free" => context.empty(Self::Free)?,
            "clean" => context.empty(Self::Clean)?,
            "release" => Self::Release { ranks: context.ranks()?, last: context.flag("final")? },
            "finish" => Self::Finish { status: context.int("status")? },
            "exception" => Self::Exception(context.exception()?),
            "resource-update" => context.expiration()?,
            "memo" => Self::Memo(context.keys.clone()),
            _ => return Ok(None),
        };
        Ok(Some(event))
    }
}

/// The context of an event, with the event's name for error texts.
struct Context<'a> {
    name: &'a str,
    keys: &'a Map<String, Value>,
}

impl Context<'_> {
    fn need<T>(&self, key: &str, what: &str, read: impl Fn(&Value) -> Option<T>) -> Result<T, String> {
        let found = self.keys.get(key).and_then(read);
        found.ok_or_else(|| format!("{}: expected {key:?}, {what}", self.name))
    }

    fn perhaps<T>(&self, key: &str, what: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, String> {
        if self.keys.contains_key(key) { self.need(key, what, read).map(Some) } else { Ok(None) }
    }

    fn text(&self, key: &str) -> Result<String, String> {
        self.need(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    fn int(&self, key: &str) -> Result<i64, String> {
        self.need(key, "a whole number", Value::as_i64)
    }

    fn flag(&self, key: &str) -> Result<bool, String> {
        self.need(key, "true or false", Value::as_bool)
    }

    fn empty(&self, event: JobEvent) -> Result<JobEvent, String> {
        if self.keys.is_empty() { Ok(event) } else { Err(format!("{}: expected no context", self.name)) }
    }

    fn ranks(&self) -> Result<Option<IdSet>, String> {
        match self.text("ranks")?.as_str() {
            "all" => Ok(None),
            ranks => ranks.parse().map(Some).map_err(|error| format!("{}: \"ranks\": {error}", self.name)),
        }
    }

    fn exception(&self) -> Result<Exception, String> {
        let severity = |value: &Value| value.as_u64().and_then(|n| u8::try_from(n).ok()).filter(|n| *n <= 7);
        let userid = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        Ok(Exception {
            kind: self.text("type")?,
            severity: self.need("severity", "a number from 0 to 7", severity)?,
            note: self.text("note")?,
            userid: self.perhaps("userid", "a user's number", userid)?,
            wait_status: self.perhaps("wait_status", "a whole number", Value::as_i64)?,
        })
    }

    fn expiration(&self) -> Result<JobEvent, String> {
        let expiration = self.int("expiration")?;
        if self.keys.len() > 1 {
            return Err(format!("{}: expected \"expiration\" and nothing else", self.name));
        }
        Ok(JobEvent::ResourceUpdate { expiration })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<JobEvent>, String> {
        JobEvent::read(&Event::parse_line(line).unwrap())
    }

    fn exception(kind: &str, severity: u8, userid: Option<u32>, wait_status: Option<i64>) -> JobEvent {
        let (kind, note) = (kind.to_owned(), String::new());
        JobEvent::Exception(Exception { kind, severity, note, userid, wait_status })
    }

    #[test]
    fn events_that_are_read() {
        let description = || "/x/prolog.sh".to_owned();
        #[rustfmt::skip]
        let table: &[(&str, Option<JobEvent>)] = &[
            (r#"{"timestamp":1552594348.0,"name":"prolog-start","context":{"description":"/x/prolog.sh"}}"#,
                Some(JobEvent::PrologStart { description: description() })),
            (r#"{"timestamp":1552594348.0,"name":"prolog-finish","context":{"description":"/x/prolog.sh","status":0}}"#,
                Some(JobEvent::PrologFinish { description: description(), status: 0 })),
            // Writers may add keys.
            (r#"{"timestamp":1.5,"name":"epilog-start","context":{"description":"/x/prolog.sh","ranks":"0-3"}}"#,
                Some(JobEvent::EpilogStart { description: description() })),
            (r#"{"timestamp":1.5,"name":"epilog-finish","context":{"description":"/x/prolog.sh","status":256}}"#,
                Some(JobEvent::EpilogFinish { description: description(), status: 256 })),
            (r#"{"timestamp":1552593348.092830,"name":"release","context":{"ranks":"all","final":true}}"#,
                Some(JobEvent::Release { ranks: None, last: true })),
            (r#"{"timestamp":1.5,"name":"release","context":{"ranks":"0-2,5","final":false}}"#,
                Some(JobEvent::Release { ranks: Some("0-2,5".parse().unwrap()), last: false })),
            (r#"{"timestamp":1.5,"name":"alloc","context":{"annotations":{}}}"#, Some(JobEvent::Alloc)),
            (r#"{"timestamp":1.5,"name":"start"}"#, Some(JobEvent::Start)),
            (r#"{"timestamp":1.5,"name":"free","context":{}}"#, Some(JobEvent::Free)),
            (r#"{"timestamp":1.5,"name":"clean"}"#, Some(JobEvent::Clean)),
            (r#"{"timestamp":1.5,"name":"finish","context":{"status":139}}"#, Some(JobEvent::Finish { status: 139 })),
            (r#"{"timestamp":1.5,"name":"exception","context":{"type":"oom","severity":0,"note":"","userid":1000}}"#,
                Some(exception("oom", 0, Some(1000), None))),
            (r#"{"timestamp":1.5,"name":"exception","context":{"type":"run","severity":0,"note":"","wait_status":11}}"#,
                Some(exception("run", 0, None, Some(11)))),
            (r#"{"timestamp":1.5,"name":"exception","context":{"type":"node-failure","severity":7,"note":""}}"#,
                Some(exception("node-failure", 7, None, None))),
            (r#"{"timestamp":1.5,"name":"resource-update","context":{"expiration":1700000000}}"#,
                Some(JobEvent::ResourceUpdate { expiration: 1_700_000_000 })),
            (r#"{"timestamp":1.5,"name":"memo","context":{"a":null}}"#,
                Some(JobEvent::Memo([("a".to_owned(), Value::Null)].into_iter().collect()))),
            (r#"{"timestamp":1.5,"name":"debug.free-request"}"#, None),
            (r#"{"timestamp":1.5,"name":"action-start","context":{"action":"prolog"}}"#, None),
        ];
        for (line, expect) in table {
            assert_eq!(read(line).as_ref(), Ok(expect), "{line}");
        }
    }

    #[test]
    fn events_that_are_refused_and_why() {
        #[rustfmt::skip]
        let table = [
            (r#"{"timestamp":1.5,"name":"prolog-finish","context":{"description":"x"}}"#,
             "prolog-finish: expected \"status\", a whole number"),
            (r#"{"timestamp":1.5,"name":"epilog-start"}"#, "epilog-start: expected \"description\", a text"),
            (r#"{"timestamp":1.5,"name":"release","context":{"ranks":"0-3"}}"#,
             "release: expected \"final\", true or false"),
            (r#"{"timestamp":1.5,"name":"release","context":{"ranks":"3-0","final":true}}"#,
             "release: \"ranks\": malformed idset"),
            (r#"{"timestamp":1.5,"name":"start","context":{"x":1}}"#, "start: expected no context"),
            (r#"{"timestamp":1.5,"name":"exception","context":{"type":"x","severity":8,"note":""}}"#,
             "exception: expected \"severity\", a number from 0 to 7"),
            (r#"{"timestamp":1.5,"name":"exception","context":{"type":"x","note":""}}"#,
             "exception: expected \"severity\""),
            (r#"{"timestamp":1.5,"name":"exception","context":{"type":"x","severity":0}}"#,
             "exception: expected \"note\", a text"),
            (r#"{"timestamp":1.5,"name":"exception","context":{"type":"x","severity":0,"note":"","userid":-1}}"#,
             "exception: expected \"userid\""),
            (r#"{"timestamp":1.5,"name":"resource-update","context":{"expiration":1,"x":2}}"#,
             "resource-update: expected \"expiration\" and nothing else"),
        ];
        for (line, expect) in table {
            let error = read(line).unwrap_err();
            assert!(error.starts_with(expect), "{line}: {error}");
        }
    }

    #[test]
    fn a_fatal_exception_says_how_the_job_finishes() {
        // (severity, wait status) -> status of finish
        for (severity, wait_status, expect) in [
            (0, Some(11), Some(139)),
            (0, Some(256), Some(1)),
            (0, Some(0), Some(0)),
            (1, Some(11), None),
            (0, None, None),
        ] {
            let JobEvent::Exception(exception) = exception("exec", severity, None, wait_status) else { unreachable!() };
            assert_eq!(exception.finish_status(), expect);
        }
    }
}
