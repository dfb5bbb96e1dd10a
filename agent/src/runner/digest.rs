//! SHA-256 of a script, as in sha256sum(1). The runner reads the open file just before it executes the script by its
//! path. (Only root can change the file in between, see `perilog_host::trust`.)

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

/// Size in bytes of a read; nearly every script is shorter.
const CHUNK: usize = 16 * 1024;

/// Returns the digest of the program at `path`, as 64 hexadecimal digits.
///
/// # Errors
/// The file cannot be read, or is neither a script with a `#!` line nor an ELF program. Shells run such a file as a
/// script of their own, execve(2) does not; the meaning of a script must not depend on the caller.
pub(crate) fn of(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut first = true;
    loop {
        chunk.clear();
        let n = match rustix::io::read(&file, spare_capacity(&mut chunk)) {
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if std::mem::take(&mut first) && !is_program(&chunk) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no #! line, and not a program"));
        }
        if n == 0 {
            return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hash.update(&chunk);
    }
}

fn is_program(start: &[u8]) -> bool {
    start.starts_with(b"#!") || start.starts_with(b"\x7fELF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha256sum() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert_eq!(of(&path).unwrap(), "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf");
        for bad in ["", "exit 0\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(of(&path).unwrap_err().to_string().contains("no #! line"));
        }
        assert_eq!(of(&directory.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
