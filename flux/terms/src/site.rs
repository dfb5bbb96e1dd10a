//! The table `[perilog]` of Flux's configuration: the cap of the site, and the place of epilogs.

use crate::json;
use crate::terms::{Cap, table};

/// The place where the epilog of a job runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Epilog {
    /// In the job: the plugin holds the job by a reference until the epilog of the last node has ended.
    #[default]
    Hold,
    /// After the job: Flux's own housekeeping waits on each node for the epilog of that node.
    Housekeeping,
}

impl Epilog {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Housekeeping => "housekeeping",
        }
    }

    fn read(value: &str) -> Result<Self, String> {
        let all = [Self::Hold, Self::Housekeeping];
        let named =
            |epilog: &Self| value.strip_prefix('"').and_then(|text| text.strip_suffix('"')) == Some(epilog.word());
        let wrong = || format!("[perilog] epilog: expected \"hold\" or \"housekeeping\", not {}", json::shown(value));
        all.into_iter().find(named).ok_or_else(wrong)
    }
}

/// A site's settings for perilog. Without a table: no cap, and epilogs in their jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    pub cap: Cap,
    pub epilog: Epilog,
}

impl Site {
    /// Creates the settings of a site without the table.
    pub const fn new() -> Self {
        Self { cap: Cap::all(), epilog: Epilog::Hold }
    }

    /// Creates the settings of a site with an unreadable table: the site tolerates nothing.
    pub fn unreadable() -> Self {
        Self { cap: Cap::none(), epilog: Epilog::Hold }
    }

    /// Reads the table `[perilog]`, as JSON.
    ///
    /// # Errors
    /// The key, the expected form, and the value found.
    pub fn read(table_perilog: &str) -> Result<Self, String> {
        let (epilog, rest): (Vec<_>, Vec<_>) =
            table("[perilog]", table_perilog)?.into_iter().partition(|(name, _)| *name == "epilog");
        let epilog = epilog.last().map_or(Ok(Epilog::Hold), |(_, value)| Epilog::read(value))?;
        Ok(Self { cap: Cap::of(rest)?, epilog })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Count;

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
                Err("[perilog]: unknown: epilogue; there are epilog, max-tolerate and max-tolerate-check"),
            ),
            ("1", Err("[perilog]: expected a table, not 1")),
        ] {
            assert_eq!(Site::read(text), expected.map_err(str::to_owned), "{text}");
        }
    }
}
