//! Check of the C library that programs ask for: the versions of the symbols that they need of glibc.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{BUILT, succeed};

/// Newest version of glibc whose symbols a program may need: that of RHEL 8.
pub(super) const NEWEST: Version = (2, 28);

pub(super) type Version = (u32, u32);

/// Checks the programs in `binaries`.
///
/// # Errors
/// Each symbol of a newer glibc than [`NEWEST`], with its program.
pub(super) fn check(binaries: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for program in BUILT {
        let text = succeed(Command::new("objdump").arg("--dynamic-syms").arg(binaries.join(program)))?;
        let newer = needed(&text).filter(|(version, _)| *version > NEWEST);
        wrong
            .extend(newer.map(|((major, minor), symbol)| format!("{program} needs {symbol} of glibc {major}.{minor}")));
    }
    let (major, minor) = NEWEST;
    ensure!(wrong.is_empty(), "programs are to run with glibc {major}.{minor}:\n{}", wrong.join("\n"));
    Ok(())
}

/// Returns the symbols that a program needs of glibc, each with its version, from what objdump(1) says of it.
fn needed(text: &str) -> impl Iterator<Item = (Version, &str)> {
    text.lines().filter(|line| line.contains("*UND*")).filter_map(|line| {
        let (_, rest) = line.split_once("GLIBC_")?;
        let (text, symbol) = rest.split_once(|end: char| end == ')' || end.is_whitespace())?;
        Some((version(text)?, symbol.trim()))
    })
}

/// Reads a version of glibc; `None`: what only its own libraries use (`PRIVATE`). `2.2.5` is 2.2, for it is older than
/// all that counts.
pub(super) fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_symbols_are_read() {
        let text = "
/p/perilog:     file format elf64-x86-64

DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) getenv
0000000000000000  w   D  *UND*\t0000000000000000  Base        __gmon_start__
0000000000000000      DF *UND*\t0000000000000000 (GCC_3.0) _Unwind_Resume
0000000000000000  w   DF *UND*\t0000000000000000  GLIBC_2.34 pthread_create
0000000000001000 g    DF .text\t0000000000000010  Base        flux_plugin_init
";
        let found: Vec<_> = needed(text).collect();
        assert_eq!(found, [((2, 2), "getenv"), ((2, 34), "pthread_create")]);
        assert!((2, 34) > NEWEST && (2, 2) < NEWEST);
    }
}
