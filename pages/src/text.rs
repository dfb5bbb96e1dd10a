//! Handwritten text of a page, in a subset of Markdown, so that the source reads well:
//!
//! ```text
//! # SECTION              ## Subsection
//! a paragraph            - a bullet
//! term                   ```
//! : what it means        lines as they stand
//!                        ```
//! ```
//! Several terms on consecutive lines share the explanation after `: `. Each further `: ` is another paragraph of the
//! explanation.

use crate::page::{Block, Page};

/// Adds the sections of `text` to the page.
pub fn add(page: &mut Page, text: &str) {
    let mut literal = false;
    let mut sections: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        literal ^= line.starts_with("```");
        match line.strip_prefix("# ").filter(|_| !literal) {
            Some(title) => sections.push((title.trim(), String::new())),
            None => sections.last_mut().into_iter().for_each(|(_, body)| body.extend([line, "\n"])),
        }
    }
    for (title, body) in sections {
        page.add(title, blocks(&body));
    }
}

/// Parses the text of one section into blocks.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().peekable();
    let mut open: Vec<String> = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            flush(&mut open, &mut blocks);
            let literal: Vec<String> =
                lines.by_ref().take_while(|line| !line.starts_with("```")).map(str::to_owned).collect();
            blocks.push(Block::Literal(literal));
        } else if let Some(title) = line.strip_prefix("## ") {
            flush(&mut open, &mut blocks);
            blocks.push(Block::Heading(title.trim().to_owned()));
        } else if let Some(meaning) = line.strip_prefix(": ") {
            let mut meaning = meaning.trim().to_owned();
            while let Some(more) = lines.next_if(|next| next.starts_with("  ")) {
                meaning.push(' ');
                meaning.push_str(more.trim());
            }
            let meaning = Block::Paragraph(meaning);
            match blocks.last_mut() {
                Some(Block::Tagged(_, under)) if open.is_empty() => under.push(meaning),
                _ => blocks.push(Block::Tagged(std::mem::take(&mut open), vec![meaning])),
            }
        } else if let Some(bullet) = line.strip_prefix("- ") {
            flush(&mut open, &mut blocks);
            let mut bullet = bullet.trim().to_owned();
            while let Some(more) = lines.next_if(|next| next.starts_with("  ")) {
                bullet.push(' ');
                bullet.push_str(more.trim());
            }
            blocks.push(Block::Bullet(bullet));
        } else if line.trim().is_empty() {
            flush(&mut open, &mut blocks);
        } else {
            open.push(line.trim().to_owned());
        }
    }
    flush(&mut open, &mut blocks);
    blocks
}

fn flush(open: &mut Vec<String>, blocks: &mut Vec<Block>) {
    if !open.is_empty() {
        blocks.push(Block::Paragraph(std::mem::take(open).join(" ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let paragraph = |text: &str| Block::Paragraph(text.to_owned());
        let mut page = Page::new("x", 7, "y");
        add(
            &mut page,
            "# ONE\ntwo\nlines\n\n- bullet\n  goes on\n- second\n\n## Sub\n`a`\n`b`\n: means\n  this\n: and \
             that\n\n```\n# x\n```\n# TWO\n\nlast\n",
        );
        assert_eq!(
            page.sections,
            [
                (
                    "ONE".to_owned(),
                    vec![
                        paragraph("two lines"),
                        Block::Bullet("bullet goes on".into()),
                        Block::Bullet("second".into()),
                        Block::Heading("Sub".into()),
                        Block::Tagged(
                            vec!["`a`".into(), "`b`".into()],
                            vec![paragraph("means this"), paragraph("and that")]
                        ),
                        Block::Literal(vec!["# x".into()]),
                    ]
                ),
                ("TWO".to_owned(), vec![paragraph("last")]),
            ]
        );
    }
}
