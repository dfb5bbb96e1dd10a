//! Check of the API's texts: docs/api.md names every member of the replies, and schema/perilog.schema.json describes
//! every member that `--json` prints.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Findings;

const PAGE: &str = "docs/api.md";
const SCHEMA: &str = "schema/perilog.schema.json";
/// Source files with the structures of replies, and the structures to check there. An empty list: all.
const BODIES: [(&str, &[&str]); 4] = [
    ("core/src/controller/interface/view.rs", &[]),
    ("core/src/task/ended.rs", &["Ended"]),
    ("core/src/task.rs", &["Step", "Check", "Tail", "Process"]),
    ("core/src/controller/stored/rows.rs", &["DrainRow", "External"]),
];

/// Structures of replies that no verb prints, because only an edge asks for them.
const UNPRINTED: [&str; 2] = ["EdgeAttempt", "EdgeAction"];

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
    let (page, schema) = (read(PAGE)?, read(SCHEMA)?);
    for (file, structures) in BODIES {
        let source = read(file)?;
        let printed = members(&source, structures, &UNPRINTED);
        let described = |member: &&String| schema.contains(&format!("\"{member}\": {{"));
        let silent = printed.iter().filter(|member| !described(member));
        findings.errors.extend(silent.map(|member| format!("{SCHEMA}: says nothing of `{member}` ({file})")));
        let members = members(&source, structures, &[]);
        ensure!(members.len() >= structures.len().max(1), "{file}: no structures that {PAGE} could be about");
        findings
            .errors
            .extend(missing(&page, &members).map(|member| format!("{PAGE}: says nothing of `{member}` ({file})")));
    }
    Ok(())
}

fn missing<'m>(page: &str, members: &'m [String]) -> impl Iterator<Item = &'m String> {
    members.iter().filter(move |member| !page.contains(&format!("`{member}`")))
}

/// Returns the names of the public fields of the structures `structures` (empty: of all structures in `source`),
/// without those of `others`.
fn members(source: &str, structures: &[&str], others: &[&str]) -> Vec<String> {
    let mut inside = false;
    let mut found: Vec<String> = Vec::new();
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            inside = (structures.is_empty() || structures.contains(&name)) && !others.contains(&name);
        } else if line.starts_with('}') {
            inside = false;
        }
        let field = line.strip_prefix("    pub ").and_then(|rest| rest.split_once(": ")).filter(|_| inside);
        found.extend(field.map(|(name, _)| name.to_owned()).filter(|name| !found.contains(name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_searched() {
        let source = "pub struct A {\n    /// x\n    pub one: u8,\n}\n\npub struct B \
                      {\n    pub two: String,\n    three: u8,\n}\nimpl B {\n    pub fn four(x: u8) {}\n}\n";
        assert_eq!(members(source, &[], &[]), ["one", "two"]);
        assert_eq!(members(source, &["B"], &[]), ["two"]);
        assert_eq!(members(source, &[], &["B"]), ["one"]);
        let members = members(source, &[], &[]);
        assert_eq!(missing("`one`, two", &members).collect::<Vec<_>>(), ["two"]);
    }
}
