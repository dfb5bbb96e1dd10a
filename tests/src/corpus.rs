//! Corpora of the fuzz targets: a file for each target with an input on each line, escaped as in a literal of Rust.

/// Returns the inputs of a corpus; `None`: an escape is malformed.
pub fn read(text: &str) -> Option<Vec<Vec<u8>>> {
    text.lines().map(unescape).collect()
}

/// Returns the corpus of these inputs, sorted, each once.
pub fn write(inputs: &[Vec<u8>]) -> String {
    let mut lines: Vec<String> = inputs.iter().map(|input| format!("{}\n", input.escape_ascii())).collect();
    lines.sort();
    lines.dedup();
    lines.concat()
}

fn unescape(line: &str) -> Option<Vec<u8>> {
    let (mut input, mut bytes) = (Vec::with_capacity(line.len()), line.bytes());
    while let Some(byte) = bytes.next() {
        input.push(match byte {
            b'\\' => match bytes.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digits = [bytes.next()?, bytes.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                plain => plain,
            },
            plain => plain,
        });
    }
    Some(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        let inputs = [Vec::new(), all, b"a\n\\x41".to_vec()];
        assert_eq!(read(&write(&inputs)).unwrap().len(), 3);
        assert!(read(&write(&inputs)).unwrap().iter().all(|input| inputs.contains(input)));
        assert_eq!(read("\\x4"), None);
    }
}
