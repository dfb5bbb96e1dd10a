//! Cuts a C library back to an older version of itself: a shared object whose newer symbols a linker no longer finds.
//!
//! Debian has no release with the glibc of RHEL 8. In the files that programs are linked against, every symbol of a
//! newer version becomes an undefined one, and where an older version of the symbol exists, programs get that one. What
//! needs a newer symbol then fails to link; what asks whether there is one (Rust's standard library) finds none, and
//! does without.

use anyhow::{Context, Result, ensure};

use super::symbols::{Version, version};

const SHT_DYNSYM: u32 = 11;
const SHT_GNU_VERDEF: u32 = 0x6fff_fffd;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
/// Size of a symbol of a 64-bit object.
const SYMBOL: usize = 24;
/// Bit of a symbol's version: programs get the symbol only by its version, not by its name alone.
const HIDDEN: u16 = 0x8000;
/// Version of a symbol that has none.
const UNVERSIONED: u16 = 1;
const WEAK: u8 = 2 << 4;

/// Part of a file: begin, size, and number of another part that it belongs to.
#[derive(Debug, Clone, Copy)]
struct Section {
    begin: usize,
    size: usize,
    link: usize,
}

/// Removes the symbols that are newer than `newest` from a 64-bit little-endian object; returns how many.
pub(super) fn cut(file: &mut [u8], newest: Version) -> Result<usize> {
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "no 64-bit little-endian ELF object");
    let sections = sections(file)?;
    let find = |kind: u32| sections.iter().find(|(found, _)| *found == kind).map(|(_, section)| *section);
    let (Some(symbols), Some(versions), Some(definitions)) =
        (find(SHT_DYNSYM), find(SHT_GNU_VERSYM), find(SHT_GNU_VERDEF))
    else {
        return Ok(0);
    };
    let strings = sections.get(symbols.link).context("the names of symbols")?.1;
    let names = defined(file, definitions, strings)?;
    let age = |index: u16| names.iter().find(|(found, _)| *found == index & !HIDDEN).and_then(|(_, version)| *version);
    let mut removed = Vec::new();
    for number in 0..symbols.size / SYMBOL {
        let (symbol, mark) = (symbols.begin + number * SYMBOL, versions.begin + number * 2);
        let is_defined = half(file, symbol + 6)? != 0;
        if is_defined && age(half(file, mark)?).is_some_and(|version| version > newest) {
            removed.push((text(file, strings.begin + word(file, symbol)? as usize)?.to_vec(), half(file, mark)?));
            let kind = file[symbol + 4] & 0x0f;
            file[symbol + 4] = WEAK | kind;
            file[symbol + 6..symbol + SYMBOL].fill(0);
            put(file, mark, UNVERSIONED);
        }
    }
    for (name, _) in removed.iter().filter(|(_, mark)| mark & HIDDEN == 0) {
        let mut older: Option<(Version, usize)> = None;
        for number in 0..symbols.size / SYMBOL {
            let (symbol, mark) = (symbols.begin + number * SYMBOL, versions.begin + number * 2);
            let same =
                half(file, symbol + 6)? != 0 && text(file, strings.begin + word(file, symbol)? as usize)? == *name;
            if let Some(version) = age(half(file, mark)?).filter(|_| same) {
                older = older.max(Some((version, mark)));
            }
        }
        if let Some((_, mark)) = older {
            let shown = half(file, mark)? & !HIDDEN;
            put(file, mark, shown);
        }
    }
    Ok(removed.len())
}

/// Returns the sections of an object, each with its kind.
fn sections(file: &[u8]) -> Result<Vec<(u32, Section)>> {
    let (begin, size, count) = (long(file, 0x28)?, usize::from(half(file, 0x3a)?), usize::from(half(file, 0x3c)?));
    (0..count)
        .map(|number| {
            let head = begin + number * size;
            let link = word(file, head + 0x28)? as usize;
            let section = Section { begin: long(file, head + 0x18)?, size: long(file, head + 0x20)?, link };
            Ok((word(file, head + 4)?, section))
        })
        .collect()
}

/// Returns the versions that an object defines, by the number that its symbols have; `None`: no version of glibc.
fn defined(file: &[u8], definitions: Section, strings: Section) -> Result<Vec<(u16, Option<Version>)>> {
    let (mut found, mut at) = (Vec::new(), definitions.begin);
    loop {
        let first = at + word(file, at + 12)? as usize;
        let name = text(file, strings.begin + word(file, first)? as usize)?;
        let name = String::from_utf8_lossy(name);
        found.push((half(file, at + 4)?, name.strip_prefix("GLIBC_").and_then(version)));
        match word(file, at + 16)? as usize {
            0 => return Ok(found),
            next => at += next,
        }
    }
}

fn text(file: &[u8], at: usize) -> Result<&[u8]> {
    let rest = file.get(at..).context("a name within the file")?;
    Ok(rest.split(|byte| *byte == 0).next().unwrap_or_default())
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let found = file.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().context("a number within the file")
}

fn half(file: &[u8], at: usize) -> Result<u16> {
    bytes(file, at).map(u16::from_le_bytes)
}

fn word(file: &[u8], at: usize) -> Result<u32> {
    bytes(file, at).map(u32::from_le_bytes)
}

fn long(file: &[u8], at: usize) -> Result<usize> {
    Ok(usize::try_from(u64::from_le_bytes(bytes(file, at)?))?)
}

fn put(file: &mut [u8], at: usize, value: u16) {
    file[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// An object with `both` in an old and a new version, `added` in the new one and `kept` in the old one.
    const SOURCE: &str = "int old(void) { return 1; } int new(void) { return 2; } int added(void) { return 3; }
int kept(void) { return 4; }
__asm__(\".symver old,both@GLIBC_2.17\"); __asm__(\".symver new,both@@GLIBC_2.29\");";
    const VERSIONS: &str =
        "GLIBC_2.17 { global: kept; both; local: *; };\nGLIBC_2.29 { global: added; both; } GLIBC_2.17;\n";

    #[test]
    fn newer_symbols_are_gone_and_older_ones_take_their_place() {
        let directory = std::env::temp_dir().join(format!("perilog-cut-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (source, map, object) = (directory.join("s.c"), directory.join("s.map"), directory.join("libs.so"));
        std::fs::write(&source, SOURCE).unwrap();
        std::fs::write(&map, VERSIONS).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-nostdlib", "-o"]).arg(&object).arg(&source);
        assert!(cc.arg(format!("-Wl,--version-script={}", map.display())).status().unwrap().success());
        let mut file = std::fs::read(&object).unwrap();
        assert_eq!(cut(&mut file, (2, 28)).unwrap(), 3, "`both`, `added` and the version itself");
        std::fs::write(&object, file).unwrap();
        let listed = Command::new("objdump").arg("-T").arg(&object).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let shown = |name: &str| listed.lines().any(|line| line.contains(" GLIBC_2.17  ") && line.ends_with(name));
        assert!(shown(" both") && shown(" kept") && !shown(" added"), "{listed}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
