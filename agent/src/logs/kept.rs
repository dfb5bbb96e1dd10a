//! Reads the output that runners keep in the directories of their tasks. A directory normally exists until the
//! controller has acknowledged the task's end.

use std::fmt::Write as _;

use perilog_core::agent::io::TaskStatus;
use perilog_core::task::StepRecord;

use super::{About, MAX_TEXT};
use crate::spool::Spool;

/// Maximum size in bytes read of one file: a runner keeps 32 KiB, and a line about omitted output.
const MAX_KEPT: u64 = 64 * 1024;

/// Returns the output that the runners kept of the tasks that `about` names: for each try of a script, the last lines
/// of the head and of the tail.
pub(super) fn read(spool: &Spool, about: &About, tasks: &[TaskStatus]) -> String {
    let meant = |task: &&TaskStatus| {
        task.job == about.job
            && about.action.as_ref().is_none_or(|action| *action == task.action)
            && about.attempt.is_none_or(|attempt| attempt == task.attempt)
            && about.rank.is_none_or(|rank| rank == task.task.rank.0)
    };
    let mut text = String::new();
    for task in tasks.iter().filter(meant) {
        for step in spool.traces(&task.stem, true).steps {
            let StepRecord::Begin { seq, script, attempt, .. } = step else { continue };
            // Writing to a String never fails.
            let _ = writeln!(text, "== {} rank {}: {script} (try {attempt})", task.action, task.task.rank);
            for part in ["head", "tail"] {
                // A script that printed nothing has no such file.
                let kept = spool.kept(&task.stem, &format!("out.{seq}.{part}"), MAX_KEPT);
                let bytes = kept.ok().flatten().unwrap_or_default();
                text.push_str(last_lines(&String::from_utf8_lossy(&bytes), about.lines as usize));
            }
            if text.len() > MAX_TEXT {
                text.push_str("\n(more is on the node)\n");
                return text;
            }
        }
    }
    text
}

fn last_lines(text: &str, lines: usize) -> &str {
    let trimmed = text.strip_suffix('\n').unwrap_or(text);
    match trimmed.rmatch_indices('\n').nth(lines.saturating_sub(1)) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_last_lines() {
        for (text, lines, expect) in
            [("a\nb\nc\n", 2, "b\nc\n"), ("a\nb\nc", 1, "c"), ("a\n", 5, "a\n"), ("", 3, ""), ("a\nb\n", 2, "a\nb\n")]
        {
            assert_eq!(last_lines(text, lines), expect, "{text:?}");
        }
    }
}
