//! Mount points.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns `true` if another file system than that of the parent directory is mounted on `directory`; `false` also if
/// there is no such directory. systemd may mount a directory onto itself for a unit (`StateDirectory=`), so the devices
/// decide.
pub fn is_mounted(directory: &Path) -> io::Result<bool> {
    let device = |path: &Path| match path.metadata() {
        Ok(found) => Ok(Some(found.dev())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let Some(own) = device(directory)? else { return Ok(false) };
    Ok(directory.parent().map(device).transpose()?.flatten() != Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// /proc is a file system of its own on every Linux host.
    #[test]
    fn a_mount_is_on_another_device_than_its_parent() {
        for (path, expected) in [("/proc", true), ("/proc/1", false), ("/none", false), ("/none/such", false)] {
            assert_eq!(is_mounted(Path::new(path)).unwrap(), expected, "{path}");
        }
        assert!(is_mounted(Path::new("/proc/version/x")).is_err());
    }
}
