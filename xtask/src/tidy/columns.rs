//! Check that lines end at column 120; rustfmt leaves comments and string literals alone. Tables and fenced blocks of
//! comments may be wider, because they cannot be wrapped, and so may a single word such as a link.

use super::Findings;

const COLUMNS: usize = 120;

pub(super) fn check(name: &str, text: &str, findings: &mut Findings) {
    let mut is_fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_fenced = false;
            if columns > COLUMNS {
                let how = "end a text with `\\` and go on below, or cut raw text with `concat!`";
                findings.errors.push(format!("{name}:{number}: {columns} columns, more than {COLUMNS}: {how}"));
            }
            continue;
        };
        let words = comment.trim_start_matches(['/', '!']).trim_start();
        if words.starts_with("```") {
            is_fenced = !is_fenced;
        }
        let can_wrap = !is_fenced && !words.starts_with('|') && words.contains(' ');
        if can_wrap && columns > COLUMNS {
            findings
                .errors
                .push(format!("{name}:{number}: a comment of {columns} columns, more than {COLUMNS}: wrap it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines() {
        let wide = "ab ".repeat(40);
        let cases = [
            (format!("// {}", "a b ".repeat(29)), 0),
            (format!("// {wide}"), 1),
            (format!("    /// {wide}"), 1),
            (format!("//! {}", "é ".repeat(58)), 0),
            (format!("let x = 1; // {wide}"), 1),
            (format!("    \"{wide}\","), 1),
            (format!("//! | {wide} |"), 0),
            (format!("//! ```text\n//! {wide}\n//! ```\n//! {wide}"), 1),
            (format!("// ```\nx\n// {wide}"), 1),
            (format!("// <https://example.org/{}>", "a".repeat(120)), 0),
        ];
        for (text, errors) in cases {
            let mut findings = Findings::default();
            check("x.rs", &text, &mut findings);
            assert_eq!(findings.errors.len(), errors, "{text}: {findings:?}");
        }
    }
}
