//! Handling of reports: the runner records a report before it confirms it to the script.
//!
//! The runner shows `progress` to systemd at once and records it ever more sparsely. While the script runs it records
//! the latest in time: `perilog ps` shows the latest, and a script may report every second for a day.

use std::collections::BTreeSet;

use perilog_core::MilestoneName;
use perilog_core::milestone::MAX_NAMES;
use perilog_core::task::{Report, StepRecord};

use crate::output::one_line;

/// Maximum number of recorded reports of a task, progress not counted: enough for every check of a node, too few to
/// fill /run.
pub(crate) const MAX_REPORTS: u32 = 256;

/// Shortest time in milliseconds between two records of progress.
const PROGRESS_EVERY_MS: u64 = 10_000;
/// Divisor of the task's age: the time between two records of progress is at least the age divided by this number. So a
/// task of a week has a few hundred records.
const PROGRESS_SHARE: u64 = 32;

/// The script that sends a report, with the number of its try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Speaker {
    pub(crate) seq: u32,
    pub(crate) script: String,
}

impl Speaker {
    fn record(&self, report: Report, at_ms: u64) -> StepRecord {
        StepRecord::Report { seq: self.seq, script: self.script.clone(), at_ms, report }
    }
}

/// The step that the runner takes for an accepted report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Record the report, then answer the script; the text is for the journal.
    Record { record: StepRecord, text: String },
    /// Show the progress text in the unit's status. `record`: the record to write, if one is due now.
    Show { text: String, record: Option<StepRecord> },
}

/// State of a task's reports. Times are milliseconds: `now` is CLOCK_MONOTONIC, `at_ms` counts since 1970.
#[derive(Debug)]
pub(crate) struct Reports {
    began: u64,
    taken: u32,
    /// Milestones that the attempt had before the task, and those that the runner has accepted.
    milestones: BTreeSet<String>,
    /// CLOCK_MONOTONIC (ms) before which the runner records no further progress.
    progress_at: u64,
    /// The latest progress report, if it is not recorded yet; `None`: no progress waits to be recorded.
    waiting: Option<StepRecord>,
}

impl Reports {
    /// Makes the state of a task that began at `began`; `milestones`: those that the attempt has already.
    pub(crate) fn new(began: u64, milestones: &BTreeSet<MilestoneName>) -> Self {
        let milestones = milestones.iter().map(ToString::to_string).collect();
        Self { began, taken: 0, milestones, progress_at: 0, waiting: None }
    }

    /// Handles a report of the script `speaker`. `now` is CLOCK_MONOTONIC (ms), `at_ms` counts milliseconds since 1970.
    ///
    /// # Errors
    /// The reason of a refusal: the task has [`MAX_REPORTS`] reports, or its attempt has [`MAX_NAMES`] milestones.
    pub(crate) fn handle(
        &mut self,
        speaker: &Speaker,
        report: Report,
        now: u64,
        at_ms: u64,
    ) -> Result<Verdict, String> {
        let report = tidy(report);
        if let Report::Progress { message } = &report {
            let text = message.clone();
            self.waiting = Some(speaker.record(report, at_ms));
            return Ok(Verdict::Show { text, record: self.due(now) });
        }
        if self.taken >= MAX_REPORTS {
            return Err(format!("this task has made {MAX_REPORTS} reports, which is the limit"));
        }
        if let Report::Milestone { name } = &report
            && !self.milestones.contains(name)
        {
            if self.milestones.len() >= MAX_NAMES {
                return Err(format!("this attempt of the job has {MAX_NAMES} milestones, which is the limit"));
            }
            self.milestones.insert(name.clone());
        }
        let text = format!("{}: {}", speaker.script, describe(&report));
        let record = speaker.record(report, at_ms);
        Ok(Verdict::Record { record, text })
    }

    /// Counts one report toward [`MAX_REPORTS`], after the runner has recorded the report.
    pub(crate) fn taken(&mut self) {
        self.taken += 1;
    }

    /// Returns CLOCK_MONOTONIC (ms) at which to call [`Self::due`]; `None`: no progress waits.
    pub(crate) fn next(&self) -> Option<u64> {
        self.waiting.as_ref().map(|_| self.progress_at)
    }

    /// Takes out and returns the progress report that waits to be recorded, if its time has come at `now`
    /// (CLOCK_MONOTONIC, ms).
    pub(crate) fn due(&mut self, now: u64) -> Option<StepRecord> {
        let record = self.waiting.take_if(|_| self.progress_at <= now)?;
        let age = now.saturating_sub(self.began);
        self.progress_at = now.saturating_add(PROGRESS_EVERY_MS.max(age / PROGRESS_SHARE));
        Some(record)
    }

    /// Drops waiting progress, because the script has ended.
    pub(crate) fn script_ended(&mut self) {
        self.waiting = None;
    }
}

/// Replaces control characters in a report's texts: terminals show the texts, and users may have written them.
fn tidy(report: Report) -> Report {
    match report {
        Report::Tolerable { check, message } => Report::Tolerable { check, message: one_line(&message) },
        Report::Progress { message } => Report::Progress { message: one_line(&message) },
        Report::User { message } => Report::User { message: one_line(&message) },
        plain @ (Report::Milestone { .. } | Report::ExpectReboot) => plain,
    }
}

fn describe(report: &Report) -> String {
    match report {
        Report::Tolerable { check, message } => format!("tolerable, check {check}: {message}"),
        Report::Milestone { name } => format!("milestone {name}"),
        Report::Progress { message } => message.clone(),
        Report::ExpectReboot => "expects this host to boot".to_owned(),
        Report::User { message } => format!("to the job's owner: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speaker() -> Speaker {
        Speaker { seq: 3, script: "20-lustre".to_owned() }
    }

    fn progress(reports: &mut Reports, text: &str, now: u64) -> Option<StepRecord> {
        let message = text.to_owned();
        match reports.handle(&speaker(), Report::Progress { message }, now, now) {
            Ok(Verdict::Show { record, .. }) => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_report_is_tidied_and_recorded_up_to_the_bound() {
        let mut reports = Reports::new(0, &BTreeSet::new());
        let receive = |reports: &mut Reports| {
            let message = "mount\nMAINPID=1\u{1b}".to_owned();
            let check = "lustre".to_owned();
            reports.handle(&speaker(), Report::Tolerable { check, message }, 5, 7)
        };
        let Ok(Verdict::Record { record, text }) = receive(&mut reports) else {
            panic!("not recorded");
        };
        assert_eq!(text, "20-lustre: tolerable, check lustre: mount MAINPID=1 ");
        let check = "lustre".to_owned();
        let message = "mount MAINPID=1 ".to_owned();
        assert_eq!(record, speaker().record(Report::Tolerable { check, message }, 7));
        for _ in 0..MAX_REPORTS {
            assert!(receive(&mut reports).is_ok());
            reports.taken();
        }
        assert!(receive(&mut reports).unwrap_err().contains("256"));
        assert!(progress(&mut reports, "still shown", 10).is_some());
    }

    #[test]
    fn the_first_progress_is_recorded_and_the_latest_of_the_others() {
        let mut reports = Reports::new(0, &BTreeSet::new());
        assert!(progress(&mut reports, "a", 0).is_some());
        assert_eq!(reports.next(), None);
        assert!(progress(&mut reports, "b", 1).is_none() && progress(&mut reports, "c", 2).is_none());
        assert_eq!((reports.next(), reports.due(9_999)), (Some(10_000), None));
        let message = "c".to_owned();
        assert_eq!(reports.due(10_000), Some(speaker().record(Report::Progress { message }, 2)));
        progress(&mut reports, "d", 10_001);
        reports.script_ended();
        assert_eq!((reports.next(), reports.due(u64::MAX)), (None, None));
    }

    #[test]
    fn progress_every_second_for_a_week_is_some_hundred_records() {
        let mut reports = Reports::new(0, &BTreeSet::new());
        let week = 7 * 24 * 3600;
        let recorded = (0..week).filter(|s| progress(&mut reports, "x", s * 1000).is_some()).count();
        assert!((100..400).contains(&recorded), "{recorded}");
    }
}
