//! Notes of hooks: removes the note of an epilog that has ended. The hook of an epilog notes its call on disk, and the
//! next boot runs again what is noted (`perilog hook --pending`). The hook may be killed before the epilog ends, so the
//! agent, which knows the end, removes the note. The note's disk may not answer, so a thread of its own does that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use perilog_core::defect;

/// Name of the directory in /run/perilog with the twin of each note: a note without its twin is of an earlier boot.
const TWINS: &str = "pending";

/// Maximum number of notes that wait. As many tasks can end while their disk does not answer.
const WAITING: usize = 1_024;

/// The queue of notes to remove.
#[derive(Debug)]
pub(super) struct Notes(SyncSender<String>);

impl Notes {
    /// Starts the thread that removes notes. `run_dir`: the agent's directory in /run.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(super) fn start(run_dir: &Path) -> io::Result<Self> {
        let (to, from) = sync_channel(WAITING);
        let twins = run_dir.join(TWINS);
        thread::Builder::new().name("notes".to_owned()).spawn(move || remove_all(&from, &twins))?;
        Ok(Self(to))
    }

    /// Removes a note and its twin, soon.
    pub(super) fn remove(&self, note: String) {
        if defect!(NoteStays) {
            return;
        }
        // The thread ends only with the agent.
        if self.0.try_send(note.clone()).is_err() {
            tracing::warn!(
                "{note} was not removed, because its disk does not respond: this epilog runs again after the next boot"
            );
        }
    }
}

fn remove_all(notes: &Receiver<String>, twins: &Path) {
    let mut has_failed = false;
    for note in notes {
        match remove(Path::new(&note), twins) {
            Ok(()) => has_failed = false,
            // A live hook removes the note itself, so this may do no harm: the log has it once.
            Err((path, error)) if !std::mem::replace(&mut has_failed, true) => tracing::warn!(
                "{} cannot be removed ({error}): if the hook of an epilog is killed, the epilog runs again after the \
                 next boot, although it has ended. Let the agent write there (ReadWritePaths= of \
                 perilog-agent.service)",
                path.display()
            ),
            Err(_) => {}
        }
    }
}

/// Removes the note, and then its twin: the twin alone means nothing.
fn remove(note: &Path, twins: &Path) -> Result<(), (PathBuf, io::Error)> {
    let twin = note.file_name().map(|name| twins.join(name));
    for path in [Some(note.to_owned()), twin].into_iter().flatten() {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((path, error)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_goes_with_its_twin_and_what_stays_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (note, twins) = (dir.path().join("5-0.json"), dir.path().join("pending"));
        fs::create_dir(&twins).unwrap();
        fs::write(&note, "{}").unwrap();
        fs::write(twins.join("5-0.json"), "").unwrap();
        fs::write(twins.join("6-0.json"), "").unwrap();
        remove(&note, &twins).unwrap();
        assert!(!note.exists() && !twins.join("5-0.json").exists() && twins.join("6-0.json").exists());
        // The hook has removed it before.
        remove(&note, &twins).unwrap();
        // The twin stays as long as the note does.
        fs::create_dir(&note).unwrap();
        fs::write(twins.join("5-0.json"), "").unwrap();
        assert_eq!(remove(&note, &twins).unwrap_err().0, note);
        assert!(twins.join("5-0.json").exists());
    }
}
