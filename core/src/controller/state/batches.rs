//! Batches of releases.

/// Schedule of an action's batches under the policy [`crate::controller::interface::io::ReleasePolicy::Batches`].
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Batches {
    /// Time (ms, monotonic) of the next batch; `None`: no ended rank or resource waits.
    pub(crate) at_ms: Option<u64>,
    /// Length (ms) of the newest batch's wait, which is under way or over; 0: there was no batch yet. The next wait is
    /// twice as long, up to the policy's ceiling.
    waited_ms: u64,
}

impl Batches {
    /// Moves the schedule on to the time `mono_ms`, and returns `true` if a batch of ended ranks and resources is due
    /// then. `waits`: the action still holds ended ranks or resources. The first batch comes `first_ms` after the first
    /// of these. Each further batch waits twice as long as the batch before, at most `ceiling_ms`. All times are in
    /// milliseconds.
    pub(crate) fn due(&mut self, waits: bool, first_ms: u64, ceiling_ms: u64, mono_ms: u64) -> bool {
        match self.at_ms {
            _ if !waits => {
                self.at_ms = None;
                false
            }
            None => {
                self.waited_ms =
                    if self.waited_ms == 0 { first_ms } else { self.waited_ms.saturating_mul(2).min(ceiling_ms) };
                self.at_ms = Some(mono_ms.saturating_add(self.waited_ms));
                false
            }
            Some(at) if at <= mono_ms => {
                self.at_ms = None;
                true
            }
            Some(_) => false,
        }
    }
}
