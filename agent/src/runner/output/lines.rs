//! Splits bytes into lines of bounded length: a gigabyte without a line break gets line breaks.

/// Maximum size in bytes of a line, without its line break. The bound is below LineMax= (48 KiB), at which journald
/// would split a line.
pub(super) const MAX_LINE: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not come; shorter than [`MAX_LINE`].
    partial: Vec<u8>,
}

impl Lines {
    /// Passes every complete line to `each`, with its line break.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            let room = MAX_LINE - self.partial.len();
            let window = &bytes[..bytes.len().min(room + 1)];
            let Some(end) = window.iter().position(|b| *b == b'\n') else {
                if window.len() <= room {
                    self.partial.extend_from_slice(window);
                    return;
                }
                self.partial.extend_from_slice(&window[..room]);
                bytes = &bytes[room..];
                self.finish(&mut each);
                continue;
            };
            if self.partial.is_empty() {
                each(&bytes[..=end]);
            } else {
                self.partial.extend_from_slice(&bytes[..=end]);
                each(&self.partial);
                self.partial.clear();
            }
            bytes = &bytes[end + 1..];
        }
    }

    /// Passes an unfinished last line to `each`, with a line break.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            self.partial.push(b'\n');
            each(&self.partial);
            self.partial.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes `chunks` and then the end of the output to [`Lines`]. Returns the length of each resulting line in bytes,
    /// its line break included.
    fn lengths(chunks: &[&[u8]]) -> Vec<usize> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let mut each = |line: &[u8]| {
            assert!(line.ends_with(b"\n") && !line[..line.len() - 1].contains(&b'\n'));
            seen.push(line.len());
        };
        for chunk in chunks {
            lines.take(chunk, &mut each);
        }
        lines.finish(&mut each);
        seen
    }

    #[test]
    fn lines_whatever_the_chunks() {
        let full = vec![b'x'; MAX_LINE];
        let full_and_break = [&full[..], b"\n"].concat();
        let long = vec![b'x'; 2 * MAX_LINE + 5];
        let table: &[(&[&[u8]], &[usize])] = &[
            (&[], &[]),
            (&[b"a\nbc\n\n"], &[2, 3, 1]),
            (&[b"a", b"b", b"\nc"], &[3, 2]),
            (&[&full, b"\n"], &[MAX_LINE + 1]),
            (&[&full_and_break, b"y\n"], &[MAX_LINE + 1, 2]),
            (&[b"y", &full], &[MAX_LINE + 1, 2]),
            (&[&long], &[MAX_LINE + 1, MAX_LINE + 1, 6]),
            (&[&long, b"\n"], &[MAX_LINE + 1, MAX_LINE + 1, 6]),
        ];
        for (chunks, expect) in table {
            assert_eq!(lengths(chunks), *expect);
        }
    }
}
