//! Links of the book (docs/): the table of contents names every page, and every link leads to an existing target.
//! mdbook renders the book; this module does not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;

const BOOK: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";

/// All pages of the book, and all other files to which a page may link, by their paths from the root of the source.
#[derive(Debug, Default)]
pub(super) struct Book {
    pages: BTreeMap<String, String>,
    files: BTreeSet<String>,
}

impl Book {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut book = Self::default();
        let mut open = vec![root.join(BOOK)];
        while let Some(directory) = open.pop() {
            let entries = std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
            for entry in entries {
                let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                if path.is_dir() {
                    open.push(path);
                } else if name.ends_with(".md") {
                    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {name}"))?;
                    book.pages.insert(name, text);
                } else {
                    book.files.insert(name);
                }
            }
        }
        Ok(book)
    }

    /// Checks that the table of contents names every page, that every link leads somewhere, and that every included
    /// file exists. `root`: the root of the source tree.
    pub(super) fn check(&self, root: &Path, findings: &mut Findings) {
        let Some(summary) = self.pages.get(SUMMARY) else {
            return findings.errors.push(format!("no {SUMMARY}: the book has no table of contents"));
        };
        let listed: BTreeSet<String> =
            links(summary).filter_map(|link| resolve(SUMMARY, link.split('#').next()?)).collect();
        for page in self.pages.keys().filter(|page| *page != SUMMARY && !listed.contains(*page)) {
            let path = page.strip_prefix("docs/").unwrap_or(page);
            findings.errors.push(format!(
                "{SUMMARY}: does not name {page}: add `- [Its title]({path})` where a reader would look for it"
            ));
        }
        for (page, text) in &self.pages {
            for link in links(text) {
                if let Some(wrong) = self.wrong(page, link) {
                    findings.errors.push(format!("{page}: [...]({link}): {wrong}"));
                }
            }
            for included in text.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next()) {
                if !resolve(page, included).is_some_and(|path| root.join(path).is_file()) {
                    findings.errors.push(format!("{page}: {{{{#include {included}}}}}: there is no such file"));
                }
            }
        }
    }

    /// Returns what is wrong with a link of that page; `None`: nothing, or the link leads to another site.
    fn wrong(&self, page: &str, link: &str) -> Option<String> {
        if link.is_empty() {
            // A chapter that is yet to be written, which the book shows in grey.
            return (page != SUMMARY).then(|| "leads nowhere".to_owned());
        }
        if link.contains("://") || link.starts_with("mailto:") {
            return None;
        }
        let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
        let target = if path.is_empty() { Some(page.to_owned()) } else { resolve(page, path) };
        let Some(target) = target else { return Some("leads out of the source".to_owned()) };
        if self.files.contains(&target) {
            return None;
        }
        let Some(text) = self.pages.get(&target) else {
            return Some(match target.starts_with("docs/") {
                true => format!("there is no {target}"),
                false => {
                    format!("leads out of the book, to {target}: name it as `code`, or link to where it is published")
                }
            });
        };
        let missing = anchor.filter(|anchor| !anchors(text).contains(*anchor))?;
        Some(format!(
            "{target} has no heading {missing:?}; it has {}",
            anchors(text).into_iter().collect::<Vec<_>>().join(", ")
        ))
    }
}

/// Resolves a link of `page`, such as `../x.md`, to a path from the root of the source; `None`: it leads out of the
/// source.
fn resolve(page: &str, link: &str) -> Option<String> {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path.to_string_lossy().into_owned())
}

/// Returns the lines of a page outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns the targets of all links `[text](target)` in a page, outside of code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| {
        let mut found = Vec::new();
        let spoken = line.split('`').step_by(2);
        for part in spoken {
            // The text of a link may contain `code`: then its end begins the next part.
            let ends = part.match_indices("](").map(|(at, _)| at);
            found.extend(ends.filter_map(|at| part[at + 2..].split_once(')').map(|(link, _)| link)));
        }
        found
    })
}

/// Returns the anchors that mdbook (and GitHub) make of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let heading = heading.trim_start_matches('#').trim();
        let slug: String = heading
            .chars()
            .filter_map(|c| match c {
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
                c if c.is_whitespace() => Some('-'),
                _ => None,
            })
            .collect();
        let again = (1..).map(|number| format!("{slug}-{number}"));
        let free = std::iter::once(slug.clone()).chain(again).find(|slug| !found.contains(slug));
        found.extend(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(pages: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Findings::default();
        let pages = pages.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Book { pages, files: ["docs/x.svg".to_owned()].into() }.check(Path::new("/nowhere"), &mut findings);
        findings.errors
    }

    #[test]
    fn every_page_is_listed_and_every_link_leads_somewhere() {
        let a = "# A page, *so*!\n\n## Twice\n## Twice\n";
        let cases = [
            ("[b](b.md) [up](sub/c.md#twice-1) [self](#b) [out](https://x.org/y#z) ![p](x.svg)", None),
            ("`[no](nowhere.md)` and\n```\n[no](nowhere.md)\n```\n", None),
            ("[`code` in it](sub/c.md#a-page-so)", None),
            ("[b](nowhere.md)", Some("there is no docs/nowhere.md")),
            ("[b](sub/c.md#thrice)", Some("has no heading \"thrice\"")),
            ("[b](../README.md)", Some("leads out of the book")),
            ("[b](../../x)", Some("leads out of the source")),
            ("[b]()", Some("leads nowhere")),
            ("```text\n{{#include ../x.varlink}}\n```", Some("{{#include ../x.varlink}}: there is no such file")),
        ];
        for (text, expected) in cases {
            let summary = "[A](b.md)\n- [C](sub/c.md)\n- [Later]()\n";
            let errors = book(&[(SUMMARY, summary), ("docs/b.md", &format!("# B\n{text}")), ("docs/sub/c.md", a)]);
            assert_eq!(errors.len(), usize::from(expected.is_some()), "{text}: {errors:?}");
            assert!(expected.is_none_or(|expected| errors[0].contains(expected)), "{errors:?}");
        }
        let errors = book(&[(SUMMARY, "- [A](b.md)"), ("docs/b.md", ""), ("docs/sub/c.md", a)]);
        assert!(errors.len() == 1 && errors[0].contains("add `- [Its title](sub/c.md)`"), "{errors:?}");
        assert!(book(&[])[0].contains("no docs/SUMMARY.md"));
    }
}
