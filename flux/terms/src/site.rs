//! The table `[perilog]` of Flux's configuration: the site's cap on tolerated failures, and the place of epilogs.

use crate::json;
use crate::size::most_nodes;
use crate::terms::{Cap, Terms, table};

/// The way in which Flux waits for the epilogs of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Epilog {
    /// Epilogs belong to the job: the plugin holds the job by a reference until the epilog of the last node has ended.
    #[default]
    Hold,
    /// Epilogs follow the job: Flux ends the job, and its own housekeeping then waits on each node for that node's
    /// epilog.
    Housekeeping,
}

impl Epilog {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Housekeeping => "housekeeping",
        }
    }

    fn read(value: &str) -> Result<Self, String> {
        let all = [Self::Hold, Self::Housekeeping];
        let named =
            |epilog: &Self| value.strip_prefix('"').and_then(|text| text.strip_suffix('"')) == Some(epilog.as_str());
        let wrong = || format!("[perilog] epilog: expected \"hold\" or \"housekeeping\", not {}", json::shown(value));
        all.into_iter().find(named).ok_or_else(wrong)
    }
}

/// A site's settings for perilog in Flux's configuration (table `[perilog]`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    pub cap: Cap,
    pub epilog: Epilog,
    /// Whether only a job that is a Flux instance may tolerate failures: such a job's own scheduler gives the bad nodes
    /// no work.
    pub tolerate_needs_instance: bool,
}

impl Site {
    /// Creates the settings of a site without a table `[perilog]`: no cap, and epilogs that belong to their jobs.
    pub const fn new() -> Self {
        Self { cap: Cap::all(), epilog: Epilog::Hold, tolerate_needs_instance: false }
    }

    /// Creates the settings of a site whose table `[perilog]` cannot be read: no job may tolerate a failure.
    pub fn unreadable() -> Self {
        Self { cap: Cap::none(), ..Self::new() }
    }

    /// Reads the table `[perilog]`, as JSON.
    ///
    /// # Errors
    /// A text that describes the mistake, normally with the key, the expected form and the value found.
    pub fn read(table_perilog: &str) -> Result<Self, String> {
        let mut site = Self::new();
        let mut rest = Vec::new();
        for (name, value) in table("[perilog]", table_perilog)? {
            match name {
                "epilog" => site.epilog = Epilog::read(value)?,
                NEEDS_INSTANCE => site.tolerate_needs_instance = flag(NEEDS_INSTANCE, value)?,
                _ => rest.push((name, value)),
            }
        }
        Ok(Self { cap: Cap::of(rest)?, ..site })
    }

    /// Confirms that the site allows the job with this jobspec to have these terms.
    ///
    /// # Errors
    /// A text for the user about the first term that the site does not allow, or that asks for more nodes than the job
    /// can get.
    pub fn check(&self, terms: &Terms, jobspec: &str) -> Result<(), String> {
        if let (Some(keep), Some(most)) = (terms.keep, most_nodes(jobspec))
            && u64::from(keep) > most
        {
            return Err(format!("perilog.keep: {keep} is more than the number of nodes of this job, {most}"));
        }
        if self.tolerate_needs_instance && terms.tolerates() && !is_instance(jobspec) {
            let text = "this site allows it only for jobs that are Flux instances: use flux batch or flux alloc";
            return Err(format!("perilog.tolerate: {text}"));
        }
        terms.check(&self.cap)
    }
}

const NEEDS_INSTANCE: &str = "tolerate-needs-instance";

fn flag(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("[perilog] {name}: expected true or false, not {}", json::shown(value))),
    }
}

/// Returns `true` if the job starts brokers, as `flux batch`, `flux alloc` and `flux submit flux start` do.
fn is_instance(jobspec: &str) -> bool {
    let first = json::member(jobspec, "tasks").and_then(json::elements).and_then(|tasks| tasks.first().copied());
    let command = first.and_then(|task| json::member(task, "command")).and_then(json::elements).unwrap_or_default();
    let mut words = command.into_iter().filter_map(json::text);
    let is_flux = words.next().is_some_and(|program| program.rsplit('/').next() == Some("flux"));
    is_flux && words.next().is_some_and(|verb| ["broker", "start"].contains(&verb))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Count;

    #[test]
    fn a_site_may_allow_tolerance_to_instances_only() {
        let site = Site::read(r#"{"tolerate-needs-instance":true,"max-tolerate":2}"#).unwrap();
        let job = |command: &str| format!(r#"{{"tasks":[{{"command":{command},"slot":"task"}}],"version":1}}"#);
        for (command, terms, allowed) in [
            (r#"["flux","broker","{{tmpdir}}/script"]"#, r#"{"tolerate":1}"#, true),
            (r#"["/usr/bin/flux","start","x"]"#, r#"{"keep":1}"#, true),
            (r#"["flux","run","x"]"#, r#"{"tolerate":1}"#, false),
            (r#"["broker","flux"]"#, r#"{"tolerate":1}"#, false),
            (r#"["true"]"#, r#"{"tolerate-check":{"lustre":"1%"}}"#, false),
            (r#"["true"]"#, r#"{"tolerate":0}"#, true),
            ("[]", "{}", true),
            ("7", r#"{"tolerate":1}"#, false),
            (r#"["flux","broker"]"#, r#"{"tolerate":3}"#, false),
        ] {
            let terms = Terms::read(terms).unwrap();
            assert_eq!(site.check(&terms, &job(command)).is_ok(), allowed, "{command} {terms:?}");
            assert!(command == r#"["flux","broker"]"# || Site::new().check(&terms, &job(command)).is_ok());
        }
        assert!(Site::read(r#"{"tolerate-needs-instance":1}"#).unwrap_err().contains("expected true or false, not 1"));
    }

    #[test]
    fn a_job_keeps_no_more_nodes_than_it_has() {
        let job = |count: &str| format!(r#"{{"resources":[{{"type":"node","count":{count}}}]}}"#);
        let keeps = |keep: u32, count: &str| {
            Site::new().check(&Terms { keep: Some(keep), ..Terms::default() }, &job(count)).err()
        };
        assert_eq!((keeps(4, "4"), keeps(9, "\"4+\"")), (None, None));
        assert_eq!(keeps(9, "4").as_deref(), Some("perilog.keep: 9 is more than the number of nodes of this job, 4"));
    }

    #[test]
    fn a_table_is_read_and_a_malformed_one_is_refused() {
        let housekeeping = Site { epilog: Epilog::Housekeeping, ..Site::new() };
        let capped = Cap { tolerate: Some(Count::Ranks(1)), ..Cap::all() };
        for (text, expected) in [
            ("{}", Ok(Site::new())),
            (r#"{"epilog":"hold"}"#, Ok(Site::new())),
            (r#"{"epilog":"housekeeping"}"#, Ok(housekeeping.clone())),
            (r#"{"max-tolerate":1,"epilog":"housekeeping"}"#, Ok(Site { cap: capped, ..housekeeping })),
            (r#"{"epilog":"held"}"#, Err(r#"[perilog] epilog: expected "hold" or "housekeeping", not "held""#)),
            (r#"{"epilog":1}"#, Err(r#"[perilog] epilog: expected "hold" or "housekeeping", not 1"#)),
            (
                r#"{"epilogue":"hold"}"#,
                Err("[perilog]: unknown key epilogue; known are epilog, max-tolerate, max-tolerate-check and \
                     tolerate-needs-instance"),
            ),
            ("1", Err("[perilog]: expected a table, not 1")),
        ] {
            assert_eq!(Site::read(text), expected.map_err(str::to_owned), "{text}");
        }
    }
}
