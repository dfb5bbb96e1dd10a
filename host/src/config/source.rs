//! Reads configuration files, and checks who can write them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::report::Problem;

/// Maximum size of a configuration file in bytes: perilog's files are smaller.
const MAX_FILE: u64 = 1024 * 1024;
/// Maximum number of drop-ins.
const MAX_DROPINS: usize = 256;

/// A configuration file; `base` is the offset of the file's text in the concatenation of all files.
#[derive(Debug)]
pub(super) struct Source {
    pub path: PathBuf,
    pub text: String,
    pub base: usize,
    /// Byte offsets of the line breaks in the text.
    breaks: Vec<usize>,
}

impl Source {
    /// Returns the number of the line with this byte offset, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.breaks.partition_point(|offset| *offset < at) + 1
    }
}

/// All configuration files in the order of reading; a later file overrides an earlier one.
#[derive(Debug, Default)]
pub(super) struct Sources(Vec<Source>);

impl Sources {
    pub(super) fn add(&mut self, path: &Path, text: String) {
        // Adds one to the length, so that the end of a text differs from the beginning of the next text.
        let base = self.0.last().map_or(0, |source| source.base + source.text.len() + 1);
        let breaks = text.match_indices('\n').map(|(at, _)| at).collect();
        self.0.push(Source { path: path.to_owned(), text, base, breaks });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.0.iter().map(|source| source.path.clone()).collect()
    }

    /// Returns the file that contains `span`, and the span relative to that file; `None` if there are no files.
    pub(super) fn home(&self, span: &Range<usize>) -> Option<(&Source, Range<usize>)> {
        let source = self.0.iter().rev().find(|source| source.base <= span.start)?;
        Some((source, span.start - source.base..span.end.saturating_sub(source.base)))
    }
}

/// Returns the text of a file that only root or this process's user can write; `None` if the file does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, Problem> {
    let whole = |message: String| Problem::of_file(path, message);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(whole(format!("cannot be read: {error}"))),
    };
    // Checks the open file, not its name: another file may have the name by now.
    let meta = file.metadata().map_err(|error| whole(format!("cannot be read: {error}")))?;
    if !meta.is_file() {
        return Err(whole("is not a regular file".into()));
    }
    if meta.len() > MAX_FILE {
        return Err(whole(format!("is larger than {MAX_FILE} bytes; it is not a configuration file")));
    }
    trust(&meta).map_err(whole)?;
    trust_directory(path.parent())?;
    let mut bytes = Vec::new();
    file.by_ref().take(MAX_FILE).read_to_end(&mut bytes).map_err(|error| whole(format!("cannot be read: {error}")))?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|error| whole(format!("is not UTF-8 at byte {}", error.utf8_error().valid_up_to())))
}

/// Returns the `*.toml` files of a directory in byte order; no files if the directory does not exist. Skips hidden
/// files, which editors leave behind.
pub(super) fn dropins_of(directory: &Path) -> Result<Vec<PathBuf>, Problem> {
    let whole = |message: String| Problem::of_file(directory, message);
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(whole(format!("cannot be read: {error}"))),
    };
    trust_directory(Some(directory))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| whole(format!("cannot be read: {error}")))?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
        if paths.len() > MAX_DROPINS {
            return Err(whole(format!("has more than {MAX_DROPINS} files")));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Refuses a directory that other users can write: such a user could replace a trusted file.
fn trust_directory(directory: Option<&Path>) -> Result<(), Problem> {
    let directory = match directory {
        Some(path) if path.as_os_str().is_empty() => Path::new("."),
        Some(path) => path,
        None => return Ok(()),
    };
    let whole = |message: String| Problem::of_file(directory, message);
    let meta = std::fs::metadata(directory).map_err(|error| whole(format!("cannot be read: {error}")))?;
    // In a sticky directory other users can add files, but not replace files of root.
    const STICKY: u32 = 0o1000;
    if meta.mode() & STICKY != 0 {
        return Ok(());
    }
    trust(&meta).map_err(whole)
}

fn trust(meta: &Metadata) -> Result<(), String> {
    let (mode, uid) = (meta.mode() & 0o7777, meta.uid());
    if mode & 0o022 != 0 {
        return Err(format!("can be written by its group or by others (mode {mode:04o}); run chmod go-w on it"));
    }
    if uid != 0 && uid != geteuid().as_raw() {
        return Err(format!("belongs to uid {uid}, who can change it; run chown root on it"));
    }
    Ok(())
}
