//! Sequence of a task's scripts: which script runs next, when the runner retries a script, when the task ends.
//!
//! No script begins after a cancel, after the task's limit, after an error with `on-error = "stop"`, or after a step
//! that could not be recorded. The runner does not repeat a try that exceeded its limit or could not be executed:
//! retries are for errors that may pass (such as a missing mount).

use std::io;

use perilog_core::task::{Intent, OnError, Report, StepRecord};
use perilog_core::{Span, ids};
use perilog_host::clock;
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};

use crate::boot::Mark;
use crate::child::Running;
use crate::control::Control;
use crate::directory::Directory;
use crate::headline::Headline;
use crate::leftovers::Leftovers;
use crate::lists::Lists;
use crate::output::{Level, Sinks};
use crate::own_unit;
use crate::protocol::Reply;
use crate::reports::{Reports, Speaker, Verdict};
use crate::scripts;
use crate::signals::{SignalMeaning, Signals};
use crate::steps::Steps;
use crate::tally::{End, Tally};
use crate::task::{self, Moment, Planned};
use crate::turn::{self, Ready};
use crate::watchdog::{Limit, Watchdog};

/// Maximum number of children that the runner reaps before it looks at its limits and signals again: a script may make
/// orphans without end.
const REAPED_AT_ONCE: usize = 1_024;

/// Result of reaping children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reaped {
    /// Whether a child had ended.
    pub(crate) any: bool,
    /// Whether the runner has a child, and so whether a process of its scripts is left.
    pub(crate) are_left: bool,
}

#[derive(Debug)]
pub(crate) struct Sequence<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) directory: &'a Directory,
    pub(crate) steps: Steps,
    pub(crate) control: Option<Control>,
    signals: Signals,
    pub(crate) sinks: Sinks,
    pub(crate) reports: Reports,
    pub(crate) headline: Headline,
    /// Time limit of the whole task; `None`: no limit.
    pub(crate) limit: Option<Limit>,
    pub(crate) cancelled: bool,
    /// Number of the next try of a script; counts all tries of the task from 0.
    pub(crate) seq: u32,
    /// The script that runs and may send reports, with the uid of its user; `None`: no script runs.
    pub(crate) speaker: Option<(Speaker, u32)>,
    /// Watch for the file `boot-expected` ([`crate::boot`]), from a script's announcement of a reboot until that file
    /// is there. `None`: the runner watches for no such file.
    mark: Option<Mark>,
    /// The wait for processes that outlive the scripts. `None`: scripts run, or no process has outlived them.
    pub(crate) leftovers: Option<Leftovers>,
}

impl<'a> Sequence<'a> {
    /// Creates the sequence. `began`: CLOCK_MONOTONIC (ms) of the claim; `limit`: the time limit of the whole task.
    pub(crate) fn new(
        intent: &'a Intent,
        directory: &'a Directory,
        steps: Steps,
        control: Option<Control>,
        signals: Signals,
        sinks: Sinks,
        (began, limit): (u64, Option<Limit>),
    ) -> Self {
        Self {
            intent,
            directory,
            steps,
            control,
            signals,
            sinks,
            reports: Reports::new(began, &intent.start.milestones),
            headline: Headline::new(&intent.start),
            limit,
            cancelled: false,
            seq: 0,
            speaker: None,
            mark: None,
            leftovers: None,
        }
    }

    /// Runs all scripts, treats the processes that outlive them, and returns the sum of the scripts' ends with the time
    /// when they had ended. On return, the runner has written all output that the journal accepts, and has removed the
    /// control socket.
    pub(crate) fn run(mut self) -> (Tally, Moment) {
        let control = self.control.as_ref().map(Control::path);
        let lists = Lists::of(self.intent, control);
        let found = scripts::find(&self.intent.plan.run);
        let skipped = found.as_ref().map(|found| found.skipped.clone()).unwrap_or_default();
        for file in &skipped {
            self.sinks.write_line(Level::Warning, file);
        }
        let prepared = lists.as_ref().map_err(Clone::clone);
        let start = &self.intent.start;
        let stem = ids::stem(&start.action, &start.job, start.task);
        let prepared = own_unit::check(&stem).and(prepared);
        let prepared = prepared.and_then(|lists| task::prepare(self.intent, control, lists, found?.scripts));
        let mut tally = match prepared {
            Ok(planned) => self.run_all(&planned),
            Err(why) => {
                self.sinks.write_line(Level::Error, &format!("nothing is run: {why}"));
                let mut tally = Tally::new(0);
                tally.misconfigured(why);
                tally
            }
        };
        tally.skipped(skipped);
        drop(lists);
        self.control = None;
        let ended = Moment::now();
        self.see_off(tally.status() != 0, tally.is_timed_out());
        // Flushes first, so that pending messages are tried and waiting output has a deadline.
        self.sinks.flush(clock::mono_ms());
        while self.sinks.hopeful() {
            self.turn(None, None);
        }
        if self.cancelled {
            tally.cancelled(false);
        }
        self.headline.end(&tally.summary(), tally.status() == 0);
        (tally, ended)
    }

    fn run_all(&mut self, planned: &[Planned]) -> Tally {
        let of = u32::try_from(planned.len()).unwrap_or(u32::MAX);
        let mut tally = Tally::new(of);
        self.headline.of(planned.len());
        for (index, next) in planned.iter().enumerate() {
            self.turn(None, Some(0));
            if self.cancelled {
                tally.cancelled(true);
                break;
            }
            if self.is_out_of_time() {
                self.sinks.write_line(Level::Error, "the task's limit has passed: no further script begins");
                tally.out_of_time();
                break;
            }
            let name = &next.script.name;
            let task_ms = self.limit.map(|limit| limit.limit_ms);
            let limit_ms = next.timeout_ms.into_iter().chain(task_ms).min();
            self.headline.script(index + 1, name, clock::mono_ms(), clock::wall_ms(), limit_ms);
            match self.tries(next, of) {
                Ok(end) => {
                    let stop = end.is_error() && self.intent.plan.on_error == OnError::Stop;
                    tally.add(name, end);
                    if stop {
                        if index + 1 < planned.len() {
                            tally.cut_short();
                        }
                        break;
                    }
                }
                Err(error) => {
                    let why = task::unrecorded(self.directory, &error);
                    self.sinks.write_line(Level::Error, &why);
                    tally.misconfigured(why);
                    break;
                }
            }
        }
        tally
    }

    /// Tries a script until it succeeds or no retry is left, and returns the end of the last try. Does not retry after
    /// a try past its limit, if the script could not be executed, or after a cancel or the task's limit.
    fn tries(&mut self, planned: &Planned, of: u32) -> io::Result<End> {
        let retries = planned.retries;
        let mut pause = retries.backoff_ms;
        let mut attempt = 1;
        loop {
            let end = self.attempt(planned, attempt, of)?;
            let failed = match &end {
                End::Ended { status, timed_out, .. } => !status.is_success() && !timed_out,
                End::NotRun { .. } => false,
            };
            if !failed || attempt > retries.count {
                return Ok(end);
            }
            attempt = attempt.saturating_add(1);
            let text = format!("try {attempt} in {}", Span::from_millis(pause));
            self.headline.detail(&text);
            self.sinks.write_line(Level::Warning, &format!("{}: {text}", planned.script.name));
            if !self.pause(pause) {
                return Ok(end);
            }
            pause = pause.saturating_mul(2).min(retries.ceiling_ms.max(retries.backoff_ms));
        }
    }

    /// Waits for `ms` milliseconds. Returns `false` if a cancel or the task's limit came first.
    fn pause(&mut self, ms: u64) -> bool {
        let until = clock::mono_ms().saturating_add(ms);
        let deadline = self.limit.map_or(until, |limit| limit.at.min(until));
        loop {
            if self.cancelled || self.is_out_of_time() {
                return false;
            }
            if until <= clock::mono_ms() {
                return true;
            }
            self.turn(None, Some(deadline));
        }
    }

    fn is_out_of_time(&self) -> bool {
        self.limit.is_some_and(|limit| limit.at <= clock::mono_ms())
    }

    /// Waits until an event comes, until `deadline` (CLOCK_MONOTONIC, ms; `None`: no limit), or until the runner has
    /// something due of its own. Handles all events that came. `running`: the script that runs, if any, with its
    /// limits.
    pub(crate) fn turn(&mut self, mut running: Option<(&mut Running, &mut Watchdog)>, deadline: Option<u64>) {
        let deadline =
            [deadline, self.sinks.next(), self.reports.next(), self.headline.next()].into_iter().flatten().min();
        let script = running.as_ref().map(|(script, _)| &**script);
        let ready = turn::wait(&self.signals, &self.sinks, self.control.as_ref(), self.mark.as_ref(), script, deadline);
        for ready in ready {
            match (ready, &mut running) {
                (Ready::Signals, running) => {
                    for asked in self.signals.take() {
                        let running = running.as_mut().map(|(script, dog)| (&mut **script, &mut **dog));
                        self.carry_out(asked, running);
                    }
                }
                (Ready::Pipe(stream), Some((script, _))) => {
                    if let Err(error) = script.read(stream, &mut self.sinks, self.directory) {
                        self.sinks.write_line(Level::Warning, &self.directory.not_kept(&error));
                    }
                }
                (Ready::Stage, Some((script, _))) => script.read_stage(),
                (Ready::Listener, _) => {
                    let user = self.speaker.as_ref().map(|(_, uid)| *uid);
                    self.control.iter_mut().for_each(|control| control.admit(user));
                }
                (Ready::Mark, _) => self.check_mark(),
                (Ready::Peer(peer), _) => self.serve(peer),
                (Ready::Sink | Ready::Pipe(_) | Ready::Stage, _) => {}
            }
        }
        self.control.iter_mut().for_each(Control::sweep);
        let now = clock::mono_ms();
        if let Some(progress) = self.reports.due(now) {
            self.note(&progress);
        }
        self.headline.tick(now);
        self.sinks.flush(now);
    }

    fn carry_out(&mut self, asked: SignalMeaning, running: Option<(&mut Running, &mut Watchdog)>) {
        match (asked, running) {
            (SignalMeaning::Cancel, None) if self.leftovers.is_some() => {
                self.leftovers.iter_mut().for_each(Leftovers::term)
            }
            (SignalMeaning::Cancel, running) => {
                if std::mem::replace(&mut self.cancelled, true) {
                    return;
                }
                self.note(&StepRecord::Cancelled { at_ms: clock::wall_ms() });
                self.sinks.write_line(Level::Warning, "cancelled: nothing further begins");
                if let Some((script, dog)) = running {
                    dog.termed();
                    script.signal(Signal::TERM);
                }
            }
            (SignalMeaning::Forward(Signal::KILL), Some((script, dog))) => {
                script.kill();
                dog.killed(clock::mono_ms());
            }
            (SignalMeaning::Forward(signal), Some((script, _))) => script.signal(signal),
            (SignalMeaning::Forward(Signal::KILL), None) => self.leftovers.iter_mut().for_each(Leftovers::kill),
            (SignalMeaning::Reap, running) => {
                self.reap(running.map(|(script, _)| script));
            }
            (SignalMeaning::Forward(_), None) => {}
        }
    }

    /// Reaps the children that have ended: the script, which then has its status, and orphans of this script and of
    /// earlier ones. Logs an error of wait(2).
    pub(crate) fn reap(&mut self, mut script: Option<&mut Running>) -> Reaped {
        let mut any = false;
        for _ in 0..REAPED_AT_ONCE {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    any = true;
                    if let Some(script) = script.as_mut().filter(|script| script.group() == pid) {
                        script.end(status, clock::mono_ms());
                    }
                }
                Ok(None) => return Reaped { any, are_left: true },
                Err(Errno::INTR) => {}
                Err(Errno::CHILD) => return Reaped { any, are_left: false },
                Err(error) => {
                    self.sinks.write_line(Level::Error, &format!("cannot wait for the script: {error}"));
                    return Reaped { any, are_left: false };
                }
            }
        }
        // The rest is for the next turn.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::CHILD);
        Reaped { any, are_left: true }
    }

    fn serve(&mut self, peer: usize) {
        let Self { control, steps, sinks, reports, headline, speaker, mark, directory, intent, .. } = self;
        let Some(control) = control else {
            return;
        };
        control.serve(peer, &mut |report| {
            let (speaker, _) = speaker.as_ref().ok_or("no script is running")?;
            let is_boot = report == Report::ExpectReboot;
            let mut record =
                |record: &StepRecord| steps.append(record).map_err(|e| format!("the report cannot be recorded: {e}"));
            match reports.handle(speaker, report, clock::mono_ms(), clock::wall_ms())? {
                Verdict::Record { record: line, text } => {
                    record(&line)?;
                    reports.taken();
                    sinks.write_line(Level::Info, &text);
                }
                Verdict::Show { text, record: line } => {
                    headline.detail(&text);
                    line.iter().try_for_each(record)?;
                }
            }
            // A local task has no controller to inform.
            if !is_boot || intent.local {
                return Ok(Reply::Acknowledged);
            }
            // Begins to watch before the check, so that a mark in between is not lost.
            if mark.is_none() {
                match Mark::watch(directory) {
                    Ok(watch) => *mark = Some(watch),
                    Err(error) => sinks.write_line(
                        Level::Warning,
                        &format!("cannot see when the controller acknowledges the announced reboot: {error}"),
                    ),
                }
            }
            Ok(if Mark::is_there(directory) { Reply::Acknowledged } else { Reply::Recorded })
        });
    }

    /// Looks for the agent's mark that the controller knows of the announced reboot. If the mark is there, informs the
    /// peers that wait for it, and stops watching.
    fn check_mark(&mut self) {
        self.mark.iter().for_each(Mark::clear);
        if Mark::is_there(self.directory) {
            self.mark = None;
            self.control.iter_mut().for_each(Control::known);
        }
    }

    /// Appends the record of an event that has already happened to the steps file. If this fails, logs the error and
    /// goes on.
    pub(crate) fn note(&mut self, record: &StepRecord) {
        let (directory, steps) = (self.directory, &mut self.steps);
        if let Err(error) = directory.with_room(|| steps.append(record)) {
            self.sinks.write_line(
                Level::Error,
                &format!("cannot write {}: {error}", self.directory.file(crate::steps::FILE)),
            );
        }
    }
}
