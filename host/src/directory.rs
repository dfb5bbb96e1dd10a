//! Directories that outlive a power cut.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Makes a directory and its missing parents, which only their owner can enter. On return their names are on the disk:
/// without an fsync of the parent, a power cut loses a new directory with all that was synced in it.
///
/// # Errors
/// I/O errors. A parent that this process may not read is left without a sync: another user made the directory there.
pub fn make(dir: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_is_made_with_its_parents_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        for _ in 0..2 {
            make(&path).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        make(Path::new("/")).unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        assert!(make(&path.join("file/c")).is_err());
    }
}
