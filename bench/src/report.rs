//! Report of a measurement: one JSON document with the raw samples, and the table for people in it.

use std::io::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

/// A table for people: rows of cells, in columns as wide as they need to be, and notes below them.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()], notes: Vec::new() }
    }

    pub fn row<S: Into<String>>(&mut self, name: &str, cells: impl IntoIterator<Item = S>) {
        self.rows.push(std::iter::once(name.to_owned()).chain(cells.into_iter().map(Into::into)).collect());
    }

    pub fn note(&mut self, line: &str) {
        self.notes.push(line.to_owned());
    }

    /// Adds a note that compares a measured value with a target of docs/performance.md.
    pub fn target(&mut self, what: &str, measured: &str, target: &str, met: bool) {
        self.note(&format!("{}: {what} {measured}, at {target}", if met { "met " } else { "OVER" }));
    }

    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate().take(columns) {
                let width = width(column);
                line += &if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
            }
            text += line.trim_end();
            text.push('\n');
        }
        for note in &self.notes {
            text += note;
            text.push('\n');
        }
        text
    }
}

pub fn print(document: &Value) -> Result<()> {
    let text = serde_json::to_string(document).context("a report")?;
    writeln!(std::io::stdout(), "{text}").context("writing the report")
}

/// Prints progress; standard error may be closed.
pub fn progress(line: &str) {
    let _ = writeln!(std::io::stderr(), "   {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["", "n", "p50"]);
        table.row("one task", ["300", "4.42"]);
        table.target("p50", "1.40 x", "most 1.5 x", true);
        assert_eq!(table.text(), "            n   p50\none task  300  4.42\nmet : p50 1.40 x, at most 1.5 x\n");
    }
}
