//! Copies of the store in one directory, of which the newest are kept: `perilog controller backup --into`.

use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::fault::Fault;

const PREFIX: &str = "controller-";
const SUFFIX: &str = ".db";

/// Returns the path for a copy made at `now_ms`, such as `DIR/controller-20261125T031500Z.db`: names sort by time.
pub(super) fn path(dir: &Path, now_ms: u64) -> PathBuf {
    let now = Timestamp::from_millisecond(i64::try_from(now_ms).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
    dir.join(format!("{PREFIX}{}{SUFFIX}", now.strftime("%Y%m%dT%H%M%SZ")))
}

/// Removes the oldest copies in `dir`, so that at most `keep` are left, the copy `made` among them. Returns the removed
/// paths. Other files stay.
pub(super) fn prune(dir: &Path, made: &Path, keep: NonZeroUsize) -> Result<Vec<PathBuf>, Fault> {
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |source| Fault::File { what, path, source }
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed("cannot read", dir))? {
        names.push(entry.map_err(failed("cannot read", dir))?.file_name());
    }
    let gone: Vec<PathBuf> =
        surplus(names, made.file_name().unwrap_or_default(), keep).into_iter().map(|name| dir.join(name)).collect();
    for path in &gone {
        fs::remove_file(path).map_err(failed("cannot remove", path))?;
    }
    Ok(gone)
}

/// Returns the names of the copies to remove, so that the newest `keep` copies stay. The copy `made` was made just now
/// and counts as the newest, because the clock may have been set back.
fn surplus(names: Vec<OsString>, made: &std::ffi::OsStr, keep: NonZeroUsize) -> Vec<OsString> {
    let mut copies: Vec<OsString> = names.into_iter().filter(|name| is_copy(name) && name != made).collect();
    copies.sort_unstable();
    let others = keep.get() - 1;
    copies.truncate(copies.len().saturating_sub(others));
    copies
}

/// Returns `true` if the file's name has the form that [`path`] gives.
fn is_copy(name: &OsString) -> bool {
    let time = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
    let form = "dddddddd.dddddd.".bytes();
    time.is_some_and(|time| {
        let fits = |(seen, form): (u8, u8)| if form == b'd' { seen.is_ascii_digit() } else { b"TZ".contains(&seen) };
        time.len() == form.len() && time.bytes().zip(form).all(fits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(day: u32) -> String {
        format!("controller-202611{day:02}T031500Z.db")
    }

    #[test]
    fn the_newest_copies_are_kept_and_nothing_else_is_touched() {
        let others = [
            "controller.db",
            "controller-20261101.db",
            "controller-20261101T031500Z.db.new",
            "notes",
            "controller-2026110xT031500Z.db",
        ];
        let all = |days: &[u32]| -> Vec<OsString> {
            days.iter().map(|day| name(*day)).chain(others.map(str::to_owned)).map(OsString::from).collect()
        };
        // Days of the copies that are there, of the one just made, how many are kept; days of those that go.
        #[rustfmt::skip]
        let table: &[(&[u32], u32, usize, &[u32])] = &[
            (&[1], 1, 1, &[]),
            (&[1, 2, 3], 3, 7, &[]),
            (&[3, 1, 2], 3, 3, &[]),
            (&[4, 1, 3, 2], 4, 3, &[1]),
            (&[1, 2, 3, 4, 5], 5, 1, &[1, 2, 3, 4]),
            // The clock was set back: the copy just made stays all the same.
            (&[10, 11, 12, 2], 2, 3, &[10]),
        ];
        for (there, made, keep, gone) in table {
            let seen = surplus(all(there), name(*made).as_ref(), NonZeroUsize::new(*keep).unwrap());
            let gone: Vec<OsString> = gone.iter().map(|day| name(*day).into()).collect();
            assert_eq!(seen, gone, "{there:?}, {made} made, {keep} kept");
        }
    }

    #[test]
    fn a_copy_has_a_name_that_is_recognised_and_sorts_by_time() {
        let of = |ms| path(Path::new("/b"), ms).file_name().unwrap().to_owned();
        assert_eq!(of(1_795_576_500_000), "controller-20261125T031500Z.db");
        assert!(is_copy(&of(0)) && is_copy(&of(1_795_576_500_000)) && of(999_999) < of(1_000_000));
    }

    #[test]
    fn what_is_too_much_is_removed_from_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        for day in 1..=3 {
            fs::write(dir.path().join(name(day)), "").unwrap();
        }
        fs::write(dir.path().join("controller.db"), "").unwrap();
        let keep = NonZeroUsize::new(2).unwrap();
        assert_eq!(prune(dir.path(), &dir.path().join(name(3)), keep).unwrap(), [dir.path().join(name(1))]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
