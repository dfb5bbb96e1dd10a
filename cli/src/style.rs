//! Colours and what they mean. A colour only repeats what a word says; [`crate::out`] drops colours that are not
//! wanted.

use owo_colors::Style;

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const STRONG: Style = Style::new().bold();
/// Style of secondary details.
pub(crate) const QUIET: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = Style::new().green();
pub(crate) const BAD: Style = Style::new().red().bold();
/// Style of a state that an operator should look at and that is no failure, such as `draining`.
pub(crate) const CARE: Style = Style::new().yellow();

/// Returns the style of a word such as an outcome, a verdict, or a state of a task or node.
pub(crate) fn of(word: &str) -> Style {
    match word {
        "ok" | "online" => GOOD,
        "failed" | "timeout" | "lost" | "overdue" | "offline" | "refused" => BAD,
        "tolerable" | "cancelled" | "resolved" | "resolving" | "lingering" | "unknown" | "probing" | "drained"
        | "draining" | "lifting" => CARE,
        _ => PLAIN,
    }
}

/// Returns `text` in the colour that the word `word` has, for example in red for `failed`.
pub(crate) fn worded(word: &str, text: &str) -> String {
    of(word).style(text).to_string()
}
