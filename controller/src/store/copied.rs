//! The time at which a client last put a copy of the store on a disk: the modification time of an empty file beside the
//! store.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use perilog_host::clock;

use super::place;

const NAME: &str = "copied";

/// Records that a client has just put a copy of the store on a disk.
///
/// # Errors
/// I/O errors of the file.
pub(crate) fn note_copy(store: &Path) -> io::Result<()> {
    let path = place::beside(store, NAME);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_modified(UNIX_EPOCH + Duration::from_millis(clock::wall_ms()))
}

/// Returns the time of the last copy, in milliseconds since 1970; `None`: no copy is recorded.
pub(crate) fn last_copy(store: &Path) -> Option<u64> {
    let modified = place::beside(store, NAME).metadata().ok()?.modified().ok()?;
    u64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_time_of_a_copy_is_kept_and_moves_with_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("controller.db");
        assert_eq!(last_copy(&store), None);
        note_copy(&store).unwrap();
        let file = File::options().write(true).open(place::beside(&store, NAME)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(5)).unwrap();
        assert_eq!(last_copy(&store), Some(5_000));
        note_copy(&store).unwrap();
        assert!(last_copy(&store).is_some_and(|at| at > 5_000), "{:?}", last_copy(&store));
    }
}
