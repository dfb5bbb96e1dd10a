//! Page as man(7) macros that both groff and mandoc read: short lines, a sentence on a line of its own, everything
//! escaped.

use std::fmt::Write;

use crate::page::{Block, Page};

/// Longest line of text in the file; mandoc wants less than 80 bytes.
const WIDTH: usize = 72;

/// Renders a page as man(7) macros. `date`: such as 2026-11-21; empty if unknown.
pub fn render(page: &Page, date: &str, version: &str) -> String {
    let title = page.name.to_uppercase();
    let mut out = format!(
        ".\\\" Made by `cargo xtask pages` from what the programs say of themselves; do not edit.\n.TH {} {} {} {} \
         perilog\n.nh\n.ad l\n",
        quoted(&title),
        page.section,
        // mandoc reads a date only with hyphens; `quoted` would turn the hyphens into minus signs.
        format_args!("\"{date}\""),
        quoted(&format!("perilog {version}"))
    );
    out.push_str(".SH NAME\n");
    fill(&mut out, &format!("{} \\- {}", escape(&page.name), inline(&page.brief)));
    for (title, blocks) in &page.sections {
        let _ = writeln!(out, ".SH {}", quoted(title));
        let breaks = if title == "SYNOPSIS" { Breaks::Lines } else { Breaks::Sentences };
        body(&mut out, blocks, breaks);
    }
    out
}

/// Rule by which the renderer breaks a paragraph into lines.
#[derive(Clone, Copy, PartialEq)]
enum Breaks {
    /// Each sentence begins on a line of its own; long sentences are wrapped.
    Sentences,
    /// Each line of the text stays a line of its own: for a synopsis.
    Lines,
}

fn body(out: &mut String, blocks: &[Block], breaks: Breaks) {
    // The first paragraph after a heading needs no macro.
    let mut fresh = true;
    for block in blocks {
        match block {
            Block::Paragraph(text) => {
                if !fresh {
                    out.push_str(".PP\n");
                }
                match breaks {
                    Breaks::Sentences => fill(out, &inline(text)),
                    Breaks::Lines => synopsis(out, text),
                }
            }
            Block::Tagged(tags, blocks) => {
                for (at, tag) in tags.iter().enumerate() {
                    let _ = writeln!(out, "{}\n{}", if at == 0 { ".TP" } else { ".TQ" }, guard(&inline(tag)));
                }
                tagged(out, blocks);
            }
            Block::Bullet(text) => {
                out.push_str(".IP \\(bu 2\n");
                fill(out, &inline(text));
            }
            Block::Literal(lines) => {
                if !fresh {
                    out.push_str(".PP\n");
                }
                literal(out, lines);
            }
            Block::Heading(text) => {
                let _ = writeln!(out, ".SS {}", quoted(text));
            }
        }
        fresh = matches!(block, Block::Heading(_));
    }
}

/// Renders the explanation of a term, indented below the term.
fn tagged(out: &mut String, blocks: &[Block]) {
    for (at, block) in blocks.iter().enumerate() {
        match block {
            Block::Paragraph(text) => {
                if at > 0 {
                    out.push_str(".IP\n");
                }
                fill(out, &inline(text));
            }
            Block::Literal(lines) => {
                if at > 0 {
                    out.push_str(".IP\n");
                }
                out.push_str(".EX\n");
                lines.iter().for_each(|line| {
                    let _ = writeln!(out, "{}", guard(&escape(line)));
                });
                out.push_str(".EE\n");
            }
            other => {
                out.push_str(".RS\n");
                body(out, std::slice::from_ref(other), Breaks::Sentences);
                out.push_str(".RE\n");
            }
        }
    }
}

fn literal(out: &mut String, lines: &[String]) {
    out.push_str(".RS 4\n.EX\n");
    for line in lines {
        let _ = writeln!(out, "{}", guard(&escape(line)));
    }
    out.push_str(".EE\n.RE\n");
}

/// Renders a synopsis: each command begins on a line of its own.
fn synopsis(out: &mut String, text: &str) {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        fill(out, &inline(line));
        if lines.peek().is_some() {
            out.push_str(".br\n");
        }
    }
}

/// Writes text in lines of at most [`WIDTH`] bytes; each sentence begins on a line of its own.
fn fill(out: &mut String, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{}", guard(&line));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if ends_sentence(word) {
            let _ = writeln!(out, "{}", guard(&line));
            line.clear();
        }
    }
    if !line.is_empty() {
        let _ = writeln!(out, "{}", guard(&line));
    }
}

fn ends_sentence(word: &str) -> bool {
    let bare = word.trim_end_matches("\\fR").trim_end_matches([')', '"', '\'']);
    bare.ends_with(['.', '?', '!']) && !bare.ends_with("...")
}

/// Escapes a line that roff would take for a request, because it begins with `.` or `'`.
fn guard(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

/// Returns an argument of a macro, escaped and in quotes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", escape(text).replace('"', "\\(dq"))
}

/// Escapes characters that roff interprets, or shows as others: a reader cannot copy a typographic quote into a shell.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            c if c.is_ascii() => out.push(c),
            c => {
                let _ = write!(out, "\\[u{:04X}]", u32::from(c));
            }
        }
    }
    out
}

/// Converts the inline marks of a text to roff, and makes names of pages such as perilog(1) bold.
fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*']) {
        out.push_str(&pages(&rest[..at]));
        let mark = if rest[at..].starts_with("**") { "**" } else { &rest[at..=at] };
        let inner = &rest[at + mark.len()..];
        let font = if mark == "*" { 'I' } else { 'B' };
        match inner.find(mark) {
            Some(end) if end > 0 && !inner.starts_with(' ') => {
                let _ = write!(out, "\\f{font}{}\\fR", escape(&inner[..end]));
                rest = &inner[end + mark.len()..];
            }
            _ => {
                out.push_str(&escape(mark));
                rest = inner;
            }
        }
    }
    out + &pages(rest)
}

/// Makes names of pages bold, without their section: in `systemd.exec(5)` only `systemd.exec`.
fn pages(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let end = word.find('(').filter(|at| {
            let (name, rest) = word.split_at(*at);
            let mut section = rest.chars().skip(1);
            name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
                && section.next().is_some_and(|c| c.is_ascii_digit())
                && section.next() == Some(')')
        });
        match end {
            Some(at) => {
                let _ = write!(out, "\\fB{}\\fR{}", escape(&word[..at]), escape(&word[at..]));
            }
            None => out.push_str(&escape(word)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_characters() {
        for (text, expect) in [
            ("plain", "plain"),
            ("`--json` and **x** and *FILE*", "\\fB\\-\\-json\\fR and \\fBx\\fR and \\fIFILE\\fR"),
            ("see perilog-run(1), systemd.exec(5).", "see \\fBperilog\\-run\\fR(1), \\fBsystemd.exec\\fR(5)."),
            ("(never) f(x) a\\b", "(never) f(x) a\\eb"),
            ("it's ~/x ^C", "it\\(aqs \\(ti/x \\(haC"),
            ("the sign \u{192}", "the sign \\[u0192]"),
            ("`*~` and a * alone `", "\\fB*\\(ti\\fR and a * alone \\(ga"),
        ] {
            assert_eq!(inline(text), expect, "{text}");
        }
    }

    #[test]
    fn lines_are_short_and_sentences_stand_alone() {
        let mut out = String::new();
        fill(&mut out, "One. Two (three). .conf begins a line? Yes... and goes on 'quoted'");
        assert_eq!(out, "One.\nTwo (three).\n\\&.conf begins a line?\nYes... and goes on 'quoted'\n");
        out.clear();
        fill(&mut out, &"word ".repeat(100));
        assert!(out.lines().all(|line| line.len() <= WIDTH) && out.lines().count() > 5);
    }

    #[test]
    fn a_page() {
        let mut page = Page::new("perilog-x", 1, "does x");
        page.add("SYNOPSIS", vec![Block::Paragraph("`perilog x`\n`perilog x` *Y*".into())]);
        page.add(
            "OPTIONS",
            vec![
                Block::Tagged(
                    vec!["`-a`".into(), "`-b`".into()],
                    vec![Block::Paragraph("Text.".into()), Block::Literal(vec![".x".into()])],
                ),
                Block::Paragraph("End.".into()),
            ],
        );
        let text = render(&page, "2026-11-21", "0.1.0");
        let body = text.split_once(".SH NAME\n").unwrap().1;
        assert_eq!(
            body,
            "perilog\\-x \\- does x\n\
             .SH \"SYNOPSIS\"\n\\fBperilog x\\fR\n.br\n\\fBperilog x\\fR \\fIY\\fR\n\
             .SH \"OPTIONS\"\n.TP\n\\fB\\-a\\fR\n.TQ\n\\fB\\-b\\fR\nText.\n.IP\n.EX\n\\&.x\n.EE\n.PP\nEnd.\n"
        );
    }
}
