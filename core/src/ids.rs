//! Ids of jobs, attempts, actions, tasks, hosts and boots. The constructor of a text id checks the text, so every value
//! of the type has a valid form.
//!
//! Most ids come from outside: from the resource manager, the configuration, scripts, the kernel or systemd. perilog
//! derives [`ClusterId`] from the name of the cluster, and [`ActionId`] from other ids.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::parse::ParseError;

mod boot;

/// Defines an id that is a text: a newtype whose constructor checks the form. Serde and `Display` use the text.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Creates an id from `text`, if `text` has the id's form.
            ///
            /// # Errors
            /// [`ParseError`] with the position of the first byte that does not fit.
            pub fn new(text: &str) -> Result<Self, ParseError> {
                $check($what, text)?;
                Ok(Self(Arc::from(text)))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// Lets a `&str` look up an id in a map: an id compares and hashes as its text does.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseError;
            fn from_str(text: &str) -> Result<Self, ParseError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseError;
            fn try_from(text: String) -> Result<Self, ParseError> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// The job id of the resource manager: 1-64 of `[A-Za-z0-9._-]`, not starting with `.` or `-`, because the id is
    /// part of paths and arguments of root's scripts. perilog reads no meaning into the id. A Flux id is kept in its
    /// plain f58 form (`f...`).
    JobId, "job id", check_job
}
text_id! {
    /// The name of an action, such as `prolog`: `[a-z][a-z0-9-]{0,31}`.
    ActionName, "action name", check_action
}
text_id! {
    /// The name of a node in certificates, hostlists and requests: 1-253 of `[A-Za-z0-9._-]`, not starting with `.` or
    /// `-`.
    HostName, "host name", check_host
}
text_id! {
    /// The name of a named resource, such as a rabbit: 1-64 of `[A-Za-z0-9._:-]`, not starting with `.` or `-`.
    ResourceName, "resource name", check_resource
}
text_id! {
    /// The name of a milestone, such as `data-out`: 1-64 of `[A-Za-z0-9._-]`, not starting with `.` or `-`.
    MilestoneName, "milestone", check_word
}
text_id! {
    /// The name of a check that a script reports as failed, such as `lustre`: 1-64 of `[A-Za-z0-9._-]`, not starting
    /// with `.` or `-`.
    CheckName, "check name", check_word
}
text_id! {
    /// The id of one boot of a node: the kernel's boot_id and a nonce of /run ([`crate::boot::BootRecord`]), with `+N`
    /// after the Nth soft reboot if systemd counts soft reboots.
    BootId, "boot id", check_token
}
text_id! {
    /// The id of a node's operating system installation, from machine-id(5).
    MachineId, "machine id", check_token
}
text_id! {
    /// systemd's InvocationID: 32 hexadecimal digits, new for each start of a unit (systemd.exec(5)).
    InvocationId, "invocation id", check_invocation
}

fn check_set(
    what: &'static str,
    text: &str,
    most: usize,
    fits: impl Fn(usize, u8) -> bool,
    of: &str,
) -> Result<(), ParseError> {
    if text.is_empty() {
        return Err(ParseError::new(what, text, 0, format!("1 to {most} of {of}")));
    }
    if let Some(at) = text.bytes().enumerate().position(|(i, b)| !fits(i, b)) {
        return Err(ParseError::new(what, text, at, of));
    }
    if text.len() > most {
        return Err(ParseError::new(what, text, most, format!("at most {most} characters")));
    }
    Ok(())
}

fn check_job(what: &'static str, text: &str) -> Result<(), ParseError> {
    check_word(what, text).map_err(|error| match (jobs_of_slurm(text), job_meant(text)) {
        (Some(list), _) => ParseError { expected: format!("a JobId of Slurm, as printed by {list}"), ..error },
        (None, Some(meant)) => ParseError { expected: format!("{}: name this job {meant}", error.expected), ..error },
        (None, None) => error,
    })
}

/// Returns the command that shows the JobIds of a part of a heterogeneous job in Slurm (`12345+1`), or of several tasks
/// of a job array (`12_[3-5]`). Slurm gives each of them a JobId of its own, and the hooks name the job by it. `None`:
/// the text is neither.
fn jobs_of_slurm(text: &str) -> Option<String> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let set = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b"-,:%".contains(&b));
    if text.split_once('+').is_some_and(|(job, part)| number(job) && number(part)) {
        return Some(format!("squeue -h -j {text} -o %A"));
    }
    let (job, tasks) = text.split_once("_[")?;
    let is_set = number(job) && tasks.strip_suffix(']').is_some_and(set);
    is_set.then(|| format!("squeue -h -r -j \"{text}\" -o %A"))
}

/// Returns a job id for the id of a job array in PBS (`1234[5].pbs01`); `None`: the text is none. No script could have
/// such an id in a path or a unit.
fn job_meant(text: &str) -> Option<String> {
    let meant = text.replace('[', "_").replace(']', "");
    (meant != text && check_word("job id", &meant).is_ok()).then_some(meant)
}

fn check_word(what: &'static str, text: &str) -> Result<(), ParseError> {
    let fits = |i, b: u8| b.is_ascii_alphanumeric() || b == b'_' || (i > 0 && (b == b'.' || b == b'-'));
    check_set(what, text, 64, fits, "[A-Za-z0-9._-], not starting with `.` or `-`")
}

fn check_action(what: &'static str, text: &str) -> Result<(), ParseError> {
    let fits = |i, b: u8| b.is_ascii_lowercase() || (i > 0 && (b.is_ascii_digit() || b == b'-'));
    check_set(what, text, 32, fits, "[a-z][a-z0-9-]")
}

fn check_host(what: &'static str, text: &str) -> Result<(), ParseError> {
    let fits = |i, b: u8| b.is_ascii_alphanumeric() || b == b'_' || (i > 0 && (b == b'.' || b == b'-'));
    check_set(what, text, 253, fits, "[A-Za-z0-9._-], not starting with `.` or `-`")
}

fn check_resource(what: &'static str, text: &str) -> Result<(), ParseError> {
    let fits = |i, b: u8| b.is_ascii_alphanumeric() || b"_:".contains(&b) || (i > 0 && (b == b'.' || b == b'-'));
    check_set(what, text, 64, fits, "[A-Za-z0-9._:-], not starting with `.` or `-`")
}

fn check_token(what: &'static str, text: &str) -> Result<(), ParseError> {
    check_set(what, text, 64, |_, b| b.is_ascii_alphanumeric() || b"+-".contains(&b), "[A-Za-z0-9+-]")
}

fn check_invocation(what: &'static str, text: &str) -> Result<(), ParseError> {
    check_set(what, text, 32, |_, b| b.is_ascii_hexdigit(), "32 hexadecimal digits")?;
    if text.len() == 32 { Ok(()) } else { Err(ParseError::new(what, text, text.len(), "32 hexadecimal digits")) }
}

/// A position in the job's list of hosts, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An attempt: one launch of a job. The resource manager orders attempts by a non-negative decimal number with up to
/// nine digits after the point (Flux: the timestamp of `alloc`; Slurm: the restart count). `1.50` and `1.5` are the
/// same attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Attempt {
    whole: u64,
    nano: u32,
}

impl Attempt {
    pub const FIRST: Self = Self { whole: 0, nano: 0 };

    pub const fn from_number(whole: u64) -> Self {
        Self { whole, nano: 0 }
    }

    /// Returns the attempt of a Flux job whose `alloc` event has this timestamp (RFC 18: seconds since 1970). Rounds to
    /// microseconds: the hook and the edge read the same number from different logs, and must name the same attempt.
    /// `None`: the timestamp is negative, not finite, or 2^64 or more.
    pub fn of_alloc(timestamp: f64) -> Option<Self> {
        format!("{timestamp:.6}").parse().ok()
    }

    /// Returns the two parts of the attempt's number: the whole part, and the fraction in billionths.
    pub const fn parts(self) -> (u64, u32) {
        (self.whole, self.nano)
    }

    /// Returns the attempt with the number `whole` plus `nano` billionths; `None` if `nano` is a billion or more.
    pub const fn from_parts(whole: u64, nano: u32) -> Option<Self> {
        if nano < 1_000_000_000 { Some(Self { whole, nano }) } else { None }
    }

    /// Returns the attempt with the next whole number (`2` after `1` or `1.5`), for a resource manager that counts
    /// launches.
    pub const fn next(self) -> Self {
        Self { whole: self.whole.saturating_add(1), nano: 0 }
    }
}

impl FromStr for Attempt {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const WHAT: &str = "attempt";
        let err = |at: usize, expected: &str| ParseError::new(WHAT, text, at, expected);
        let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
        if whole.is_empty() {
            return Err(err(0, "a number"));
        }
        if let Some(at) = whole.bytes().position(|b| !b.is_ascii_digit()) {
            return Err(err(at, "a digit"));
        }
        let whole_number = whole.parse().map_err(|_| err(0, "a number below 2^64"))?;
        let mut nano = 0;
        if let Some(fraction) = fraction {
            let from = whole.len() + 1;
            if fraction.is_empty() {
                return Err(err(from, "a digit"));
            }
            if let Some(at) = fraction.bytes().position(|b| !b.is_ascii_digit()) {
                return Err(err(from + at, "a digit"));
            }
            if fraction.len() > 9 {
                return Err(err(from + 9, "at most nine digits after the point"));
            }
            nano = fraction.bytes().chain(std::iter::repeat(b'0')).take(9).fold(0, |n, b| n * 10 + u32::from(b - b'0'));
        }
        Ok(Self { whole: whole_number, nano })
    }
}

impl TryFrom<String> for Attempt {
    type Error = ParseError;
    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Attempt> for String {
    fn from(attempt: Attempt) -> Self {
        attempt.to_string()
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.pad(&self.whole.to_string());
        }
        let fraction = format!("{:09}", self.nano);
        f.pad(&format!("{}.{}", self.whole, fraction.trim_end_matches('0')))
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of a controller's cluster. Every [`ActionId`] is derived from this id, so two clusters never share an action
/// id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub Uuid);

impl ClusterId {
    /// The cluster id of tasks that a host runs for itself, without a controller (`io.perilog.Agent.Exec`).
    pub const LOCAL: Self = Self(Uuid::from_u128(0x7065_7269_6c6f_6700_8000_6c6f_6361_6c00));

    /// Derives the id of a cluster from its name. A controller that lost its store derives the same id again, and
    /// recognizes its actions on the nodes.
    pub fn from_name(name: &str) -> Self {
        Self(Uuid::new_v5(&Self::LOCAL.0, name.as_bytes()))
    }
}

/// The id of an action of one attempt: a name-based UUID (v5, RFC 9562) of cluster, job, attempt and action name. A
/// repeated request therefore names the same action.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(pub Uuid);

impl ActionId {
    pub fn of(cluster: ClusterId, job: &JobId, attempt: Attempt, action: &ActionName) -> Self {
        if crate::defect!(ForgetAttempt) {
            return Self(Uuid::new_v5(&cluster.0, format!("{job}\0{action}").as_bytes()));
        }
        // No part contains NUL, so two triples never make the same name.
        Self(Uuid::new_v5(&cluster.0, format!("{job}\0{attempt}\0{action}").as_bytes()))
    }

    /// Returns the last 12 hexadecimal digits: the part of the id in a unit's name.
    pub fn tail(self) -> String {
        let hex = self.0.as_simple().to_string();
        hex[20..].to_owned()
    }
}

impl fmt::Display for ActionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ActionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a task: an action on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    pub action: ActionId,
    pub rank: Rank,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.action, self.rank)
    }
}

/// The prefix of the unit names of all tasks. The prefix `perilog-` alone would match the units of perilog's daemons
/// too.
pub const UNIT_PREFIX: &str = "perilog-task-";

/// Returns the stem of a task: the name of the unit without `.service`, and of the task's directory. At most 134 bytes.
pub fn stem(action: &ActionName, job: &JobId, task: TaskId) -> String {
    format!("{UNIT_PREFIX}{action}-{job}-{}-{}", task.rank, task.action.tail())
}

/// Returns the name of a task's unit: the stem with `.service`.
pub fn unit_of(stem: &str) -> String {
    format!("{stem}.service")
}

/// An epoch of a controller. `number` grows with each start of a controller; `nonce` distinguishes two controllers with
/// the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch {
    pub number: u64,
    pub nonce: u64,
}

impl Epoch {
    /// Returns the highest number that an agent accepts at this time by its clock (ms since 1970).
    ///
    /// Without this bound, a thief with a stolen key could have agents accept one huge epoch, and no take-over of the
    /// true controller would find a higher number. The true number grows by one with each start of a controller, and
    /// stays far below the seconds since 1970. A number that a thief can reach today, a take-over reaches a day later
    /// ([`Self::highest_reachable`]).
    pub const fn highest_acceptable(wall_ms: u64) -> u64 {
        since_1970(wall_ms) + 2 * DAY
    }

    /// Returns the highest reported number that a take-over goes above, by the controller's clock (ms since 1970). It
    /// is a day below what agents accept, so an agent whose clock is a day behind the controller's accepts it too.
    pub const fn highest_reachable(wall_ms: u64) -> u64 {
        since_1970(wall_ms) + DAY
    }

    /// Returns `true` if an agent that has accepted `self` may accept `other`: `other` has a higher number, or both are
    /// the same epoch.
    pub const fn admits(self, other: Self) -> bool {
        other.number > self.number || (other.number == self.number && other.nonce == self.nonce)
    }
}

/// The number of seconds of a day.
const DAY: u64 = 86_400;

/// Returns the seconds since 1970. A clock that has lost the time counts as being in 2004.
const fn since_1970(wall_ms: u64) -> u64 {
    const LOST: u64 = 1 << 30;
    let seconds = wall_ms / 1000;
    if seconds < LOST { LOST } else { seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_take_over_reaches_is_accepted_by_a_clock_that_is_a_day_behind() {
        let now = 1_800_000_000_000;
        assert_eq!(Epoch::highest_reachable(now), Epoch::highest_acceptable(now - 86_400_000));
        // A clock that has lost the time counts as being in 2004.
        assert_eq!(Epoch::highest_acceptable(0), Epoch::highest_acceptable((1 << 30) * 1000));
    }

    /// One `alloc` event gives one attempt: its timestamp, of which Flux writes 17 digits, is rounded to microseconds.
    /// The hook and the edge read the timestamp from different logs (the eventlog, the journal).
    #[test]
    fn an_alloc_names_one_attempt() {
        for (written, attempt) in [
            ("1795423171.7712345", Some("1795423171.771235")),
            ("1795423171.7712340", Some("1795423171.771234")),
            ("1795423171.0000002", Some("1795423171")),
            ("1795423171.9999998", Some("1795423172")),
            ("1552593348.0882809", Some("1552593348.088281")),
            ("-1.5", None),
        ] {
            let timestamp: f64 = serde_json::from_str(written).unwrap();
            assert_eq!(Attempt::of_alloc(timestamp).map(|of| of.to_string()).as_deref(), attempt, "{written}");
        }
        assert_eq!((Attempt::of_alloc(f64::NAN), Attempt::of_alloc(f64::INFINITY)), (None, None));
    }

    #[test]
    fn texts_that_are_ids_and_texts_that_are_not() {
        let long = "j".repeat(65);
        #[rustfmt::skip]
        let table: &[(&str, fn(&str) -> Result<(), ParseError>, Result<(), usize>)] = &[
            ("fuZZybuNNy", |t| JobId::new(t).map(drop), Ok(())),
            ("1234.batch_0-1", |t| JobId::new(t).map(drop), Ok(())),
            ("", |t| JobId::new(t).map(drop), Err(1)),
            ("ƒuZZy", |t| JobId::new(t).map(drop), Err(1)),
            ("a/b", |t| JobId::new(t).map(drop), Err(2)),
            (&long, |t| JobId::new(t).map(drop), Err(65)),
            // Job ids reach scripts of root as `$PERILOG_JOB`, in `rm -rf "/scratch/$PERILOG_JOB"`.
            (".", |t| JobId::new(t).map(drop), Err(1)),
            ("..", |t| JobId::new(t).map(drop), Err(1)),
            ("-rf", |t| JobId::new(t).map(drop), Err(1)),
            ("_1.2-3", |t| JobId::new(t).map(drop), Ok(())),
            ("..", |t| MilestoneName::new(t).map(drop), Err(1)),
            ("-x", |t| MilestoneName::new(t).map(drop), Err(1)),
            (".x", |t| ResourceName::new(t).map(drop), Err(1)),
            ("-x", |t| ResourceName::new(t).map(drop), Err(1)),
            ("rabbit:0.1", |t| ResourceName::new(t).map(drop), Ok(())),
            ("prolog", |t| ActionName::new(t).map(drop), Ok(())),
            ("data-out2", |t| ActionName::new(t).map(drop), Ok(())),
            ("2nd", |t| ActionName::new(t).map(drop), Err(1)),
            ("Prolog", |t| ActionName::new(t).map(drop), Err(1)),
            ("pro log", |t| ActionName::new(t).map(drop), Err(4)),
            ("n0.site.example", |t| HostName::new(t).map(drop), Ok(())),
            ("-n0", |t| HostName::new(t).map(drop), Err(1)),
            ("n 0", |t| HostName::new(t).map(drop), Err(2)),
            ("0123456789abcdef0123456789abcdef", |t| InvocationId::new(t).map(drop), Ok(())),
            ("0123", |t| InvocationId::new(t).map(drop), Err(5)),
            ("7", |t| t.parse::<Attempt>().map(drop), Ok(())),
            ("1552593348.09283", |t| t.parse::<Attempt>().map(drop), Ok(())),
            (".5", |t| t.parse::<Attempt>().map(drop), Err(1)),
            ("5.", |t| t.parse::<Attempt>().map(drop), Err(3)),
            ("1e3", |t| t.parse::<Attempt>().map(drop), Err(2)),
            ("-1", |t| t.parse::<Attempt>().map(drop), Err(1)),
            ("1.0123456789", |t| t.parse::<Attempt>().map(drop), Err(12)),
            ("18446744073709551616", |t| t.parse::<Attempt>().map(drop), Err(1)),
        ];
        for (text, parse, expect) in table {
            assert_eq!(parse(text).map_err(|e| e.column()), *expect, "{text:?}");
        }
    }

    #[test]
    fn a_job_id_of_another_resource_manager_is_refused_with_a_name_for_it() {
        for (typed, meant) in [
            ("1234[5].pbs01", Some("1234_5.pbs01")),
            ("1234[].pbs01", Some("1234_.pbs01")),
            ("12345+1", None),
            ("12345/1", None),
            ("+1", None),
        ] {
            let text = JobId::new(typed).unwrap_err().to_string();
            let name = text.split_once(": name this job ").map(|(_, name)| name);
            assert_eq!(name, meant, "{text}");
        }
        for (typed, list) in [("12345+1", "-j 12345+1 -o %A"), ("12_[3-5,7%2]", "-r -j \"12_[3-5,7%2]\" -o %A")] {
            let text = JobId::new(typed).unwrap_err().to_string();
            assert!(text.contains(&format!("squeue -h {list}")), "{text}");
        }
        // The array ids of Slurm are job ids.
        assert!(JobId::new("12345_7").is_ok());
    }

    #[test]
    fn attempts_are_ordered_as_numbers_and_shown_canonically() {
        let parse = |t: &str| t.parse::<Attempt>().unwrap();
        assert!(parse("9") < parse("10") && parse("1.5") < parse("1.50001") && parse("1.50") == parse("1.5"));
        assert_eq!(parse("1552593348.092830").to_string(), "1552593348.09283");
        assert_eq!(parse("007").to_string(), "7");
        assert!(parse("1.5") < parse("1.5").next());
    }

    #[test]
    fn an_action_id_depends_on_every_part_and_on_nothing_else() {
        let of = |c: &str, j: &str, a: u64, n: &str| {
            ActionId::of(
                ClusterId::from_name(c),
                &JobId::new(j).unwrap(),
                Attempt::from_number(a),
                &ActionName::new(n).unwrap(),
            )
        };
        let one = of("c", "j1", 1, "prolog");
        assert_eq!(one, of("c", "j1", 1, "prolog"));
        for other in [
            of("d", "j1", 1, "prolog"),
            of("c", "j2", 1, "prolog"),
            of("c", "j1", 2, "prolog"),
            of("c", "j1", 1, "epilog"),
        ] {
            assert_ne!(one, other);
            assert_ne!(one.tail(), other.tail());
        }
    }

    #[test]
    fn the_longest_unit_name_fits_systemd() {
        let job = JobId::new(&"j".repeat(64)).unwrap();
        let action = ActionName::new(&"a".repeat(32)).unwrap();
        let id = ActionId::of(ClusterId::LOCAL, &job, Attempt::FIRST, &action);
        assert!(unit_of(&stem(&action, &job, TaskId { action: id, rank: Rank(u32::MAX) })).len() < 255);
    }

    #[test]
    fn an_epoch_admits_its_own_and_higher_ones_only() {
        let e = |number, nonce| Epoch { number, nonce };
        assert!(e(3, 1).admits(e(3, 1)) && e(3, 1).admits(e(4, 9)));
        assert!(!e(3, 1).admits(e(3, 2)) && !e(3, 1).admits(e(2, 1)));
    }
}
