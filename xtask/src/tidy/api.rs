//! The reference of the API (docs/api.md) names every member of what its replies show.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Findings;

const PAGE: &str = "docs/api.md";
/// Files with the bodies of replies, and the structures to check there; all structures if none are named.
const BODIES: [(&str, &[&str]); 3] = [
    ("core/src/controller/interface/view.rs", &[]),
    ("core/src/task.rs", &["Ended", "Step", "Check", "Tail", "Process"]),
    ("core/src/controller/stored/rows.rs", &["DrainRow", "External"]),
];

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
    let page = read(PAGE)?;
    for (file, structures) in BODIES {
        let members = members(&read(file)?, structures);
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

/// The public fields of these structures.
fn members(source: &str, structures: &[&str]) -> Vec<String> {
    let mut inside = false;
    let mut found: Vec<String> = Vec::new();
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            inside = structures.is_empty() || structures.contains(&name);
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
    fn every_member_is_looked_for() {
        let source = "pub struct A {\n    /// x\n    pub one: u8,\n}\n\npub struct B {\n    pub two: String,\n    three: u8,\n}\nimpl B {\n    pub fn four(x: u8) {}\n}\n";
        assert_eq!(members(source, &[]), ["one", "two"]);
        assert_eq!(members(source, &["B"]), ["two"]);
        let members = members(source, &[]);
        assert_eq!(missing("`one`, two", &members).collect::<Vec<_>>(), ["two"]);
    }
}
