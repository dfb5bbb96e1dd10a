//! Walks the tasks of a period, for sums and comparisons. An index has all that is needed of the actions, the rows of
//! the tasks are read in the order of their table, and no text of a row is copied: a month has a million tasks.

use perilog_core::ActionName;
use rusqlite::{Connection, Row, params};

use super::StoreError;
use super::steps::TIMED_OUT;
use super::timings::Since;

/// Maximum number of tasks that `perilog stats` sums up or `perilog skew` compares, and of their actions: the newest
/// ones. They take about half a second of one core.
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

/// The names of the actions that [`walk`] has met. A task has the place of its action's name.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<String>);

impl Names {
    pub(super) fn get(&self, place: usize) -> &str {
        self.0.get(place).map_or("", String::as_str)
    }

    /// Returns the place of a name; adds a new name. A site has a handful of names.
    fn place(&mut self, name: &str) -> usize {
        let known = self.0.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }
}

/// A task of an action, as [`walk`] passes it on: a row that is read column by column.
pub(super) struct Task<'a> {
    /// The place of the action's name.
    pub(super) action: usize,
    row: &'a Row<'a>,
}

impl Task<'_> {
    /// Returns the host of the task's rank; `None`: the store has no readable layout of its attempt.
    pub(super) fn host(&self) -> Option<&str> {
        self.text(1)
    }

    pub(super) fn outcome(&self) -> &str {
        self.text(2).unwrap_or_default()
    }

    pub(super) fn began_ms(&self) -> u64 {
        self.number(3)
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        self.number(4)
    }

    /// Returns the durations of the task's scripts, for [`parse`].
    pub(super) fn steps(&self) -> &str {
        self.text(5).unwrap_or_default()
    }

    fn text(&self, column: usize) -> Option<&str> {
        self.row.get_ref(column).ok().and_then(|value| value.as_str().ok())
    }

    fn number(&self, column: usize) -> u64 {
        self.row.get_ref(column).ok().and_then(|value| value.as_i64().ok()).unwrap_or(0).unsigned_abs()
    }
}

/// Returns the entry at a place of a list; adds entries until the list has one there.
pub(super) fn at<T: Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    if place >= list.len() {
        list.resize_with(place + 1, T::default);
    }
    &mut list[place]
}

/// What [`walk`] has visited: the names of the actions, the number of tasks, and whether more tasks exist.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) names: Names,
    pub(super) tasks: u64,
    pub(super) truncated: bool,
}

/// Visits the selected tasks, those of the newest action first, but at most [`MOST`].
pub(super) fn walk(db: &Connection, of: &Since, mut take: impl FnMut(&Task<'_>)) -> Result<Walked, StoreError> {
    // Both queries see the store at one time.
    let db = db.unchecked_transaction()?;
    let mut walked = Walked::default();
    let mut actions = actions(&db, of, &mut walked)?;
    let (Some(first), Some(last)) = (actions.first(), actions.last()) else { return Ok(walked) };
    // From row to row of one table: a search for the rows of each action costs twice as much.
    let mut tasks = db.prepare_cached(
        "SELECT action, host, outcome, began_ms, elapsed_ms, steps FROM steps WHERE action BETWEEN ?1 AND ?2 \
         ORDER BY action DESC",
    )?;
    let mut rows = tasks.query([first.number, last.number])?;
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        while actions.last().is_some_and(|action| action.number > number) {
            actions.pop();
        }
        let Some(action) = actions.last().filter(|action| action.number == number) else { continue };
        if walked.tasks == MOST {
            walked.truncated = true;
            break;
        }
        walked.tasks += 1;
        take(&Task { action: action.name, row });
    }
    Ok(walked)
}

struct Action {
    number: i64,
    /// The place of its name.
    name: usize,
}

/// Returns the selected actions, the newest [`MOST`], ordered by number. Actions are numbered as they begin.
fn actions(db: &Connection, of: &Since, walked: &mut Walked) -> rusqlite::Result<Vec<Action>> {
    let mut select = db.prepare_cached(
        "SELECT number, name FROM actions INDEXED BY actions_by_begin
         WHERE began_ms >= ?1 AND (?2 IS NULL OR name = ?2) ORDER BY began_ms DESC",
    )?;
    let since = i64::try_from(of.since_ms).unwrap_or(i64::MAX);
    let mut rows = select.query(params![since, of.action.as_ref().map(ActionName::as_str)])?;
    let mut actions = Vec::new();
    while let Some(row) = rows.next()? {
        if actions.len() as u64 == MOST {
            walked.truncated = true;
            break;
        }
        let name = row.get_ref(1)?.as_str().unwrap_or_default();
        actions.push(Action { number: row.get(0)?, name: walked.names.place(name) });
    }
    actions.sort_unstable_by_key(|action| action.number);
    Ok(actions)
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
