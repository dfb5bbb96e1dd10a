//! Files and directories that outlive a power cut.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Makes a directory and its missing parents, which only their owner can enter. On return their names are on the disk:
/// without an fsync of the parent, a power cut loses a new directory with all that was synced in it.
///
/// # Errors
/// I/O errors. A parent that this process may not read is left without a sync: another user made the directory there.
pub fn make_directory(dir: &Path) -> io::Result<()> {
    let has_parent = |dir: &&Path| dir.parent().is_some();
    // An existing directory counts, too: the call that made it was perhaps cut before its sync.
    let missing = dir.ancestors().filter(has_parent).take_while(|dir| !dir.is_dir()).count();
    let new: Vec<PathBuf> = dir.ancestors().filter(has_parent).take(missing.max(1)).map(Path::to_owned).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    for parent in new.iter().filter_map(|dir| dir.parent()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match File::open(parent) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            opened => opened?.sync_all()?,
        }
    }
    Ok(())
}

/// Writes a file of this mode, or replaces one: after a power cut it is whole, or as it was before. Its name may be the
/// old one until [`sync_directory`]. The temporary file beside it ends with `.new`.
///
/// # Errors
/// I/O errors; then the file is as it was before. The temporary file is gone, unless it cannot be removed.
pub fn replace(path: &Path, mode: u32, contents: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    // A file from an earlier try may have another mode.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(temporary)))
}

/// Brings the names of the files in a directory to the disk.
///
/// # Errors
/// I/O errors.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_is_made_with_its_parents_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        for _ in 0..2 {
            make_directory(&path).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        make_directory(Path::new("/")).unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        assert!(make_directory(&path.join("file/c")).is_err());
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_or_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(dir.path().join("a.new"), "of an earlier try").unwrap();
        for (mode, text) in [(0o600, "first"), (0o644, "second")] {
            replace(&path, mode, text.as_bytes()).unwrap();
            sync_directory(dir.path()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
        // A file does not replace a directory.
        let taken = dir.path().join("b");
        fs::create_dir(&taken).unwrap();
        assert!(replace(&taken, 0o600, b"x").is_err());
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a", "b"], "no temporary file stays");
    }
}
