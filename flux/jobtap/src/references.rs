//! Table of the references that this load of the plugin holds, by job; no I/O. Flux counts references without their
//! owners, so one finish too many would take a reference of another plugin. This table refuses such a finish.
//!
//! ```text
//!  none ──take──▶ open ──finish──▶ finished
//!  before ───────────────finish──▶ finished
//! ```
//!
//! `before`: the job precedes the plugin, and only the eventlog shows whether the reference is open.

use std::collections::BTreeMap;

/// One of the two references that the plugin holds on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Prolog,
    Epilog,
}

impl What {
    pub(crate) fn read(word: &[u8]) -> Option<Self> {
        match word {
            b"prolog" => Some(Self::Prolog),
            b"epilog" => Some(Self::Epilog),
            _ => None,
        }
    }
}

/// State of a job that has resources (RFC 21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Run,
    Cleanup,
}

impl State {
    /// Reads a job's state from Flux's number for it; `None`: a job in that state has no resources.
    pub(crate) const fn read(number: i32) -> Option<Self> {
        match number {
            16 => Some(Self::Run),
            32 => Some(Self::Cleanup),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reference {
    None,
    Open,
    Finished,
    Before,
}

impl Reference {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Open => "open",
            Self::Finished => "finished",
            Self::Before => "before",
        }
    }
}

/// The reason why a reference cannot be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoneIsOpen,
    FinishedAlready,
}

#[derive(Debug)]
struct Job {
    prolog: Reference,
    epilog: Reference,
}

impl Job {
    const fn of(&mut self, what: What) -> &mut Reference {
        match what {
            What::Prolog => &mut self.prolog,
            What::Epilog => &mut self.epilog,
        }
    }
}

/// A finish that the table has permitted: job, reference and earlier state, for [`References::take_back`].
#[derive(Debug)]
pub(crate) struct Granted(u64, What, Reference);

#[derive(Debug)]
pub(crate) struct References(BTreeMap<u64, Job>);

impl References {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Records a job that had resources before Flux loaded the plugin: its references may be open.
    pub(crate) fn found(&mut self, id: u64, state: State) {
        let epilog = if state == State::Cleanup { Reference::Before } else { Reference::None };
        self.0.insert(id, Job { prolog: Reference::Before, epilog });
    }

    /// Records a reference that the plugin has taken.
    pub(crate) fn take(&mut self, id: u64, what: What) {
        let none = Job { prolog: Reference::None, epilog: Reference::None };
        *self.0.entry(id).or_insert(none).of(what) = Reference::Open;
    }

    /// Returns `true` if the table has an entry for the job.
    pub(crate) fn knows(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }

    /// Records a reference as finished and permits its finish in Flux. The reference must be open, or may be open
    /// because the job existed before the plugin. Each reference is finished once.
    ///
    /// # Errors
    /// [`Refusal`]: the job has no such reference, or it was finished already.
    pub(crate) fn finish(&mut self, id: u64, what: What) -> Result<Granted, Refusal> {
        let reference = self.0.get_mut(&id).ok_or(Refusal::NoneIsOpen)?.of(what);
        match *reference {
            Reference::None => Err(Refusal::NoneIsOpen),
            Reference::Finished => Err(Refusal::FinishedAlready),
            was @ (Reference::Open | Reference::Before) => {
                *reference = Reference::Finished;
                Ok(Granted(id, what, was))
            }
        }
    }

    /// Restores the reference's state from before a finish that Flux did not accept. Does nothing if the job is gone.
    pub(crate) fn take_back(&mut self, Granted(id, what, was): Granted) {
        if let Some(job) = self.0.get_mut(&id) {
            *job.of(what) = was;
        }
    }

    pub(crate) fn forget(&mut self, id: u64) {
        self.0.remove(&id);
    }

    /// Returns a JSON array with an object for each job: its id and the states of its two references, for example
    /// `[{"id":7,"prolog":"open","epilog":"none"}]`.
    pub(crate) fn to_json(&self) -> String {
        let job = |(id, job): (&u64, &Job)| {
            format!(r#"{{"id":{id},"prolog":"{}","epilog":"{}"}}"#, job.prolog.as_str(), job.epilog.as_str())
        };
        format!("[{}]", self.0.iter().map(job).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: u64 = 7;

    enum Step {
        Found(State),
        Take(What),
        Finish(What, Result<(), Refusal>),
        /// The table permits a finish, Flux refuses it, and the table restores the reference's earlier state.
        Fail(What),
        Forget,
    }

    #[test]
    fn each_reference_is_finished_once() {
        use {Refusal::*, State::*, Step::*, What::*};
        for (steps, left) in [
            (vec![Finish(Prolog, Err(NoneIsOpen))], None),
            (vec![Take(Prolog)], Some(("open", "none"))),
            (vec![Take(Prolog), Finish(Epilog, Err(NoneIsOpen))], Some(("open", "none"))),
            (vec![Take(Prolog), Finish(Prolog, Ok(()))], Some(("finished", "none"))),
            (
                vec![Take(Prolog), Finish(Prolog, Ok(())), Finish(Prolog, Err(FinishedAlready))],
                Some(("finished", "none")),
            ),
            (vec![Take(Prolog), Take(Epilog), Finish(Prolog, Ok(()))], Some(("finished", "open"))),
            (vec![Take(Prolog), Fail(Prolog), Finish(Prolog, Ok(()))], Some(("finished", "none"))),
            (vec![Take(Epilog)], Some(("none", "open"))),
            (vec![Found(Run), Finish(Epilog, Err(NoneIsOpen))], Some(("before", "none"))),
            (vec![Found(Run), Take(Epilog), Finish(Epilog, Ok(()))], Some(("before", "finished"))),
            (
                vec![Found(Run), Finish(Prolog, Ok(())), Finish(Prolog, Err(FinishedAlready))],
                Some(("finished", "none")),
            ),
            (vec![Found(Run), Fail(Prolog)], Some(("before", "none"))),
            (vec![Found(Cleanup), Finish(Epilog, Ok(()))], Some(("before", "finished"))),
            (vec![Take(Prolog), Forget, Finish(Prolog, Err(NoneIsOpen))], None),
        ] {
            let mut references = References::new();
            for step in &steps {
                match step {
                    Found(state) => references.found(JOB, *state),
                    Take(what) => references.take(JOB, *what),
                    Finish(what, expected) => assert_eq!(references.finish(JOB, *what).map(drop), *expected),
                    Fail(what) => {
                        let granted = references.finish(JOB, *what).ok();
                        granted.into_iter().for_each(|granted| references.take_back(granted));
                    }
                    Forget => references.forget(JOB),
                }
            }
            let expected =
                left.map(|(prolog, epilog)| format!(r#"{{"id":7,"prolog":"{prolog}","epilog":"{epilog}"}}"#));
            assert_eq!(references.to_json(), format!("[{}]", expected.unwrap_or_default()));
        }
    }

    #[test]
    fn a_finish_is_not_taken_back_from_a_job_that_is_gone() {
        let mut references = References::new();
        references.take(JOB, What::Epilog);
        let granted = references.finish(JOB, What::Epilog).ok();
        references.forget(JOB);
        granted.into_iter().for_each(|granted| references.take_back(granted));
        assert_eq!(references.to_json(), "[]");
    }

    #[test]
    fn words_and_states() {
        assert_eq!(
            (What::read(b"prolog"), What::read(b"epilog"), What::read(b"")),
            (Some(What::Prolog), Some(What::Epilog), None)
        );
        let states = [1, 2, 4, 8, 16, 32, 64].map(State::read);
        assert_eq!(states, [None, None, None, None, Some(State::Run), Some(State::Cleanup), None]);
    }
}
