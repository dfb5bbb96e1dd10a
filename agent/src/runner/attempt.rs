//! A try of a script, from its begin record to its end record.

use std::io;

use perilog_core::Span;
use perilog_core::duration::elapsed;
use perilog_core::task::{KILLED_IN_VAIN, StepRecord};
use perilog_host::clock;
use rustix::process::Signal;

use crate::child::{Running, Setting};
use crate::control::Control;
use crate::digest;
use crate::exit;
use crate::forensics;
use crate::output::Level;
use crate::reports::Speaker;
use crate::sequence::Sequence;
use crate::stage;
use crate::tally::End;
use crate::task::Planned;
use crate::watchdog::{Due, Limit, Watchdog};

impl Sequence<'_> {
    /// Runs one try of the script `planned`. `attempt` is the number of the try, from 1; `of` is the number of scripts.
    ///
    /// # Errors
    /// The file system was full before, or the runner could not write the begin record or the record that the script
    /// could not be executed. In each case the script does not run, as far as the runner knows.
    pub(crate) fn attempt(&mut self, planned: &Planned, attempt: u32, of: u32) -> io::Result<End> {
        let (script, user) = (&planned.script, &planned.identity.user);
        let seq = self.seq;
        self.seq += 1;
        let digest = match digest::of(&script.path) {
            Ok(digest) => digest,
            Err(error) => return self.not_run(seq, &script.name, error.to_string(), exit::of_exec(&error)),
        };
        if self.directory.is_full() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.steps.append(&StepRecord::Begin {
            seq,
            script: script.name.clone(),
            digest,
            user: user.name.clone(),
            attempt,
            at_ms: clock::wall_ms(),
            of,
        })?;
        let setting = Setting { cwd: &self.intent.plan.cwd, umask: self.intent.plan.umask, env: &planned.identity.env };
        if let Some(Err(error)) = self.control.as_ref().map(|control| control.give_to(user.uid)) {
            let text = format!(
                "cannot give the control socket to user {}: {error}; reports of the script will not arrive",
                user.name
            );
            self.sinks.write_line(Level::Warning, &text);
        }
        let began = clock::mono_ms();
        let running = match Running::start(script, user, &setting, seq, began) {
            Ok(running) => running,
            Err(error) => return self.not_run(seq, &script.name, stage::cannot_execute(&error), exit::of_exec(&error)),
        };
        let speaker = Speaker { seq, script: script.name.clone() };
        self.speaker = Some((speaker, user.uid));
        let limit = planned.timeout_ms.map(|limit_ms| Limit::new(began, limit_ms));
        let watchdog = Watchdog::new(limit, self.limit, self.intent.plan.on_timeout);
        let end = self.attend(running, watchdog, (seq, began), planned);
        self.speaker = None;
        self.reports.script_ended();
        self.control.iter_mut().for_each(Control::clear);
        end
    }

    /// Watches the script, which began at `began` (CLOCK_MONOTONIC, ms), until it ends, and records its end.
    fn attend(
        &mut self,
        mut running: Running,
        mut watchdog: Watchdog,
        (seq, began): (u32, u64),
        planned: &Planned,
    ) -> io::Result<End> {
        let name = &planned.script.name;
        loop {
            let now = clock::mono_ms();
            if watchdog.next().is_some_and(|at| at <= now) {
                // The script may have ended in time, with its SIGCHLD still unread.
                self.reap(Some(&mut running));
            }
            if running.done(now) {
                break;
            }
            let limit = if running.ended().is_none() {
                while let Some(due) = watchdog.due(now) {
                    self.enforce(due, &running, seq, name);
                }
                watchdog.next()
            } else {
                None
            };
            let deadline = limit.into_iter().chain(running.next()).min();
            self.turn(Some((&mut running, &mut watchdog)), deadline);
        }
        let ended = running.ended();
        let refusal = running.refusal().map(str::to_owned);
        if let Err(error) = running.finish(&mut self.sinks, self.directory) {
            self.sinks.write_line(Level::Warning, &self.directory.not_kept(&error));
        }
        let (status, elapsed_ms) = match (refusal, ended) {
            (None, Some(ended)) => ended,
            (refusal, ended) => {
                let why = refusal.unwrap_or_else(|| "the runner did not see how it ended".to_owned());
                let status = ended.map_or(exit::NOT_EXECUTABLE, |(status, _)| status.shell().max(exit::NOT_EXECUTABLE));
                return self.not_run(seq, name, why, status);
            }
        };
        // The runner may have been frozen with the script, past the limit and until both had ended.
        let unseen = watchdog.passed_by(began.saturating_add(elapsed_ms)).filter(|_| !watchdog.overdue());
        if let Some(limit_ms) = unseen {
            let text = format!("ended past its limit of {}", Span::from_millis(limit_ms));
            self.sinks.write_line(Level::Error, &format!("{name}: {text}; its runner could not watch it"));
        }
        let timed_out = watchdog.overdue() || unseen.is_some();
        let tolerable = planned.tolerable && !status.is_success() && !timed_out && !self.cancelled;
        if !status.is_success() {
            let (level, also) = if tolerable { (Level::Warning, ", which is tolerable") } else { (Level::Error, "") };
            self.sinks.write_line(level, &format!("{name}: {status} after {}{also}", elapsed(elapsed_ms)));
        }
        self.note(&StepRecord::End {
            seq,
            script: name.clone(),
            at_ms: clock::wall_ms(),
            elapsed_ms,
            status,
            tolerable,
            timed_out,
        });
        Ok(End::Ended { status, tolerable, timed_out })
    }

    /// Acts on a script past a limit. When the limit has passed, inspects the script's processes, records the
    /// inspection, and then sends TERM if `due` says so. Sends KILL when that is due.
    fn enforce(&mut self, due: Due, running: &Running, seq: u32, name: &str) {
        match due {
            Due::Overdue { limit, term } => {
                let doing = self.note_overdue(seq, name, limit.limit_ms, None);
                let text = format!("past its limit of {}", Span::from_millis(limit.limit_ms));
                self.headline.detail(&text);
                let doing = if doing.is_empty() { doing } else { format!(": {doing}") };
                self.sinks.write_line(Level::Error, &format!("{name}: {text}{doing}"));
                if term {
                    running.signal(Signal::TERM);
                }
            }
            Due::Kill => {
                self.sinks.write_line(Level::Error, &format!("{name}: killed past its limit (on-timeout = \"kill\")"));
                running.kill();
            }
            Due::InVain { limit_ms } => {
                let doing = self.note_overdue(seq, name, limit_ms, Some(KILLED_IN_VAIN));
                self.sinks.write_line(Level::Error, &format!("{name}: {doing}"));
            }
        }
    }

    /// Inspects the processes of a script past its limit, records what they do, and returns that in one line, after
    /// `first`.
    fn note_overdue(&mut self, seq: u32, name: &str, limit_ms: u64, first: Option<&str>) -> String {
        let forensics::Seen { text: forensics, doing } = forensics::gather();
        let doing = first.into_iter().chain([doing.as_str()]).filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let doing = doing.join(": ");
        self.note(&StepRecord::Overdue {
            seq,
            script: name.to_owned(),
            at_ms: clock::wall_ms(),
            limit_ms,
            forensics,
            doing: doing.clone(),
        });
        doing
    }

    fn not_run(&mut self, seq: u32, name: &str, why: String, status: u8) -> io::Result<End> {
        self.sinks.write_line(Level::Error, &format!("{name}: {why}"));
        self.steps.append(&StepRecord::NotRun {
            seq,
            script: name.to_owned(),
            at_ms: clock::wall_ms(),
            why: why.clone(),
        })?;
        Ok(End::NotRun { why, status })
    }
}
