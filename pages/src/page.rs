//! A manual page before its conversion to roff: a title, and sections of blocks.
//! Texts have inline marks: `` `as typed` ``, `**bold**`, `*a placeholder*`.

/// Part of a section of a manual page, such as a paragraph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    Paragraph(String),
    /// Terms that share an explanation.
    Tagged(Vec<String>, Vec<Block>),
    Bullet(String),
    /// Lines that the page shows unchanged.
    Literal(Vec<String>),
    Heading(String),
}

/// A page, such as perilog-run(1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub name: String,
    pub section: u8,
    /// Brief description, in a few words.
    pub brief: String,
    pub sections: Vec<(String, Vec<Block>)>,
}

/// Order of sections, as in other manual pages (man-pages(7)). The empty name is the place of all other sections.
const ORDER: [&str; 13] = [
    "SYNOPSIS",
    "DESCRIPTION",
    "ARGUMENTS",
    "OPTIONS",
    "COMMANDS",
    "",
    "EXIT STATUS",
    "SIGNALS",
    "ENVIRONMENT",
    "FILES",
    "NOTES",
    "EXAMPLES",
    "SEE ALSO",
];

impl Page {
    pub fn new(name: impl Into<String>, section: u8, brief: impl Into<String>) -> Self {
        Self { name: name.into(), section, brief: brief.into(), sections: Vec::new() }
    }

    /// Appends blocks to the section with this title, which is made if missing. Without blocks, changes nothing.
    pub fn add(&mut self, title: &str, blocks: Vec<Block>) {
        if blocks.is_empty() {
            return;
        }
        match self.sections.iter_mut().find(|(there, _)| there == title) {
            Some((_, there)) => there.extend(blocks),
            None => self.sections.push((title.to_owned(), blocks)),
        }
    }

    /// Sorts the sections into the order of manual pages, such as DESCRIPTION before EXAMPLES.
    pub fn sort(&mut self) {
        let place = |title: &str| ORDER.iter().position(|known| *known == title);
        let other = place("").unwrap_or_default();
        self.sections.sort_by_key(|(title, _)| place(title).unwrap_or(other));
    }

    /// Returns the name of the page's file, such as `perilog-run.1`.
    pub fn file(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_where_readers_expect_them() {
        let mut page = Page::new("x", 1, "y");
        for title in ["SEE ALSO", "EVENTS", "OPTIONS", "DESCRIPTION", "RULES", "SYNOPSIS", "DESCRIPTION"] {
            page.add(title, vec![Block::Paragraph(title.to_owned())]);
        }
        page.add("EMPTY", Vec::new());
        page.sort();
        let titles: Vec<&str> = page.sections.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "EVENTS", "RULES", "SEE ALSO"]);
        assert_eq!(page.sections[1].1.len(), 2);
    }
}
