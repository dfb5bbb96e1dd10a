//! The progress bar: on standard error, and only if that is a terminal and the output is for people.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Period of redrawing the progress bar, so that its elapsed time goes on.
const TICK: Duration = Duration::from_secs(1);

pub(super) struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    pub(super) fn new(wanted: bool, title: String) -> Self {
        if !wanted || !stderr().is_terminal() {
            return Self { bar: None };
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()).with_prefix(title);
        // A template that does not parse leaves indicatif's default, which is also a bar.
        if let Ok(style) = ProgressStyle::with_template("{prefix}  {bar:24} {pos}/{len}  {elapsed}  {wide_msg}") {
            bar.set_style(style.progress_chars("━╸ "));
        }
        Self { bar: Some(bar) }
    }

    pub(super) fn begin(&self, ranks: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(ranks);
            bar.enable_steady_tick(TICK);
        }
    }

    pub(super) fn set(&self, ended: u64, message: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position(ended);
            bar.set_message(message());
        }
    }

    /// Removes the bar from the screen while `print` prints.
    pub(super) fn beside<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
