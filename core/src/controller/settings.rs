//! Settings: applies a reload of the configuration.

use crate::agent::io::Level;
use crate::controller::interface::io::Settings;
use crate::controller::job::keeps_less;
use crate::controller::machine::Machine;
use crate::defect;

impl Machine {
    /// Applies new settings. Warns if the outbox has notices for the release hook and no release hook is configured.
    pub(crate) fn on_settings(&mut self, settings: Settings) {
        self.jobs.after.clone_from(&settings.after);
        if !defect!(LessKeptLater) {
            self.prunes_on |= keeps_less(&settings, &self.cx.settings);
        }
        self.cx.settings = settings;
        self.drains.set_hook(self.cx.settings.drain_hook, &mut self.cx);
        let pending = self.cx.outbox.pending();
        if !self.cx.settings.release_hook && pending > 0 {
            let were = if pending == 1 { "release is" } else { "releases are" };
            let text = format!(
                "{pending} {were} pending, but no release hook is configured. A hook that is configured later gets \
                 them. To drop them: perilog job forget JOB --releases --reason TEXT"
            );
            self.cx.note(Level::Warning, None, None, text);
        }
    }
}
