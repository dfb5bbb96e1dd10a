//! A model of a disk under a page cache: what a power cut may leave of files.
//!
//! ```text
//!   write ──> page cache: the page is dirty ──fsync, or the kernel at any time──> disk
//!                                   └──── an fsync that fails: the page is clean, and may not be on the disk
//! ```
//! A power cut leaves of each dirty page each sector old or new. A page that a failed fsync made clean never reaches
//! the disk, unless a program writes the page again. Names are on the disk once their directory was synced. A cut may
//! leave some of the later creations, renames and removals, in their order.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use crate::record::Entry;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// The kernel writes a dirty page of its own accord after one of this many calls.
const WRITES_BACK: u32 = 16;

/// Contents of files by name.
pub type Image = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Clone, Default)]
struct File {
    cached: Vec<u8>,
    disk: Vec<u8>,
    /// Numbers of the pages whose content in the cache may differ from the disk, and which the kernel will write.
    dirty: BTreeSet<usize>,
}

#[derive(Debug, Clone)]
enum Change {
    Name(String, usize),
    Unname(String),
    Rename(String, String),
}

#[derive(Debug)]
pub struct Disk {
    files: Vec<File>,
    cached: BTreeMap<String, usize>,
    disk: BTreeMap<String, usize>,
    /// Changes of names since the last sync of the directory.
    changes: Vec<Change>,
    random: Rng,
}

impl Disk {
    pub fn new(seed: u64) -> Self {
        let random = Rng::with_seed(seed);
        Self { files: Vec::new(), cached: BTreeMap::new(), disk: BTreeMap::new(), changes: Vec::new(), random }
    }

    /// Carries out an entry of a record.
    pub fn apply(&mut self, entry: &Entry<'_>) {
        match *entry {
            Entry::Open { name, truncate } => self.open(name, truncate),
            Entry::Write { name, at, bytes } => self.write(name, at, bytes),
            Entry::Size { name, len } => self.resize(name, len),
            Entry::Sync { name: ".", failed } => self.sync_names(failed),
            Entry::Sync { name, failed } => self.sync(name, failed),
            Entry::Rename { from, to } => self.change(Change::Rename(from.to_owned(), to.to_owned())),
            Entry::Unlink { name } => self.change(Change::Unname(name.to_owned())),
            Entry::Acknowledged { .. } => {}
        }
    }

    /// Returns what a power cut may leave now.
    pub fn cut(&mut self) -> Image {
        let mut names = self.disk.clone();
        let kept = self.random.usize(..=self.changes.len());
        self.changes.iter().take(kept).for_each(|change| change.apply(&mut names));
        let (files, random) = (&self.files, &mut self.random);
        names.into_iter().map(|(name, file)| (name, files[file].cut(random))).collect()
    }

    fn file(&mut self, name: &str) -> Option<&mut File> {
        let number = *self.cached.get(name)?;
        self.files.get_mut(number)
    }

    fn open(&mut self, name: &str, truncate: bool) {
        if !self.cached.contains_key(name) {
            self.files.push(File::default());
            self.change(Change::Name(name.to_owned(), self.files.len() - 1));
        }
        if truncate {
            self.resize(name, 0);
        }
    }

    fn write(&mut self, name: &str, at: usize, bytes: &[u8]) {
        let writes_back = self.random.u32(..WRITES_BACK) == 0;
        let pick = self.random.usize(..);
        let Some(file) = self.file(name) else { return };
        let end = at + bytes.len();
        if file.cached.len() < end {
            file.cached.resize(end, 0);
        }
        file.cached[at..end].copy_from_slice(bytes);
        file.dirty.extend(at / PAGE..end.div_ceil(PAGE));
        if writes_back && let Some(page) = file.dirty.iter().nth(pick % file.dirty.len().max(1)).copied() {
            file.dirty.remove(&page);
            file.put(page * PAGE, PAGE);
        }
    }

    fn resize(&mut self, name: &str, len: usize) {
        let Some(file) = self.file(name) else { return };
        let pages = len.min(file.cached.len()) / PAGE..len.max(file.cached.len()).div_ceil(PAGE);
        file.cached.resize(len, 0);
        file.dirty.extend(pages);
    }

    fn sync(&mut self, name: &str, failed: bool) {
        let mut random = self.random.fork();
        let Some(file) = self.file(name) else { return };
        if failed {
            file.disk = file.cut(&mut random);
        } else {
            for page in std::mem::take(&mut file.dirty) {
                file.put(page * PAGE, PAGE);
            }
            file.disk.resize(file.cached.len(), 0);
        }
        file.dirty.clear();
    }

    fn sync_names(&mut self, failed: bool) {
        if !failed {
            self.changes.clear();
            self.disk.clone_from(&self.cached);
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.changes.push(change);
    }
}

impl File {
    /// Writes a part of the cache to the disk.
    fn put(&mut self, at: usize, len: usize) {
        let end = self.cached.len().min(at + len);
        if at >= end {
            return;
        }
        if self.disk.len() < end {
            self.disk.resize(end, 0);
        }
        self.disk[at..end].copy_from_slice(&self.cached[at..end]);
    }

    /// Returns what the disk may hold of this file after a cut or a failed fsync.
    fn cut(&self, random: &mut Rng) -> Vec<u8> {
        let mut torn = self.clone();
        for page in &self.dirty {
            // Whole pages are more likely than torn ones, and of both there are enough.
            let whole = random.bool().then(|| random.bool());
            for at in (page * PAGE..(page + 1) * PAGE).step_by(SECTOR) {
                if whole.unwrap_or_else(|| random.bool()) {
                    torn.put(at, SECTOR);
                }
            }
        }
        if random.bool() {
            torn.disk.resize(self.cached.len(), 0);
        }
        torn.disk
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Name(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Unname(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const OLD: [u8; PAGE] = [1; PAGE];
    const NEW: [u8; PAGE] = [2; PAGE];

    fn write(bytes: &[u8]) -> Entry<'_> {
        Entry::Write { name: "a", at: 0, bytes }
    }

    /// Returns whether the page of the file is new on the disk after each of many cuts.
    fn is_new(after: &[Entry<'_>]) -> BTreeSet<bool> {
        let image = |seed| {
            let mut disk = Disk::new(seed);
            for entry in [Entry::Open { name: "a", truncate: false }, write(&OLD)] {
                disk.apply(&entry);
            }
            disk.apply(&Entry::Sync { name: "a", failed: false });
            disk.apply(&Entry::Sync { name: ".", failed: false });
            after.iter().for_each(|entry| disk.apply(entry));
            disk.cut()["a"] == NEW
        };
        (0..200).map(image).collect()
    }

    #[test]
    fn a_failed_sync_loses_what_no_later_sync_brings_back() {
        let sync = |failed| Entry::Sync { name: "a", failed };
        assert_eq!(is_new(&[write(&NEW)]), [false, true].into());
        assert_eq!(is_new(&[write(&NEW), sync(false)]), [true].into());
        assert_eq!(is_new(&[write(&NEW), sync(true), sync(false)]), [false, true].into());
        assert_eq!(is_new(&[write(&NEW), sync(true), write(&NEW), sync(false)]), [true].into());
    }

    #[test]
    fn a_name_is_on_the_disk_once_its_directory_was_synced() {
        let found = |synced: bool| -> BTreeSet<bool> {
            let image = |seed| {
                let mut disk = Disk::new(seed);
                disk.apply(&Entry::Open { name: "a", truncate: false });
                disk.apply(&Entry::Sync { name: "a", failed: false });
                disk.apply(&Entry::Rename { from: "a", to: "b" });
                disk.apply(&Entry::Sync { name: ".", failed: !synced });
                disk.cut().contains_key("b")
            };
            (0..50).map(image).collect()
        };
        assert_eq!((found(true), found(false)), ([true].into(), [false, true].into()));
    }
}
