//! Standard output of a verb, in one of three faces: a table for people, JSON for programs, or bare names for shell
//! scripts.
//!
//! A verb that prints through [`Render`] knows nothing of terminals, pipes or colours; only `top` draws on the terminal
//! itself. A closed pipe is [`Fault::PipeClosed`]: the program ends silently.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use crate::columns::{Columns, fold};
use crate::fault::Fault;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// A table for people.
    Table,
    /// JSON for programs: the body of the API's reply, one value a line.
    Json,
    /// Bare names for shell scripts, or nothing but the exit status.
    Quiet,
}

/// Output of a verb, or a part of that output, in three faces: table, JSON, quiet. A face may be empty.
pub(crate) trait Render {
    fn table(&self, page: &mut Page);
    fn json(&self) -> Option<Value>;
    fn quiet(&self, page: &mut Page);
}

/// Collects the lines of an output before [`Out`] prints them. A page takes text unchanged, so its writer first escapes
/// text of scripts and users with [`crate::text`].
pub(crate) struct Page {
    text: String,
    /// Width of the terminal in characters; `None`: standard output is no terminal.
    width: Option<usize>,
    /// Wall time at which the page is made, in milliseconds since 1970.
    pub(crate) now_ms: u64,
}

impl Page {
    pub(crate) const fn new(width: Option<usize>, now_ms: u64) -> Self {
        Self { text: String::new(), width, now_ms }
    }

    /// Adds a line; on a terminal, it breaks at words.
    pub(crate) fn line(&mut self, line: impl Display) {
        let line = line.to_string();
        self.text.push_str(&self.width.map_or_else(|| line.clone(), |width| fold(&line, width)));
        self.text.push('\n');
    }

    pub(crate) fn blank(&mut self) {
        self.text.push('\n');
    }

    pub(crate) fn columns<const N: usize>(&mut self, columns: Columns<N>) {
        self.indented(0, columns);
    }

    /// Adds a table of which nothing is cut, however narrow the terminal is.
    pub(crate) fn uncut<const N: usize>(&mut self, columns: Columns<N>) {
        self.text.push_str(&columns.render(None, 0));
    }

    pub(crate) fn indented<const N: usize>(&mut self, indent: usize, columns: Columns<N>) {
        self.text.push_str(&columns.render(self.width, indent));
    }
}

pub(crate) struct Out {
    pub(crate) format: OutputFormat,
    to: Box<dyn Write + Send>,
    width: Option<usize>,
}

impl Out {
    /// Opens standard output; colours follow `--color`, NO_COLOR and the terminal.
    pub(crate) fn stdout(format: OutputFormat) -> Self {
        let stdout = io::stdout();
        let width = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
        Self {
            format,
            width: width.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0),
            to: Box::new(anstream::stdout()),
        }
    }

    /// Prints `what` in the requested face (table, JSON or quiet) and flushes the output.
    pub(crate) fn show(&mut self, what: &dyn Render) -> Result<(), Fault> {
        // Only a table is for a terminal: names and JSON stay whole.
        let width = self.width.filter(|_| self.format == OutputFormat::Table);
        let mut page = Page::new(width, perilog_host::clock::wall_ms());
        match self.format {
            OutputFormat::Table => what.table(&mut page),
            OutputFormat::Json => what.json().into_iter().for_each(|json| page.line(crate::text::json(&json))),
            OutputFormat::Quiet => what.quiet(&mut page),
        }
        if page.text.is_empty() {
            return Ok(());
        }
        self.text(&page.text)
    }

    /// Prints `text` unchanged.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Fault> {
        self.to.write_all(text.as_bytes())?;
        Ok(self.to.flush()?)
    }
}

/// Prints a note on standard error, whatever face standard output has. Ignores a closed standard error.
pub(crate) fn aside(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "perilog: {text}");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns what `what` prints at the time `now_ms` as table, JSON and quiet output, in this order and without
    /// colours.
    pub(crate) fn render(what: &dyn Render, now_ms: u64) -> [String; 3] {
        let mut table = Page::new(None, now_ms);
        what.table(&mut table);
        let mut quiet = Page::new(None, now_ms);
        what.quiet(&mut quiet);
        let json = what.json().map(|json| crate::text::json(&json)).unwrap_or_default();
        [anstream::adapter::strip_str(&table.text).to_string(), json, quiet.text]
    }

    /// Returns an [`Out`] in `format` and the recorder of the output.
    pub(crate) fn recorder(format: OutputFormat) -> (Out, Recorder) {
        let recorder = Recorder::default();
        (Out { format, to: Box::new(recorder.clone()), width: None }, recorder)
    }

    #[derive(Clone, Default)]
    pub(crate) struct Recorder(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl Recorder {
        /// Returns the output since the last call, without colours.
        pub(crate) fn take(&self) -> String {
            let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
            anstream::adapter::strip_str(&text).to_string()
        }
    }

    impl Write for Recorder {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    pub(crate) fn people(what: &dyn Render, now_ms: u64) -> String {
        let [table, ..] = render(what, now_ms);
        table
    }
}
