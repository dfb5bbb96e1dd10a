//! Manual page of a program without a parser library, made from its `--help`: usage, options, exit status.
//!
//! The beginning of a paragraph tells its kind: `Usage:`, `Exit status:`, `Signals:`. A line with a gap of two or more
//! spaces is a term and its meaning.

use crate::page::{Block, Page};

/// Makes the page of a program. `brief`: the description for whatis(1); `text`: the output of `--help`.
pub fn page(name: &str, section: u8, brief: &str, text: &str) -> Page {
    let mut page = Page::new(name, section, brief);
    for text in text.split("\n\n").map(|text| text.trim_matches('\n')) {
        if let Some(usage) = text.strip_prefix("Usage:") {
            let (lines, meanings) = synopsis(name, usage);
            page.add("SYNOPSIS", vec![Block::Paragraph(lines.join("\n"))]);
            page.add("COMMANDS", meanings);
        } else if let Some(status) = text.strip_prefix("Exit status:") {
            page.add("EXIT STATUS", blocks(status));
        } else if let Some(signals) = text.strip_prefix("Signals:") {
            page.add("SIGNALS", blocks(signals));
        } else if text.starts_with("  ") {
            page.add("OPTIONS", blocks(text));
        } else {
            page.add("DESCRIPTION", blocks(text));
        }
    }
    page
}

/// Splits the usage lines of the program `name`, which follow `Usage:`. Returns all command lines, and a block for each
/// command whose meaning stands beside it.
fn synopsis(name: &str, usage: &str) -> (Vec<String>, Vec<Block>) {
    let (mut lines, mut meanings) = (Vec::new(), Vec::new());
    for line in usage.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (line, meaning) = cut(line).map_or((line, None), |(line, meaning)| (line, Some(meaning)));
        let rest = line.strip_prefix(name).unwrap_or(line);
        lines.push(format!("`{name}`{rest}"));
        if let Some(meaning) = meaning {
            meanings
                .push(Block::Tagged(vec![format!("`{}`", rest.trim())], vec![Block::Paragraph(meaning.to_owned())]));
        }
    }
    (lines, meanings)
}

/// Splits a line at its first gap of two spaces, such as `--config FILE     the configuration`; `None`: no gap.
fn cut(line: &str) -> Option<(&str, &str)> {
    let at = line.find("  ")?;
    Some((&line[..at], line[at..].trim()))
}

/// Parses a part of the help: prose, and tables of terms.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut prose = String::new();
    for line in text.lines() {
        // A wider gap (three spaces) separates the two columns of a table.
        let cells = line.trim().split("   ").map(str::trim).filter(|cell| !cell.is_empty());
        let cells: Vec<(&str, &str)> = match line.trim().strip_prefix("--") {
            Some(_) => cut(line.trim()).into_iter().collect(),
            None => cells
                .filter_map(|cell| cut(cell).filter(|(term, _)| term.bytes().all(|b| b.is_ascii_digit())))
                .collect(),
        };
        if !cells.is_empty() {
            flush(&mut prose, &mut blocks);
            rows.extend(cells.into_iter().map(|(term, meaning)| (term.to_owned(), meaning.to_owned())));
        } else if line.starts_with("    ") && !rows.is_empty() {
            if let Some((_, meaning)) = rows.last_mut() {
                meaning.push(' ');
                meaning.push_str(line.trim());
            }
        } else if line.trim_start().starts_with("--") {
            rows.push((line.trim().to_owned(), String::new()));
        } else {
            tabulate(&mut rows, &mut blocks);
            prose.push_str(line.trim());
            prose.push(' ');
        }
    }
    tabulate(&mut rows, &mut blocks);
    flush(&mut prose, &mut blocks);
    blocks
}

fn flush(prose: &mut String, blocks: &mut Vec<Block>) {
    let text = std::mem::take(prose).trim().to_owned();
    if !text.is_empty() {
        blocks.push(Block::Paragraph(text));
    }
}

/// Turns all rows, each a term and its meaning, into blocks, and leaves `rows` empty. Rows that begin with a number,
/// such as an exit status, are sorted; the others keep their order.
fn tabulate(rows: &mut Vec<(String, String)>, blocks: &mut Vec<Block>) {
    let mut rows = std::mem::take(rows);
    rows.sort_by_key(|(term, _)| term.parse::<u32>().unwrap_or(0));
    for (term, meaning) in rows {
        let meaning = match (meaning.is_empty(), term.as_str()) {
            (true, "--version, --help") => "What is asked for, and end.".to_owned(),
            _ => meaning,
        };
        blocks.push(Block::Tagged(vec![format!("`{term}`")], vec![Block::Paragraph(meaning)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_usage() {
        let text = "Does x.\n\nUsage:\n  x a NAME   does a\n  x --help\n\nNAME is a\nname.\n\n  --config FILE     the \
                    file [/x];\n                    and more\n  --version, --help\n\nExit status: as said. Beside \
                    these\n   74  no   126  nothing\n    2  usage\n";
        let page = page("x", 8, "y", text);
        let tagged =
            |term: &str, text: &str| Block::Tagged(vec![term.to_owned()], vec![Block::Paragraph(text.to_owned())]);
        let paragraph = |text: &str| Block::Paragraph(text.to_owned());
        let expect: &[(&str, Vec<Block>)] = &[
            ("DESCRIPTION", vec![paragraph("Does x."), paragraph("NAME is a name.")]),
            ("SYNOPSIS", vec![paragraph("`x` a NAME\n`x` --help")]),
            ("COMMANDS", vec![tagged("`a NAME`", "does a")]),
            (
                "OPTIONS",
                vec![
                    tagged("`--config FILE`", "the file [/x]; and more"),
                    tagged("`--version, --help`", "What is asked for, and end."),
                ],
            ),
            (
                "EXIT STATUS",
                vec![
                    paragraph("as said. Beside these"),
                    tagged("`2`", "usage"),
                    tagged("`74`", "no"),
                    tagged("`126`", "nothing"),
                ],
            ),
        ];
        for (title, blocks) in expect {
            let found = page.sections.iter().find(|(there, _)| there == title);
            assert_eq!(found.map(|(_, found)| found), Some(blocks), "{title}");
        }
    }
}
