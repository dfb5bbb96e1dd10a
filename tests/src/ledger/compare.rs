//! Comparison of the controller's view with the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Key, Ledger, Run};

/// Outcome of a rank that the controller's view of its action does not list at all: neither as `ok`, nor as open, nor
/// as ended.
pub const NOWHERE: &str = "nowhere";

/// One task as the controller's view has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub job: String,
    pub attempt: String,
    pub action: String,
    pub rank: u32,
    /// Word of the outcome: `ok`, `failed`, `lost` and so on, or [`NOWHERE`]. Any other word is a task that has not
    /// ended.
    pub outcome: String,
    /// Exit code of a `failed` task; `None` if the outcome has none.
    pub code: Option<i32>,
    /// Exit code of each script, if the controller's view lists the scripts; `None`: a signal killed the script.
    pub scripts: BTreeMap<String, Option<i32>>,
}

/// A task: job, attempt, action, rank.
type Task = (String, String, String, u32);

#[derive(Debug)]
struct Row {
    task: Task,
    /// The ledger's side of the comparison as text, for messages: the node, and each script with its exit code.
    ledger: String,
    known: String,
    faults: Vec<String>,
}

/// Result of a comparison of the ledger with the controller's view: all tasks of either side, with the faults found.
#[derive(Debug)]
pub struct Comparison {
    rows: Vec<Row>,
    /// Actions that must have a task, but have none in the ledger nor in the controller's view.
    absent: Vec<String>,
}

impl Comparison {
    /// Returns `true` if at least one task was compared, and no fault was found.
    pub fn holds(&self) -> bool {
        !self.rows.is_empty() && self.faults().is_empty()
    }

    /// Returns the number of compared tasks.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the differences that the comparison found, one line each.
    pub fn faults(&self) -> Vec<String> {
        let line = |row: &Row, fault: &String| {
            let (job, attempt, action, rank) = &row.task;
            format!("job {job} attempt {attempt}: {action} of rank {rank}: {fault}")
        };
        let of_rows = self.rows.iter().flat_map(|row| row.faults.iter().map(move |fault| line(row, fault)));
        of_rows.chain(self.absent.iter().map(|action| format!("no daemon knows of any {action}"))).collect()
    }
}

/// Compares `known` with `ledger`. `scripts` lists, by action, the scripts that an action must have started if the
/// action ran. Each listed action must have a task. The rules:
///
/// * A script starts at most once per task.
/// * `ok`, `tolerable`: every script of the action started and ended with 0.
/// * `failed` with a code: every script ended, and the code is the largest exit code of the scripts.
/// * `failed` without a code: at least one script did not end with 0.
/// * Where the controller lists the exit codes of single scripts, the ledger has the same codes.
/// * `refused`: no script started.
/// * `lost`: not every script ended. Some scripts may have started, and the controller may never have got a report of
///   them.
/// * The controller knows everything in the ledger, and calls no task open whose scripts have all ended.
/// * Each rank of an action has a state: [`NOWHERE`] is a fault, whatever ran there.
pub fn compare(ledger: &Ledger, known: &[Known], scripts: &[(&str, &[&str])]) -> Comparison {
    let mut ran: BTreeMap<Task, BTreeMap<&str, &[Run]>> = BTreeMap::new();
    for (key, runs) in &ledger.runs {
        ran.entry(task(key)).or_default().insert(&key.script, runs);
    }
    let mut recorded: BTreeMap<Task, Vec<&Known>> = BTreeMap::new();
    for known in known {
        let task = (known.job.clone(), known.attempt.clone(), known.action.clone(), known.rank);
        recorded.entry(task).or_default().push(known);
    }
    let tasks: BTreeSet<Task> = ran.keys().chain(recorded.keys()).cloned().collect();
    let rows = tasks.into_iter().map(|task| {
        let none = BTreeMap::new();
        let (ran, recorded) = (ran.get(&task).unwrap_or(&none), recorded.get(&task).map_or(&[][..], Vec::as_slice));
        let expected = scripts.iter().find(|(action, _)| *action == task.2).map_or(&[][..], |(_, scripts)| *scripts);
        let mut faults = twice(ran);
        match recorded {
            [] => faults.push("ran, and the controller knows nothing of it".into()),
            [known] => faults.extend(judge(ran, known, expected)),
            _ => faults.push(format!("the controller knows {} outcomes of it", recorded.len())),
        }
        Row { ledger: ledger_cell(ran), known: known_cell(recorded), faults, task }
    });
    let rows: Vec<Row> = rows.collect();
    let is_absent = |action: &&str| !rows.iter().any(|row| row.task.2 == **action);
    let absent = scripts.iter().map(|(action, _)| *action).filter(is_absent).map(str::to_owned).collect();
    Comparison { rows, absent }
}

fn task(key: &Key) -> Task {
    (key.job.clone(), key.attempt.clone(), key.action.clone(), key.rank)
}

fn twice(ran: &BTreeMap<&str, &[Run]>) -> Vec<String> {
    let twice = ran.iter().filter(|(_, runs)| runs.len() > 1);
    twice.map(|(script, runs)| format!("{script} started {} times", runs.len())).collect()
}

fn judge(ran: &BTreeMap<&str, &[Run]>, known: &Known, expected: &[&str]) -> Vec<String> {
    let code = |runs: &[Run]| runs.last().and_then(|run| run.ended).map(|(_, code)| code);
    let codes: BTreeMap<&str, Option<i32>> = ran.iter().map(|(script, runs)| (*script, code(runs))).collect();
    let missing: Vec<&str> = expected.iter().copied().filter(|script| !codes.contains_key(script)).collect();
    let unended: Vec<&str> = codes.iter().filter(|(_, code)| code.is_none()).map(|(script, _)| *script).collect();
    let all_ended = missing.is_empty() && unended.is_empty() && !codes.is_empty();

    let mut faults = Vec::new();
    let mut never = |wrong: bool, fault: String| {
        if wrong {
            faults.push(fault);
        }
    };
    for (script, known) in &known.scripts {
        let truth = codes.get(script.as_str());
        never(truth != Some(known), format!("{script} is known to have ended with {known:?}, in truth {truth:?}"));
    }
    match known.outcome.as_str() {
        "ok" | "tolerable" => {
            never(!missing.is_empty(), format!("{}, and {} never started", known.outcome, missing.join(", ")));
            never(!unended.is_empty(), format!("{}, and {} never ended", known.outcome, unended.join(", ")));
            let bad: Vec<String> = codes
                .iter()
                .filter_map(|(script, code)| {
                    code.filter(|code| *code != 0).map(|code| format!("{script} ended with {code}"))
                })
                .collect();
            never(!bad.is_empty(), format!("{}, and {}", known.outcome, bad.join(", ")));
        }
        "failed" => {
            let largest = codes.values().copied().flatten().max();
            if known.code.is_some() {
                never(!all_ended, "failed with an exit code, and not every script ended".into());
                never(known.code != largest, format!("failed with {:?}, in truth {largest:?}", known.code));
            } else {
                never(all_ended && largest == Some(0), "failed, and every script ended with 0".into());
            }
        }
        "refused" => never(!codes.is_empty(), "refused, and scripts ran".into()),
        "lost" => never(all_ended, "lost, and every script ended".into()),
        "timeout" | "cancelled" | "resolved" => {}
        NOWHERE => never(true, "is the action's, and is neither ok, nor open, nor ended".into()),
        open => never(all_ended, format!("{open}, and every script has ended")),
    }
    faults
}

fn ledger_cell(ran: &BTreeMap<&str, &[Run]>) -> String {
    let mut nodes: Vec<&str> = ran.values().flat_map(|runs| runs.iter().map(|run| run.node.as_str())).collect();
    nodes.dedup();
    let runs = ran.iter().flat_map(|(script, runs)| runs.iter().map(move |run| (script, run)));
    let runs = runs.map(|(script, run)| match run.ended {
        Some((_, code)) => format!("{script} {code}"),
        None => format!("{script} no end"),
    });
    format!("{}: {}", nodes.join(" "), runs.collect::<Vec<_>>().join(", "))
}

fn known_cell(recorded: &[&Known]) -> String {
    let known = |known: &&Known| match known.code {
        Some(code) => format!("{} {code}", known.outcome),
        None => known.outcome.clone(),
    };
    recorded.iter().map(known).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.ledger.len()).max().unwrap_or(0).max(6);
        let task = |(job, attempt, action, rank): &Task| format!("{job} {attempt} {action} {rank}");
        let first = self.rows.iter().map(|row| task(&row.task).len()).max().unwrap_or(0).max(4);
        writeln!(f, "  {:first$}  {:width$}  controller", "task", "ledger")?;
        for row in &self.rows {
            let mark = if row.faults.is_empty() { "=" } else { "!" };
            writeln!(f, "{mark} {:first$}  {:width$}  {}", task(&row.task), row.ledger, row.known)?;
        }
        for fault in self.faults() {
            writeln!(f, "  {fault}")?;
        }
        let wrong = self.rows.iter().filter(|row| !row.faults.is_empty()).count();
        write!(f, "  {} tasks compared, {wrong} differ", self.rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(lines: &[(&str, &str)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (index, (script, code)) in lines.iter().enumerate() {
            ledger.add("n0", &format!("start 1 boot j 1 prolog 0 {script} {index} -")).unwrap();
            if *code != "-" {
                ledger.add("n0", &format!("end 2 boot j 1 prolog 0 {script} {index} {code}")).unwrap();
            }
        }
        ledger
    }

    fn known(outcome: &str, code: Option<i32>) -> Known {
        let (job, attempt, action) = ("j".into(), "1".into(), "prolog".into());
        Known { job, attempt, action, rank: 0, outcome: outcome.into(), code, scripts: BTreeMap::new() }
    }

    #[test]
    fn only_the_truth_holds() {
        let both_ok: &[(&str, &str)] = &[("a", "0"), ("b", "0")];
        let one_bad: &[(&str, &str)] = &[("a", "37"), ("b", "1")];
        let open: &[(&str, &str)] = &[("a", "0"), ("b", "-")];
        let cases = [
            (both_ok, known("ok", None), ""),
            (both_ok, known("failed", Some(3)), "failed with Some(3), in truth Some(0)"),
            (both_ok, known("failed", None), "every script ended with 0"),
            (both_ok, known("lost", None), "lost, and every script ended"),
            (both_ok, known("refused", None), "refused, and scripts ran"),
            (both_ok, known("running", None), "running, and every script has ended"),
            (both_ok, known(NOWHERE, None), "neither ok, nor open, nor ended"),
            (&[], known(NOWHERE, None), "neither ok, nor open, nor ended"),
            (one_bad, known("failed", Some(37)), ""),
            (one_bad, known("failed", Some(1)), "in truth Some(37)"),
            (one_bad, known("ok", None), "a ended with 37, b ended with 1"),
            (open, known("running", None), ""),
            (open, known("lost", None), ""),
            (open, known("failed", None), ""),
            (open, known("failed", Some(0)), "not every script ended"),
            (open, known("ok", None), "b never ended"),
            (&[("a", "0")], known("ok", None), "b never started"),
            (&[], known("ok", None), "a, b never started"),
            (&[], known("refused", None), ""),
            (&[], known("lost", None), ""),
            (&[("a", "0"), ("a", "0"), ("b", "0")], known("ok", None), "a started 2 times"),
        ];
        for (lines, known, expected) in cases {
            let comparison = compare(&ledger(lines), std::slice::from_ref(&known), &[("prolog", &["a", "b"])]);
            let faults = comparison.faults().join("\n");
            assert_eq!(comparison.holds(), expected.is_empty(), "{lines:?} {known:?}: {faults}");
            assert!(faults.contains(expected), "{lines:?} {known:?}: {faults}");
        }
    }

    #[test]
    fn what_one_side_lacks_or_has_twice_is_a_fault() {
        let ran = ledger(&[("a", "0")]);
        let ok = known("ok", None);
        assert_eq!(compare(&ran, &[], &[]).faults().len(), 1);
        assert!(compare(&ran, std::slice::from_ref(&ok), &[]).holds());
        assert_eq!(compare(&ran, &[ok.clone(), ok.clone()], &[]).faults().len(), 1);
        assert!(!compare(&Ledger::default(), &[], &[]).holds(), "nothing compared proves nothing");
        let epilog = compare(&ran, std::slice::from_ref(&ok), &[("prolog", &["a"]), ("epilog", &["a"])]);
        assert_eq!(epilog.faults(), ["no daemon knows of any epilog"]);
        let steps = Known { scripts: [("a".to_owned(), Some(1))].into(), ..ok };
        assert_eq!(compare(&ran, &[steps], &[]).faults().len(), 1);
    }

    #[test]
    fn it_is_shown_side_by_side() {
        let text = compare(&ledger(&[("a", "37"), ("b", "0")]), &[known("ok", None)], &[]).to_string();
        let expected = [
            "  task          ledger         controller",
            "! j 1 prolog 0  n0: a 37, b 0  ok",
            "  job j attempt 1: prolog of rank 0: ok, and a ended with 37",
            "  1 tasks compared, 1 differ",
        ];
        assert_eq!(text, expected.join("\n"));
    }
}
