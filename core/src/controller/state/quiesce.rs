//! Quiesce: decides whether an action may begin while an operator replaces the daemon or works in the machine room. A
//! quiesced controller refuses new setup actions and new external actions. Actions that exist go on, and after-actions
//! still begin. While the store's disk is full, the controller refuses new actions named `prolog`. The store keeps the
//! quiesced state: a restarted controller stays quiesced until an operator types `perilog resume`.

use std::collections::BTreeSet;

use crate::controller::interface::io::{Client, Now, Quiet, Record, Refusal, Reply};
use crate::controller::state::context::Context;
use crate::controller::state::jobs::Jobs;
use crate::defect;
use crate::duration::Span;
use crate::ids::ActionName;

/// Maximum number of clients (`perilog quiesce --wait`) that wait until no action is open.
const MAX_WAITS: usize = 64;

/// The two states in which the controller refuses new actions: it is quiesced, or the store's disk is full.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Quiesce {
    /// The quiesced state; `None`: the controller is not quiesced.
    pub(crate) quiet: Option<Quiet>,
    /// Clients that wait until no action is open.
    pub(crate) waits: BTreeSet<Client>,
    /// `true` if the disk under the store is full.
    pub(crate) store_full: bool,
}

impl Jobs {
    /// Returns two numbers: of open actions, and of open tasks.
    pub(crate) fn open_count(&self) -> (u64, u64) {
        let open = self.table.live_actions().filter(|action| action.is_open());
        open.fold((0, 0), |(actions, tasks), action| (actions + 1, tasks + action.count_open()))
    }
}

impl Quiesce {
    /// Checks whether a new action of this name may begin now. A quiesced controller begins only after-actions. While
    /// the store's disk is full, the controller begins no `prolog`.
    ///
    /// # Errors
    /// `Unavailable`, with the reason.
    pub(crate) fn may_begin(&self, action: &ActionName, cx: &Context) -> Result<(), Refusal> {
        if self.store_full && action.as_str() == "prolog" {
            let text = "the store's disk is full: no new prolog begins until there is room; epilogs begin, and running \
                        work goes on";
            return Err(Refusal::Unavailable(text.to_owned()));
        }
        match &self.quiet {
            Some(quiet) if !cx.settings.after.contains(action) => {
                let text = format!(
                    "{action} does not begin: {}; to let actions begin again: perilog resume",
                    quiet.text(cx.now)
                );
                Err(Refusal::Unavailable(text))
            }
            _ => Ok(()),
        }
    }

    /// Quiesces the controller, and returns the reply to the client. `None`: the client asked to `wait`, and gets its
    /// reply once no action is open.
    pub(crate) fn quiesce(
        &mut self,
        client: Client,
        reason: String,
        wait: bool,
        uid: u32,
        jobs: &Jobs,
        cx: &mut Context,
    ) -> Option<Result<Reply, Refusal>> {
        if self.quiet.is_none() {
            let quiet = Quiet { since_ms: cx.now.wall_ms, by: uid, reason: reason.trim().to_owned() };
            if !defect!(QuietForgotten) {
                cx.records.push(Record::Quiet(Some(quiet.clone())));
            }
            self.quiet = Some(quiet);
        }
        let (actions, tasks) = jobs.open_count();
        if !wait || actions == 0 {
            return Some(Ok(Reply::Quiet { actions, tasks }));
        }
        if self.waits.len() >= MAX_WAITS {
            let text = format!(
                "the controller is quiesced. {MAX_WAITS} commands already wait for the open work, so this one tries \
                 again"
            );
            return Some(Err(Refusal::Unavailable(text)));
        }
        self.waits.insert(client);
        None
    }

    /// Removes disconnected clients from those that wait until no action is open.
    pub(crate) fn hung_up(&mut self, clients: &[Client]) {
        self.waits.retain(|client| !clients.contains(client));
    }

    /// Ends the quiesced state. Clients that still wait until no action is open get a refusal.
    pub(crate) fn resume(&mut self, uid: u32, cx: &mut Context) -> Reply {
        let was_quiet = self.quiet.take().is_some();
        if was_quiet {
            cx.records.push(Record::Quiet(None));
        }
        for client in std::mem::take(&mut self.waits) {
            cx.reply(client, Err(Refusal::Conflict(format!("uid {uid} ended the quiesced state (perilog resume)"))));
        }
        Reply::Resumed { was_quiet }
    }

    /// Sends the waiting clients their reply, if no action is open at the end of the batch.
    pub(crate) fn answer_quiet(&mut self, jobs: &Jobs, cx: &mut Context) {
        if self.waits.is_empty() || jobs.table.live_actions().any(|action| action.is_open()) {
            return;
        }
        for client in std::mem::take(&mut self.waits) {
            cx.reply(client, Ok(Reply::Quiet { actions: 0, tasks: 0 }));
        }
    }
}

impl Quiet {
    /// Returns the quiesced state as a text for people, such as `quiet for 5m by uid 0 (new release)`.
    pub(crate) fn text(&self, now: Now) -> String {
        let reason = if self.reason.is_empty() { String::new() } else { format!(" ({})", self.reason) };
        let seconds = now.wall_ms.saturating_sub(self.since_ms) / 1000;
        format!("quiet for {} by uid {}{reason}", Span::from_millis(seconds * 1000), self.by)
    }
}
