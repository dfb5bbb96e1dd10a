//! Aligned columns without lines, as `ps` prints them.
//!
//! A column that is empty in every row does not appear. On a terminal, the last column wraps at words under its own
//! head. Cells of other columns are cut only where the last column would otherwise have no room, the widest first. In a
//! pipe no cell is cut, so `grep` sees everything. Widths count characters: names are ASCII, and foreign text is in the
//! last column.

use owo_colors::Style;

use crate::style;

/// Smallest width in characters to which a cell may be cut, in every column except the last.
const LEAST: usize = 20;
/// Minimum width of the last column in characters, also on a narrow terminal.
const NARROWEST: usize = 18;
const GAP: &str = "  ";

pub(crate) struct Cell {
    text: String,
    style: Style,
}

/// Makes a cell without style.
pub(crate) fn cell(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), style: style::PLAIN }
}

pub(crate) fn styled(text: impl Into<String>, style: Style) -> Cell {
    Cell { text: text.into(), style }
}

/// Makes a cell with a word such as an outcome, in the colour of the word's meaning (red for `failed`).
pub(crate) fn word(word: &str) -> Cell {
    styled(word, style::of(word))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

pub(crate) struct Columns<const N: usize> {
    heads: Option<[&'static str; N]>,
    sides: [Side; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Columns<N> {
    pub(crate) fn new(heads: [&'static str; N]) -> Self {
        Self { heads: Some(heads), ..Self::headless() }
    }

    pub(crate) const fn headless() -> Self {
        Self { heads: None, sides: [Side::Left; N], rows: Vec::new() }
    }

    /// Aligns the column with this index at the right, which suits numbers and ages. The last shown column stays at the
    /// left.
    pub(crate) fn right(mut self, column: usize) -> Self {
        self.sides[column] = Side::Right;
        self
    }

    pub(crate) fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    /// Renders whole lines. `width` is the terminal's width, if any; `indent` is the number of spaces before each line.
    pub(crate) fn render(self, width: Option<usize>, indent: usize) -> String {
        let heads = self.heads.map(|heads| heads.map(|head| styled(head, style::STRONG)));
        let shown: Vec<usize> = (0..N).filter(|&i| self.rows.iter().any(|row| !row[i].text.is_empty())).collect();
        let Some((&last, others)) = shown.split_last() else { return String::new() };
        let rows: Vec<&[Cell; N]> = heads.iter().chain(&self.rows).collect();
        let wide = |i: usize| rows.iter().map(|row| row[i].text.chars().count()).max().unwrap_or(0);
        let mut widths: Vec<usize> = others.iter().map(|&i| wide(i)).collect();
        let gaps = indent + GAP.len() * others.len();
        if let Some(width) = width {
            narrow(&mut widths, width.saturating_sub(gaps + wide(last).min(NARROWEST)));
        }
        let cut = |text: &str, wide: usize| match text.chars().count() > wide {
            true => text.chars().take(wide - 1).chain(['…']).collect(),
            false => text.to_owned(),
        };
        let before = gaps + widths.iter().sum::<usize>();
        let room = width.map(|width| width.saturating_sub(before).max(NARROWEST));

        let mut text = String::new();
        for row in rows {
            let mut line = " ".repeat(indent);
            for (&i, &wide) in others.iter().zip(&widths) {
                let shown = cut(&row[i].text, wide);
                let pad = " ".repeat(wide - shown.chars().count());
                let shown = row[i].style.style(shown);
                match self.sides[i] {
                    Side::Left => line.push_str(&format!("{shown}{pad}{GAP}")),
                    Side::Right => line.push_str(&format!("{pad}{shown}{GAP}")),
                }
            }
            let parts = wrap(&row[last].text, room);
            match parts.split_first() {
                Some((first, more)) => {
                    text.push_str(&format!("{line}{}\n", row[last].style.style(first)));
                    for part in more {
                        text.push_str(&format!("{}{}\n", " ".repeat(before), row[last].style.style(part)));
                    }
                }
                None => text.push_str(&format!("{}\n", line.trim_end())),
            }
        }
        text
    }
}

/// Narrows the widest of these widths until their sum is at most `room`; none below [`LEAST`].
fn narrow(widths: &mut [usize], room: usize) {
    let mut over = widths.iter().sum::<usize>().saturating_sub(room);
    while over > 0 {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > LEAST) else { return };
        *widest -= 1;
        over -= 1;
    }
}

/// Characters after which a word that is longer than a line may break: those of hostlists, paths and units.
const BREAKS: [char; 5] = [',', '/', ':', '=', '-'];

/// Breaks `text` into lines of at most `room` characters, at spaces if possible, or else after one of [`BREAKS`]. With
/// `room` of `None` the text stays one line.
fn wrap(text: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return if text.is_empty() { Vec::new() } else { vec![text.to_owned()] } };
    let mut lines: Vec<String> = Vec::new();
    let mut left = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let mut word: Vec<char> = word.chars().collect();
        if lines.is_empty() || word.len() + 1 > left {
            lines.push(String::new());
            left = room;
        } else {
            left -= 1;
            if let Some(line) = lines.last_mut() {
                line.push(' ');
            }
        }
        while word.len() > left {
            let fits = word[..left].iter().rposition(|c| BREAKS.contains(c)).map_or(left, |at| at + 1);
            let rest = word.split_off(fits);
            if let Some(line) = lines.last_mut() {
                line.extend(word);
            }
            lines.push(String::new());
            (word, left) = (rest, room);
        }
        left -= word.len();
        if let Some(line) = lines.last_mut() {
            line.extend(word);
        }
    }
    lines
}

/// Breaks a line, which may have colours, at spaces, so that no line has more than `width` characters unless a single
/// word is longer. Further lines are indented by two more than the first.
pub(crate) fn fold(line: &str, width: usize) -> String {
    let long = |text: &str| anstream::adapter::strip_str(text).to_string().chars().count();
    if long(line) <= width {
        return line.to_owned();
    }
    let indent = line.len() - line.trim_start_matches(' ').len();
    let under = " ".repeat((indent + 2).min(width / 2));
    let (mut folded, mut used, mut pending) = (String::new(), 0, 0);
    for (at, word) in line.split(' ').enumerate() {
        pending += usize::from(at > 0);
        if word.is_empty() {
            continue;
        }
        let long = long(word);
        if used > 0 && used + pending + long > width {
            folded.push('\n');
            folded.push_str(&under);
            used = under.len();
        } else {
            folded.push_str(&" ".repeat(pending));
            used += pending;
        }
        folded.push_str(word);
        (used, pending) = (used + long, 0);
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn table(why: &str) -> Columns<4> {
        let mut columns = Columns::new(["AGE", "JOB", "NOTE", "WHY"]).right(0);
        columns.row([cell("2h03m"), cell("f1"), cell(""), word("overdue")]);
        columns.row([cell("3s"), cell("f1234567"), cell(""), cell(why)]);
        columns
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let seen = plain(&table("10-mount.sh").render(None, 0));
        assert_eq!(seen, "  AGE  JOB       WHY\n2h03m  f1        overdue\n   3s  f1234567  10-mount.sh\n");
        assert_eq!(Columns::<1>::new(["X"]).render(None, 0), "");
        let blank_last = plain(&table("").render(None, 2));
        assert!(blank_last.ends_with("\n     3s  f1234567\n"), "{blank_last:?}");
    }

    #[test]
    fn only_a_terminal_wraps_the_last_column_and_cuts_cells() {
        let why = "waits for a script of another attempt that still runs there";
        let seen = plain(&table(why).render(Some(45), 0));
        assert_eq!(
            seen.lines().skip(2).collect::<Vec<_>>(),
            [
                "   3s  f1234567  waits for a script of",
                "                 another attempt that still",
                "                 runs there"
            ]
        );
        // Regression test: "online, drained, held" was cut although the line had room.
        let row = |nodes: usize, why: usize| {
            let mut columns = Columns::new(["NODES", "WHY"]);
            columns.row([cell("n".repeat(nodes)), cell("x".repeat(why))]);
            plain(&columns.render(Some(80), 0)).lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(row(60, 18), format!("{}  {}", "n".repeat(60), "x".repeat(18)));
        assert_eq!(row(70, 24), format!("{}…  {}", "n".repeat(59), "x".repeat(18)));
        assert_eq!(row(75, 1), format!("{}  x", "n".repeat(75)));
        let mut columns = Columns::new(["NODES", "WHY"]);
        columns.row([cell("n".repeat(60)), cell("x")]);
        assert!(plain(&columns.render(None, 0)).contains(&"n".repeat(60)));
    }

    #[test]
    fn lines_break_at_words_and_inside_words_that_are_longer() {
        for (text, room, expect) in [
            ("", 5, vec![]),
            ("abc", 5, vec!["abc"]),
            ("ab cd ef", 5, vec!["ab cd", "ef"]),
            ("abcdefghijkl m", 5, vec!["abcde", "fghij", "kl m"]),
            ("a bcdefgh", 4, vec!["a", "bcde", "fgh"]),
            ("n[0-3,7,11],m2", 9, vec!["n[0-3,7,", "11],m2"]),
        ] {
            assert_eq!(wrap(text, Some(room)), expect, "{text:?}");
        }
    }

    /// Regression test: lines of `why`, `show`, `events` and `logs` broke in the middle of a word on 80 columns.
    #[test]
    fn lines_with_colours_break_at_words() {
        let red = style::BAD.style("drained since").to_string();
        for (line, width, expect) in [
            ("short", 20, "short".to_owned()),
            ("  one two three four", 12, "  one two\n    three\n    four".to_owned()),
            (&format!("  {red} now"), 80, format!("  {red} now")),
            (&format!("  {red} now"), 17, format!("  {red}\n    now")),
            ("a  b  longer-than-it-all", 9, "a  b\n  longer-than-it-all".to_owned()),
        ] {
            assert_eq!(fold(line, width), expect, "{line:?}");
        }
    }
}
