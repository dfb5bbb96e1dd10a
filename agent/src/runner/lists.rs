//! Ranks and hosts of a task for its scripts: in variables, or in files if the text is too long for a variable. 128 KiB
//! hold some 20,000 scattered ranks.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use perilog_core::task::Intent;

/// Longest text of a variable: execve(2) accepts 32 pages of 4 KiB with name and NUL (MAX_ARG_STRLEN), also on a large
/// stack.
const MAX_TEXT: usize = 128 * 1024 - 64;

#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// Name and value of variables for scripts: `PERILOG_RANKS` or `PERILOG_RANKS_FILE`, and the same for hosts.
    pub(crate) variables: Vec<(&'static str, String)>,
    files: Vec<PathBuf>,
}

impl Lists {
    /// Makes the lists of the task's ranks and hosts, as variables or, if too long, as files. `control` is the path of
    /// the runner's socket; the files are beside the socket, readable by the user of every script.
    ///
    /// # Errors
    /// A sentence for people: a list is too long for a variable, and its file cannot be written. Then no script may
    /// run, because scripts without the lists might conclude that they run alone.
    pub(crate) fn of(intent: &Intent, control: Option<&Path>) -> Result<Self, String> {
        let start = &intent.start;
        let mut lists = Self::default();
        for (variable, file, kind, text) in [
            ("PERILOG_RANKS", "PERILOG_RANKS_FILE", "ranks", start.ranks.to_string()),
            ("PERILOG_HOSTS", "PERILOG_HOSTS_FILE", "hosts", start.hosts.to_string()),
        ] {
            if text.len() <= MAX_TEXT {
                lists.variables.push((variable, text));
                continue;
            }
            let what = |why: &str| {
                format!(
                    "the list of {kind} has {} bytes, too many for an environment variable, and no file can hold it: \
                     {why}",
                    text.len()
                )
            };
            let path = control
                .ok_or_else(|| what("the runner has no control socket in /run/perilog (its journal says why)"))?;
            let path = path.with_extension(kind);
            lists.files.push(path.clone());
            write(&path, &text).map_err(|error| what(&format!("{}: {error}", path.display())))?;
            lists.variables.push((file, path.to_string_lossy().into_owned()));
        }
        Ok(lists)
    }
}

/// Writes a text file that ends in a newline. Replaces the file of a killed runner.
fn write(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

impl Drop for Lists {
    fn drop(&mut self) {
        // The agent removes leftovers when it writes the task's tombstone, as with the socket.
        for path in &self.files {
            let _ = fs::remove_file(path);
        }
    }
}
