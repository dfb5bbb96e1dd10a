//! First and last part of a script's output, stdout and stderr in order of arrival, in whole lines.
//!
//! * `out.<seq>.head`: up to 32 KiB from the beginning, present while the script runs.
//! * `out.<seq>.tail`: the output after the head, if any. The runner writes this file when the script ends. If more
//!   than 32 KiB follow the head, the file has a line that counts the omitted bytes, then at most the last 32 KiB.
//!
//! Without such a line, head and tail together are the output. No byte is in both files. A script without output has
//! neither file.

use std::fs::File;
use std::io::{self, Write};

use crate::directory::Directory;

/// Maximum number of bytes in the head, the first part of the output that the runner keeps.
pub(super) const HEAD: usize = 32 * 1024;
/// Maximum number of bytes of output in the tail, the last part that the runner keeps.
pub(super) const TAIL: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct Keep {
    seq: u32,
    /// Number of bytes in the head, including bytes not yet in the file.
    head: usize,
    fresh: Vec<u8>,
    file: Option<File>,
    broken: bool,
    /// The last bytes of the output, at most twice [`TAIL`]. The runner cuts a full buffer back to [`TAIL`] bytes, so
    /// that it need not move the bytes at every line.
    tail: Vec<u8>,
    left_out: usize,
}

impl Keep {
    pub(super) fn new(seq: u32) -> Self {
        Self { seq, head: 0, fresh: Vec::new(), file: None, broken: false, tail: Vec::new(), left_out: 0 }
    }

    /// Keeps a line (with its line break) in the head or in the tail.
    pub(super) fn line(&mut self, line: &[u8]) {
        // Once a line went to the tail all later lines do, or lines would change places.
        if self.tail.is_empty() && self.head + line.len() <= HEAD {
            self.head += line.len();
            self.fresh.extend_from_slice(line);
            return;
        }
        if self.tail.len() + line.len() > 2 * TAIL {
            self.cut();
        }
        self.tail.extend_from_slice(line);
    }

    /// Cuts the tail back to its last whole lines that fit [`TAIL`], and counts the bytes left out.
    fn cut(&mut self) {
        let over = self.tail.len().saturating_sub(TAIL);
        if over > 0 {
            // The tail begins at the beginning of a line.
            let line = self.tail[over - 1..].iter().position(|b| *b == b'\n').map_or(over, |at| over + at);
            self.left_out += line;
            self.tail.drain(..line);
        }
    }

    /// Appends new lines of the head to the head's file. Writes no more after a failed write: a gap in the middle would
    /// mislead the reader.
    pub(super) fn save_head(&mut self, directory: &Directory) -> io::Result<()> {
        let fresh = std::mem::take(&mut self.fresh);
        if fresh.is_empty() || self.broken {
            return Ok(());
        }
        self.broken = true;
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(directory.append(&format!("out.{}.head", self.seq))?),
        };
        file.write_all(&fresh)?;
        self.broken = false;
        Ok(())
    }

    /// Writes the tail's file, unless the tail is empty. If bytes are left out between head and tail, the first line
    /// says how many.
    pub(super) fn save_tail(mut self, directory: &Directory) -> io::Result<()> {
        self.cut();
        let mut text = Vec::new();
        if self.left_out > 0 {
            text = format!("[perilog: {} bytes left out]\n", self.left_out).into_bytes();
        }
        text.append(&mut self.tail);
        if text.is_empty() { Ok(()) } else { directory.write(&format!("out.{}.tail", self.seq), &text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_whole_lines_and_add_up() {
        for lines in [0usize, 1, 4000, 5000, 8000, 9000, 500_000] {
            let mut keep = Keep::new(0);
            let mut all = Vec::new();
            for n in 0..lines {
                let line = format!("{n:07}\n");
                keep.line(line.as_bytes());
                all.extend_from_slice(line.as_bytes());
                assert!(keep.tail.len() <= 2 * TAIL && keep.fresh.len() <= HEAD);
            }
            keep.cut();
            let (head, tail) = (&keep.fresh, &keep.tail);
            assert_eq!(head.len() + keep.left_out + tail.len(), all.len(), "{lines}");
            assert!(head.len() <= HEAD && tail.len() <= TAIL);
            assert!(all.starts_with(head) && all.ends_with(tail));
            assert_eq!((head.len() % 8, tail.len() % 8), (0, 0), "{lines}");
            assert!(keep.left_out == 0 || tail.len() > TAIL - 8, "{lines}");
        }
    }

    #[test]
    fn a_short_line_after_a_long_one_keeps_its_place() {
        let mut keep = Keep::new(0);
        keep.line(&[b'x'; HEAD - 1]);
        keep.line(b"ab\n");
        keep.line(b"");
        keep.line(b"c");
        assert_eq!((keep.head, keep.tail.as_slice()), (HEAD - 1, &b"ab\nc"[..]));
    }
}
