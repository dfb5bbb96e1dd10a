//! Event log of a job (RFC 18) as the API returns it, and the log's events as lines for people.
//!
//! The controller defines the events' names and contexts. `perilog` shows the context of an unknown event as JSON: a
//! newer controller may log more.

use std::collections::BTreeMap;

use perilog_core::task::{Check, Process};
use perilog_core::{ActionName, Attempt, HostList, IdSet, JobId, Part, Span, Verdict};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::out::{Page, Render};
use crate::{style, text, when};

/// An event with its sequence number in the job's log.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Entry {
    /// The event's job; `None` where the log is of one job alone.
    #[serde(default)]
    pub(crate) job: Option<JobId>,
    pub(crate) sequence: u64,
    pub(crate) timestamp: f64,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) context: Map<String, Value>,
    /// The JSON of the whole event, as the controller sent it.
    #[serde(skip)]
    raw: Value,
}

/// The body of a reply of the method `Events`.
#[derive(Debug, Deserialize)]
pub(crate) struct Events {
    #[serde(deserialize_with = "entries")]
    pub(crate) events: Vec<Entry>,
}

fn entries<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
    let raw: Vec<Value> = Vec::deserialize(deserializer)?;
    raw.into_iter().map(|raw| Entry::read(raw).map_err(serde::de::Error::custom)).collect()
}

/// Shortest and longest duration among one or more ranks, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Spread {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// The content of an event `finish`: ranks that ended, all with the same result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Finish {
    pub(crate) ranks: IdSet,
    #[serde(default)]
    pub(crate) hosts: Option<HostList>,
    /// Outcome of the ranks: `ok`, `failed`, `lost` and so on.
    pub(crate) outcome: String,
    /// The outcome for people: `failed (exit 7)`.
    pub(crate) result: String,
    #[serde(default)]
    pub(crate) elapsed_ms: Option<Spread>,
    #[serde(default)]
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) checks: Vec<Check>,
}

/// The verdict of an action, with the outcomes of its ranks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Decided {
    pub(crate) action: ActionName,
    pub(crate) attempt: Attempt,
    pub(crate) verdict: Verdict,
    /// The largest exit status among the ranks' outcomes; 0 if no outcome has one. `None`: the event has no status.
    #[serde(default)]
    pub(crate) status: Option<u8>,
    #[serde(default)]
    pub(crate) ok: IdSet,
    /// The ranks of each outcome except `ok`.
    #[serde(default)]
    pub(crate) by_outcome: BTreeMap<String, IdSet>,
}

/// The content of an event, parsed for display.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EventBody {
    Start {
        ranks: IdSet,
        hosts: HostList,
    },
    Finish(Finish),
    Verdict(Decided),
    /// A line about an event without a variant of its own (overdue, lingering, milestone, cancel, late, and unknown
    /// events). `at`: the hosts or ranks; `word`: the word that gives the line its colour.
    Other {
        at: Option<String>,
        word: &'static str,
        text: String,
    },
}

impl Entry {
    pub(crate) fn read(raw: Value) -> serde_json::Result<Self> {
        Ok(Self { raw: raw.clone(), ..serde_json::from_value(raw)? })
    }

    pub(crate) fn attempt(&self) -> Option<Attempt> {
        self.text("attempt")?.parse().ok()
    }

    pub(crate) fn action(&self) -> Option<&str> {
        self.text("action")
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.context.get(key)?.as_str()
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        // The cast saturates: a negative time stamp becomes 0, an absurdly large one the largest number.
        (self.timestamp * 1000.0).round() as u64
    }

    fn context<'de, T: Deserialize<'de>>(&'de self) -> Option<T> {
        T::deserialize(&self.context).ok()
    }

    pub(crate) fn body(&self) -> EventBody {
        #[derive(Deserialize)]
        struct Start {
            ranks: IdSet,
            hosts: HostList,
        }
        let known = match self.name.as_str() {
            "action-start" => self.context().map(|Start { ranks, hosts }| EventBody::Start { ranks, hosts }),
            "finish" => self.context().map(EventBody::Finish),
            "verdict" => self.context().map(EventBody::Verdict),
            _ => None,
        };
        known.unwrap_or_else(|| self.other())
    }

    /// Returns the ranks and resources that the event names, as text; `?` if they are malformed.
    fn part_text(&self) -> String {
        Part::deserialize(&self.context).map_or_else(|_| "?".to_owned(), |part| part.to_string())
    }

    fn other(&self) -> EventBody {
        let host = self.text("hosts").or_else(|| self.text("host")).map(text::line);
        let at = || host.clone().or_else(|| Some(ranks(self.text("ranks")?)));
        let field = |key: &str| self.context.get(key).map(value).unwrap_or_default();
        let (at, word, text) = match self.name.as_str() {
            "attempt" => {
                let owner = self.context.get("userid").and_then(Value::as_u64).map(|uid| format!(" of uid {uid}"));
                (at(), "", format!("attempt {}{}", field("attempt"), owner.unwrap_or_default()))
            }
            "attempt-closed" => (None, "", format!("attempt {} closed: {}", field("attempt"), field("why"))),
            "attempt-abandoned" => {
                let text = format!(
                    "attempt {} is abandoned until a hook, an edge or a user asks for it ({}); see perilog ps \
                     --abandoned",
                    field("attempt"),
                    field("why")
                );
                (None, "waiting", text)
            }
            "attempt-taken-up" => (None, "", format!("attempt {} was asked for again", field("attempt"))),
            "given-up" => (at(), "", format!("given up by attempt {}: {}", field("attempt"), field("why"))),
            "milestone" if self.context.contains_key("ranks") => {
                let by = self.context.get("by").map(|by| format!(", reported by uid {}", value(by)));
                (at(), "", format!("reached {}{}", field("name"), by.unwrap_or_default()))
            }
            "milestone" => {
                let without = self.text("without").map(|without| format!(", without {}", ranks(without)));
                (None, "ok", format!("the job has reached {}{}", field("name"), without.unwrap_or_default()))
            }
            "milestones-full" => (
                None,
                "",
                format!(
                    "attempt {} has reached the limit of {} milestones; the controller drops further ones",
                    field("attempt"),
                    field("most")
                ),
            ),
            "expect-reboot" => {
                let within = self.context.get("within_ms").and_then(Value::as_u64);
                let within = within.map(|ms| format!(" within {}", text::age(ms))).unwrap_or_default();
                (at(), "rebooting", format!("the node is to boot{within}, and the boot ends the task"))
            }
            "overdue" => {
                let limit =
                    self.context.get("limit_ms").and_then(Value::as_u64).map_or_else(|| "?".to_owned(), text::age);
                let doing = Some(field("doing")).filter(|doing| !doing.is_empty()).map(|doing| format!(": {doing}"));
                let doing = doing.unwrap_or_default();
                (
                    at(),
                    "overdue",
                    format!("overdue: {} is past its limit of {limit}, and keeps running{doing}", field("script")),
                )
            }
            "lingering" => {
                let left = self.context.get("processes").map(processes).unwrap_or_default();
                (at(), "lingering", format!("lingering: the scripts ended, these processes did not: {left}"))
            }
            "lease-expired" => {
                let lease = field("lease").parse::<Span>().map_or_else(|_| field("lease"), |lease| lease.to_string());
                (
                    at(),
                    "lost",
                    format!("the service reported nothing for its lease of {lease}; lost: {}", self.part_text()),
                )
            }
            "cancel" => {
                let why = Some(field("why")).filter(|why| !why.is_empty()).map(|why| format!(": {why}"));
                let text = match field("by") {
                    by if by.is_empty() => "will not begin".to_owned(),
                    by => format!("uid {by} requested a cancel"),
                };
                (at(), "cancelled", format!("{text}{}", why.unwrap_or_default()))
            }
            "resolve" => {
                let ok = self.context.get("ok").is_some_and(|ok| ok == true);
                let what = format!(
                    "uid {} resolves this as {} when the drain of the node is in force: {}",
                    field("by"),
                    if ok { "ok" } else { "failed" },
                    field("reason")
                );
                (at(), "resolving", what)
            }
            "job-finish" | "job-hand-over" => (at(), "", format!("the job dropped its hold on {}", self.part_text())),
            "shrink" => (at(), "", format!("dropped from the job, which continues with {}", field("left_hosts"))),
            "release" => {
                let last = self.context.get("final").is_some_and(|last| last == true);
                (at(), "ok", format!("released: {}{}", self.part_text(), if last { "; this was the last" } else { "" }))
            }
            "closed" => (at(), "", format!("released without a notice: {}", self.part_text())),
            "drain" => (at(), "failed", format!("drained: {}", field("reason"))),
            "exception" => {
                let checks = self.context.get("checks").map(checks).unwrap_or_default();
                (at(), "tolerable", format!("{} (severity {}){checks}", field("type"), field("severity")))
            }
            "late" => (at(), "unknown", format!("arrived late and changes no outcome: {}", field("result"))),
            _ => (None, "", text::line(&Value::Object(self.context.clone()).to_string())),
        };
        EventBody::Other { at, word, text }
    }
}

/// Returns the failed checks as text, such as `: lustre: mount missing` for each; at most four.
fn checks(list: &Value) -> String {
    let list = Vec::<Check>::deserialize(list).unwrap_or_default();
    list.iter().take(4).map(|c| format!(": {}: {}", text::line(&c.check), text::line(&c.message))).collect()
}

/// Formats a JSON value for people: a string without its quotes, and with its control characters escaped.
fn value(value: &Value) -> String {
    text::line(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// Formats `rank 3` or `ranks 0-3`; shows a text that is no idset unchanged.
fn ranks(ranks: &str) -> String {
    match ranks.parse::<IdSet>() {
        Ok(ranks) => Part::of_ranks(ranks).to_string(),
        Err(_) => format!("ranks {}", text::line(ranks)),
    }
}

fn processes(list: &Value) -> String {
    match Vec::<Process>::deserialize(list) {
        Ok(list) => {
            let named: Vec<String> =
                list.iter().take(4).map(|p| format!("{} ({})", p.pid, text::line(&p.command))).collect();
            let more = if list.len() > 4 { format!(" and {} more", list.len() - 4) } else { String::new() };
            format!("{}{more}", named.join(", "))
        }
        Err(_) => value(list),
    }
}

impl Render for Entry {
    fn table(&self, page: &mut Page) {
        let (at, what) = match self.body() {
            EventBody::Start { ranks, hosts } => {
                (hosts.to_string(), format!("begins on {}", text::count(ranks.len(), "rank")))
            }
            EventBody::Finish(finish) => {
                let at = finish.hosts.as_ref().map_or_else(|| text::ranks(&finish.ranks), ToString::to_string);
                (at, finish.text())
            }
            EventBody::Verdict(decided) => (String::new(), decided.text(None)),
            EventBody::Other { at, word, text } => (at.unwrap_or_default(), style::worded(word, &text)),
        };
        let action = text::line(self.action().unwrap_or_default());
        let stamp = when::milli(self.wall_ms());
        let at = if at.is_empty() { at } else { format!("{at}: ") };
        let job = self.job.as_ref().map(|job| format!("{job:<12}  ")).unwrap_or_default();
        page.line(format_args!(
            "{job}{:>5}  {}  {:<12}  {action:<12}  {at}{what}",
            self.sequence,
            style::QUIET.style(stamp),
            text::line(&self.name)
        ));
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        page.line(text::line(&self.name));
    }
}

impl Finish {
    /// Returns the ranks' result as a line, such as `failed (exit 7): "mount: no such device"  400ms`.
    pub(crate) fn text(&self) -> String {
        result_line(
            &self.outcome,
            &self.result,
            self.message.as_deref(),
            &self.checks,
            self.elapsed_ms.map(|e| (e.min, e.max)),
        )
    }
}

pub(crate) fn result_line(
    outcome: &str,
    result: &str,
    message: Option<&str>,
    checks: &[Check],
    elapsed: Option<(u64, u64)>,
) -> String {
    let mut line = style::worded(outcome, &text::line(result));
    match (message.filter(|m| !m.trim().is_empty()), checks.split_first()) {
        (Some(message), _) => line.push_str(&format!(": {}", text::quoted(message))),
        (None, Some((first, more))) => {
            line.push_str(&format!(": {} {}", text::line(&first.check), text::quoted(&first.message)));
            if !more.is_empty() {
                line.push_str(&format!(" and {}", text::count(more.len() as u64, "more check")));
            }
        }
        (None, None) => {}
    }
    if let Some((min, max)) = elapsed {
        line.push_str(&format!("  {}", style::QUIET.style(text::elapsed_between(min, max))));
    }
    line
}

impl Decided {
    /// Returns the verdict in a line, such as `ok on 4 ranks`, or with known hosts `failed: 3 ok, 1 failed (n3)`.
    pub(crate) fn text(&self, roster: Option<&Roster>) -> String {
        let verdict = style::worded(self.verdict.as_str(), self.verdict.as_str());
        let bad: Vec<_> = self.by_outcome.iter().filter(|(word, _)| *word != "ok").collect();
        if bad.is_empty() {
            return format!("{verdict} on {}", text::count(self.ok.len(), "rank"));
        }
        let mut counts: Vec<String> = Vec::new();
        if !self.ok.is_empty() {
            counts.push(format!("{} ok", self.ok.len()));
        }
        for (word, ranks) in bad {
            let named = roster.map(|roster| format!(" ({})", roster.name(ranks))).unwrap_or_default();
            counts.push(format!("{} {}{named}", ranks.len(), text::line(word)));
        }
        format!("{verdict}: {}", counts.join(", "))
    }

    /// Returns the ranks whose outcome is one of `words`.
    pub(crate) fn ranks(&self, words: &[&str]) -> IdSet {
        let named = self.by_outcome.iter().filter(|(word, _)| words.contains(&word.as_str()));
        named.fold(IdSet::new(), |all, (_, ranks)| all.union(ranks))
    }
}

/// The hosts of an action's ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Roster {
    pub(crate) ranks: IdSet,
    /// The hosts, in rank order.
    pub(crate) hosts: HostList,
}

impl Roster {
    /// Returns the action's ranks that are among `ranks`, in order, each with its host.
    pub(crate) fn of<'a>(&'a self, ranks: &'a IdSet) -> impl Iterator<Item = (u32, &'a str)> {
        self.ranks.iter().zip(self.hosts.iter()).filter(|(rank, _)| ranks.contains(*rank))
    }

    /// Returns the hosts of `ranks` as a host list, such as `n[0-3]`. Returns the ranks themselves if the host of one
    /// is not known.
    pub(crate) fn name(&self, ranks: &IdSet) -> String {
        match HostList::from_names(self.of(ranks).map(|(_, host)| host)) {
            Ok(hosts) if hosts.len() as u64 == ranks.len() => hosts.to_string(),
            _ => text::ranks(ranks),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::out::tests::render;

    fn entry(name: &str, context: Value) -> Entry {
        Entry::read(json!({"sequence": 7, "timestamp": 1_795_144_327.123, "name": name, "context": context})).unwrap()
    }

    #[test]
    fn every_event_is_one_line_for_people_and_itself_for_programs() {
        let prolog = |more: Value| {
            let mut context = json!({"action": "prolog", "attempt": "0", "ranks": "3", "hosts": "n3"});
            if let (Value::Object(all), Value::Object(more)) = (&mut context, more) {
                all.extend(more);
            }
            context
        };
        #[rustfmt::skip]
        let table = [
            ("attempt", json!({"attempt": "0", "hosts": "n[0-3]", "userid": 1000}),
             "attempt                     n[0-3]: attempt 0 of uid 1000"),
            ("action-start", json!({"action": "prolog", "attempt": "0", "id": "x", "ranks": "0-3", "hosts": "n[0-3]"}),
             "action-start  prolog        n[0-3]: begins on 4 ranks"),
            ("finish", prolog(json!({"outcome": "failed", "result": "failed (exit 7)", "status": 7,
                                     "message": "no \u{1b}dev",
                                     "elapsed_ms": {"min": 400, "median": 400, "max": 400}})),
             "finish        prolog        n3: failed (exit 7): \"no \\u{1b}dev\"  400ms"),
            ("finish", prolog(json!({"outcome": "tolerable", "result": "tolerable",
                                     "checks": [{"check": "lustre", "message": "no mount"},
                                                {"check": "gpu", "message": "x"}]})),
             "finish        prolog        n3: tolerable: lustre \"no mount\" and 1 more check"),
            ("expect-reboot", prolog(json!({"within_ms": 600_000})),
             "expect-reboot  prolog        n3: the node is to boot within 10m, and the boot ends the task"),
            ("milestone", prolog(json!({"name": "data-out"})), "milestone     prolog        n3: reached data-out"),
            ("milestone", json!({"attempt": "0", "name": "data-out", "ranks": "0-1", "hosts": "n[0-1]", "by": 0}),
             "milestone                   n[0-1]: reached data-out, reported by uid 0"),
            ("milestone", json!({"attempt": "0", "name": "data-out", "without": "3"}),
             "milestone                   the job has reached data-out, without rank 3"),
            ("overdue", prolog(json!({"script": "10-mount.sh", "limit_ms": 600_000})),
             "overdue       prolog        n3: overdue: 10-mount.sh is past its limit of 10m, and keeps running"),
            ("overdue", prolog(json!({"script": "10-mount.sh", "limit_ms": 600_000,
                                      "doing": "4711 D mount in rpc_wait"})),
             "overdue       prolog        n3: overdue: 10-mount.sh is past its limit of 10m, and keeps running: 4711 D \
              mount in rpc_wait"),
            ("lingering", prolog(json!({"processes": [{"pid": 42, "command": "mountd"}]})),
             "lingering     prolog        n3: lingering: the scripts ended, these processes did not: 42 (mountd)"),
            ("resolve", prolog(json!({"ok": true, "by": 0, "reason": "it is gone"})),
             "resolve       prolog        n3: uid 0 resolves this as ok when the drain of the node is in force: it is \
              gone"),
            ("cancel", json!({"action": "prolog", "attempt": "0", "ranks": "0-3", "why": "wrong job", "by": 0}),
             "cancel        prolog        ranks 0-3: uid 0 requested a cancel: wrong job"),
            ("late", json!({"action": "prolog", "attempt": "0", "rank": 3, "host": "n3", "outcome": "ok",
                            "result": "ok"}),
             "late          prolog        n3: arrived late and changes no outcome: ok"),
            ("verdict", json!({"action": "prolog", "attempt": "0", "verdict": "failed", "status": 7, "ok": "0-2",
                               "by_outcome": {"failed": "3"}}),
             "verdict       prolog        failed: 3 ok, 1 failed"),
            ("attempt-closed", json!({"attempt": "0", "why": "a newer one"}),
             "attempt-closed                attempt 0 closed: a newer one"),
            ("brand-new", json!({"x": 1}), "brand-new                   {\"x\":1}"),
            ("finish", json!({"ranks": 3}), "finish                      {\"ranks\":3}"),
        ];
        for (name, context, expect) in table {
            let entry = entry(name, context);
            let [people, json, quiet] = render(&entry, 0);
            let rest = &people.trim_end()[5 + 2 + when::milli(entry.wall_ms()).len() + 2..];
            assert_eq!(rest, expect);
            assert_eq!(json, entry.raw.to_string());
            assert_eq!(quiet, format!("{name}\n"));
        }
    }

    #[test]
    fn a_roster_names_ranks_that_do_not_begin_at_zero() {
        let roster = Roster { ranks: "4-6".parse().unwrap(), hosts: "n[0-2]".parse().unwrap() };
        for (ranks, expect) in [("4,6", "n[0,2]"), ("5", "n1"), ("9", "rank 9"), ("", "")] {
            assert_eq!(roster.name(&ranks.parse().unwrap()), expect, "{ranks}");
        }
    }
}
