//! Output of a script. Each line goes to the runner's stdout and stderr, which lead to the journal ([`sinks`]). The
//! first and last part go to the task's directory ([`keep`]). Output decides nothing: a user may have written it.

mod keep;
mod lines;
mod sinks;

use std::io;

pub(crate) use sinks::{Level, Sinks, Stream, one_line};

use crate::directory::Directory;
use keep::Keep;
use lines::Lines;

/// The output of one try of a script.
#[derive(Debug)]
pub(crate) struct Output {
    out: Lines,
    err: Lines,
    keep: Keep,
}

impl Output {
    /// Creates the output of a try; `seq` is the number of the try, which names the files.
    pub(crate) fn new(seq: u32) -> Self {
        Self { out: Lines::default(), err: Lines::default(), keep: Keep::new(seq) }
    }

    /// Takes bytes that the runner has read from the script. Passes complete lines on to `sinks`, and keeps the
    /// beginning and the end of the output for files in the task's directory.
    pub(crate) fn take(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        sinks: &mut Sinks,
        directory: &Directory,
    ) -> io::Result<()> {
        let keep = &mut self.keep;
        let lines = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        lines.take(bytes, |line| {
            sinks.line(stream, line);
            keep.line(line);
        });
        self.keep.save_head(directory)
    }

    /// Ends the output: completes unfinished lines with a line break, and writes the last part to the task's directory.
    pub(crate) fn finish(mut self, sinks: &mut Sinks, directory: &Directory) -> io::Result<()> {
        let keep = &mut self.keep;
        for (stream, lines) in [(Stream::Out, &mut self.out), (Stream::Err, &mut self.err)] {
            lines.finish(|line| {
                sinks.line(stream, line);
                keep.line(line);
            });
        }
        self.keep.save_head(directory)?;
        self.keep.save_tail(directory)
    }
}
