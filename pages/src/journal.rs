//! Journal fields, such as `PERILOG_JOB`, in the manual pages: parses the one table of these fields, in
//! docs/operate.md, and adds a section made from it to a page.

use anyhow::{Result, ensure};

use crate::page::{Block, Page};

const GUIDE: &str = include_str!("../../docs/operate.md");

/// A field of the lines in the systemd journal: its name, its meaning, and the programs whose lines have it (`of`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a str,
    pub what: &'a str,
    pub of: Vec<&'a str>,
}

/// Returns all fields in the table.
pub fn fields() -> Vec<Field<'static>> {
    let lines = GUIDE.lines().skip_while(|line| *line != "| field | what | of |").skip(2);
    lines.map_while(field).collect()
}

/// Parses a row of the table in docs/operate.md: `` | `NAME` | what it means | agent, scripts | ``. `None`: the line is
/// no row, so the table has ended.
fn field(line: &str) -> Option<Field<'_>> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let (name, what, of) = (cells.next()?, cells.next()?, cells.next()?);
    Some(Field { name: name.trim_matches('`'), what, of: of.split(", ").collect() })
}

/// Adds to a manual page a section with the journal fields of some programs, from the table in docs/operate.md. `whom`:
/// the programs' names as in the table's last column, such as `scripts` or `agent`.
///
/// # Errors
///
/// docs/operate.md has no such table, or the table has no field of these programs.
pub fn add(page: &mut Page, whom: &[&str]) -> Result<()> {
    let fields: Vec<_> = fields().into_iter().filter(|field| field.of.iter().any(|of| whom.contains(of))).collect();
    ensure!(!fields.is_empty(), "docs/operate.md: no table of the journal's fields");
    let mut blocks = vec![Block::Paragraph(
        "Each line in the journal has those of these that it is about (in brackets: whose lines have it), for \
         `journalctl PERILOG_JOB=f1` and the like."
            .to_owned(),
    )];
    blocks.extend(fields.into_iter().map(|Field { name, what, of }| {
        let of: Vec<&str> = of.into_iter().filter(|of| whom.contains(of)).collect();
        Block::Tagged(vec![format!("`{name}`")], vec![Block::Paragraph(format!("{what} ({})", of.join(", ")))])
    }));
    page.add("JOURNAL FIELDS", blocks);
    Ok(())
}
