//! Walks the tasks of a time, for sums and comparisons. One query visits them in the order of an index that has all it
//! needs of the actions, and no text of a row is copied: a month has a million tasks.

use perilog_core::ActionName;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use super::StoreError;
use super::steps::TIMED_OUT;
use super::timings::Since;

/// Maximum number of tasks that `perilog stats` sums up or `perilog skew` compares: the newest ones. They take about a
/// second of one core.
const MOST: u64 = 1_000_000;

/// One try of a script in a task, read from the column `steps` of the task's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) script: i64,
    pub(super) after_ms: u64,
    pub(super) elapsed_ms: u64,
    pub(super) status: Option<u8>,
    pub(super) attempt: u64,
    pub(super) marks: u8,
}

impl Step {
    pub(super) fn failed(&self) -> bool {
        self.status != Some(0)
    }

    /// Returns `true` if the script passed its limit.
    pub(super) const fn timed_out(&self) -> bool {
        self.marks & TIMED_OUT != 0
    }
}

/// A task of an action, as [`walk`] passes it on.
pub(super) struct Task<'a> {
    pub(super) action: &'a str,
    /// The host of the task's rank; `None`: the store has no readable layout of its attempt.
    pub(super) host: Option<&'a str>,
    pub(super) outcome: &'a str,
    pub(super) began_ms: u64,
    pub(super) elapsed_ms: u64,
    /// The durations of its scripts, for [`parse`].
    pub(super) steps: &'a str,
}

/// Visits the selected tasks, those of the newest action first, but at most [`MOST`]. Returns the number of visited
/// tasks, and `true` if more exist.
pub(super) fn walk(db: &Connection, of: &Since, mut take: impl FnMut(Task<'_>)) -> Result<(u64, bool), StoreError> {
    let mut tasks = db.prepare_cached(
        "SELECT actions.name, host, outcome, steps.began_ms, elapsed_ms, steps
         FROM actions INDEXED BY actions_by_begin CROSS JOIN steps ON action = number
         WHERE actions.began_ms >= ?1 AND (?2 IS NULL OR name = ?2) ORDER BY actions.began_ms DESC",
    )?;
    let since = i64::try_from(of.since_ms).unwrap_or(i64::MAX);
    let mut rows = tasks.query(params![since, of.action.as_ref().map(ActionName::as_str)])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        if count == MOST {
            return Ok((count, true));
        }
        count += 1;
        let text = |column| row.get_ref(column).ok().and_then(|value: ValueRef<'_>| value.as_str().ok());
        take(Task {
            action: text(0).unwrap_or_default(),
            host: text(1),
            outcome: text(2).unwrap_or_default(),
            began_ms: row.get::<_, i64>(3)?.unsigned_abs(),
            elapsed_ms: row.get::<_, i64>(4)?.unsigned_abs(),
            steps: text(5).unwrap_or_default(),
        });
    }
    Ok((count, false))
}

/// Parses the column `steps` of a task into `steps`; leaves out unreadable steps.
pub(super) fn parse(text: &str, steps: &mut Vec<Step>) {
    steps.clear();
    if scan(text.as_bytes(), steps).is_none() {
        steps.clear();
        let rows: Vec<Vec<Option<u64>>> = serde_json::from_str(text).unwrap_or_default();
        steps.extend(rows.iter().filter_map(|row| step(row)));
    }
}

/// Parses the text as the store writes it: JSON without spaces. `None`: it has another form.
fn scan(text: &[u8], steps: &mut Vec<Step>) -> Option<()> {
    let mut rest = text.strip_prefix(b"[")?;
    while let Some(row) = rest.strip_prefix(b"[") {
        let (mut values, mut count) = ([None; 6], 0);
        let mut of = row;
        loop {
            let value = values.get_mut(count)?;
            (*value, of) = number(of)?;
            count += 1;
            match of.split_first()? {
                (b',', more) => of = more,
                (b']', more) => break of = more,
                _ => return None,
            }
        }
        steps.extend(step(values.get(..count)?));
        rest = of.strip_prefix(b",").unwrap_or(of);
    }
    (rest == b"]").then_some(())
}

/// Parses a number or `null` at the begin of the text; returns it with the rest of the text.
fn number(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    if let Some(rest) = text.strip_prefix(b"null") {
        return Some((None, rest));
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(digits).filter(|(digits, _)| !digits.is_empty())?;
    let value =
        digits.iter().try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    Some((Some(value), rest))
}

fn step(row: &[Option<u64>]) -> Option<Step> {
    let at = |index: usize| row.get(index).copied().flatten();
    Some(Step {
        script: i64::try_from(at(0)?).ok()?,
        after_ms: at(1)?,
        elapsed_ms: at(2)?,
        status: at(3).map(|status| u8::try_from(status).unwrap_or(u8::MAX)),
        attempt: at(4).unwrap_or(1),
        marks: at(5).and_then(|marks| u8::try_from(marks).ok()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_the_json_that_they_are() {
        let cases = [
            ("[]", 0, true),
            ("[[7,10,20,0]]", 1, true),
            ("[[7,10,20,null],[8,30,5,143,2,3]]", 2, true),
            ("[[7,10]]", 0, true),
            ("[ [7, 10, 20, 0] ]", 1, false),
            ("[[7,10,20,0,1,2,3]]", 1, false),
            ("[[7,10,20,0]", 0, false),
            ("[[7,-1,20,0]]", 0, false),
            ("[[7,99999999999999999999,20,0]]", 0, false),
            ("", 0, false),
        ];
        for (text, count, is_ours) in cases {
            let mut steps = vec![];
            assert_eq!(scan(text.as_bytes(), &mut steps).is_some(), is_ours, "{text}");
            parse(text, &mut steps);
            let rows: Vec<Vec<Option<u64>>> = serde_json::from_str(text).unwrap_or_default();
            let expected: Vec<Step> = rows.iter().filter_map(|row| step(row)).collect();
            assert_eq!((steps.len(), &steps), (count, &expected), "{text}");
        }
    }
}
