//! Guesses the word that an operator meant by a mistyped word.

/// Returns the word with the fewest edits from `typed`. `None`: every word needs more edits than allowed. A third of
/// the longer word's length is allowed, at least 1 and at most 3.
pub(crate) fn nearest<'w>(typed: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let near = |word: &&str| distance(typed, word) <= (typed.len().max(word.len()) / 3).clamp(1, 3);
    words.filter(near).min_by_key(|word| distance(typed, word))
}

/// Returns the number of edits between two words: a byte inserted, deleted or replaced, or two neighbours swapped. The
/// words are short ASCII texts.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (mut before, mut above): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            let swapped = if swapped { before[j - 2] + 1 } else { usize::MAX };
            row.push(replaced.min(above[j] + 1).min(row[j - 1] + 1).min(swapped));
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_distinguished_from_another_word() {
        let words = ["epilog", "housekeeping", "prolog"];
        for (typed, meant) in [
            ("prolgo", Some("prolog")),
            ("prolg", Some("prolog")),
            ("eplog", Some("epilog")),
            ("housekeepign", Some("housekeeping")),
            ("check", None),
            ("p", None),
        ] {
            assert_eq!(nearest(typed, words.into_iter()), meant, "{typed}");
        }
    }
}
