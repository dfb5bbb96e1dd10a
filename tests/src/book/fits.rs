//! Comparison of a command's output with the output that a page of the book shows.

/// Returns `true` if the output matches the page. `...` in `expected` matches any text, runs of blanks count as one,
/// and empty lines at the end do not count.
pub fn fits(expected: &[String], printed: &str) -> bool {
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected: Vec<String> = trimmed(expected.iter().map(|line| plain(line)).collect());
    let printed: Vec<String> = trimmed(printed.lines().map(plain).collect());
    lines(&expected, &printed)
}

fn trimmed(mut lines: Vec<String>) -> Vec<String> {
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Returns `true` if the printed lines match the expected lines, where a line `...` matches any number of lines.
fn lines(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((any, rest)) if any == "..." => (0..=printed.len()).any(|at| lines(rest, &printed[at..])),
        Some((line, rest)) => {
            printed.split_first().is_some_and(|(there, more)| fills(line, there) && lines(rest, more))
        }
    }
}

/// Returns `true` if a printed line matches the expected line, in which each `...` matches any text.
fn fills(expected: &str, printed: &str) -> bool {
    let Some((before, rest)) = expected.split_once("...") else { return expected == printed };
    let Some(mut left) = printed.strip_prefix(before) else { return false };
    let mut parts = rest.split("...").peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (expected, printed, fit) in [
            ("", "", true),
            ("", "x\n", false),
            ("a  b", "a b\n\n", true),
            ("a ...", "a b c", true),
            ("a ... c", "a b c", true),
            ("a ... c", "a b d", false),
            ("...b...", "abc", true),
            ("a...b", "ab", true),
            ("a...b", "a", false),
            ("aa...aa", "aaa", false),
            ("...", "", true),
            ("...", "x\ny", true),
            ("...\nz", "x\ny\nz", true),
            ("...\nz", "x\ny", false),
            ("x\n...\nz\n...", "x\nz", true),
            ("x", "x\ny", false),
        ] {
            let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
            assert_eq!(fits(&expected, printed), fit, "{expected:?} {printed:?}");
        }
    }
}
