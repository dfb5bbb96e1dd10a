//! Guides of the book as packages install them. Each file is complete: it contains what the book includes, and its
//! links lead to files installed beside it, or are plain text.

/// File name and Markdown text of each guide, which is a page of the book that packages install.
const GUIDES: [(&str, &str); 12] = [
    ("administration.md", include_str!("../../docs/administration.md")),
    ("api.md", include_str!("../../docs/api.md")),
    ("begin.md", include_str!("../../docs/begin.md")),
    ("concepts.md", include_str!("../../docs/concepts.md")),
    ("flux.md", include_str!("../../docs/flux.md")),
    ("operate.md", include_str!("../../docs/operate.md")),
    ("quickstart.md", include_str!("../../docs/quickstart.md")),
    ("scripts.md", include_str!("../../docs/scripts.md")),
    ("security.md", include_str!("../../docs/security.md")),
    ("semantics.md", include_str!("../../docs/semantics.md")),
    ("slurm.md", include_str!("../../docs/slurm.md")),
    ("troubleshooting.md", include_str!("../../docs/troubleshooting.md")),
];

/// Each `{{#include ...}}` line by which a guide includes a file, with the text of that file.
const INCLUDED: [(&str, &str); 3] = [
    (
        "{{#include ../controller/src/api/io.perilog.Controller.varlink}}",
        include_str!("../../controller/src/api/io.perilog.Controller.varlink"),
    ),
    (
        "{{#include ../agent/src/local/io.perilog.Agent.varlink}}",
        include_str!("../../agent/src/local/io.perilog.Agent.varlink"),
    ),
    ("{{#include ../packaging/agent.d/slurm.toml}}", include_str!("../../packaging/agent.d/slurm.toml")),
];

/// Returns each guide: its file name, and its text as packages install it.
pub fn guides() -> impl Iterator<Item = (&'static str, String)> {
    GUIDES.into_iter().map(|(name, text)| (name, installed(text)))
}

fn installed(text: &str) -> String {
    let mut text = text.to_owned();
    for (line, what) in INCLUDED {
        text = text.replace(line, what.trim_end());
    }
    let mut left = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, target, after)) = next_link(rest) {
        match (is_installed(target), before.rfind('[')) {
            (false, Some(open)) => {
                left.push_str(&before[..open]);
                left.push_str(&before[open + 1..]);
            }
            _ => left.push_str(&format!("{before}]({target})")),
        }
        rest = after;
    }
    left + rest
}

/// Splits a text at its first Markdown link, `before](target)after`; `None`: the text has no link.
pub fn next_link(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("](")?;
    let (target, after) = rest.split_once(')')?;
    Some((before, target, after))
}

/// Returns `true` if the link leads to a place in the same file, to a web page, or to a file installed beside the
/// guides.
pub fn is_installed(target: &str) -> bool {
    let file = target.split('#').next().unwrap_or_default();
    file.is_empty()
        || target.starts_with("https://")
        || file.starts_with("examples/")
        || GUIDES.iter().any(|(name, _)| *name == file)
}
