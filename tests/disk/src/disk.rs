//! A model of a disk under a page cache: what a power cut may leave of files.
//!
//! ```text
//!   write ──> page cache: the page is dirty ──fsync, or the kernel at any time──> disk
//!                                   └──── an fsync that fails: the page is clean, and may not be on the disk
//! ```
//! A power cut leaves of each dirty page each sector old or new. A page that a failed fsync made clean never reaches
//! the disk, unless a program writes the page again. Names are on the disk once their directory was synced. A cut may
//! leave some of the later changes of each directory, in their order. A new directory is a name of its parent, and on
//! the disk without any of its own names.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use crate::image::Image;
use crate::record::Entry;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// The kernel writes a dirty page of its own accord after one of this many calls.
const WRITES_BACK: u32 = 16;

/// Share of the unsynced writes that a power cut leaves on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    Everything,
    /// A random part.
    Some,
}

#[derive(Debug, Clone, Default)]
struct File {
    cached: Vec<u8>,
    disk: Vec<u8>,
    /// Numbers of the pages whose content in the cache may differ from the disk, and which the kernel will write.
    dirty: BTreeSet<usize>,
    /// Whether the size in the cache may differ from the disk's.
    is_resized: bool,
}

#[derive(Debug, Clone, Default)]
struct Directory {
    cached: BTreeMap<String, usize>,
    disk: BTreeMap<String, usize>,
    /// Changes of names since the last sync of the directory.
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Node {
    File(File),
    Directory(Directory),
}

#[derive(Debug, Clone)]
enum Change {
    Name(String, usize),
    Unname(String),
    Rename(String, String),
}

#[derive(Debug, Clone)]
pub struct Disk {
    /// All files and directories that there ever were; the first is the recorded directory.
    nodes: Vec<Node>,
    random: Rng,
}

const ROOT: usize = 0;

impl Disk {
    pub fn new(seed: u64) -> Self {
        Self { nodes: vec![Node::Directory(Directory::default())], random: Rng::with_seed(seed) }
    }

    /// Returns a disk that has this image, and nothing else to write.
    pub fn with(seed: u64, image: &Image) -> Self {
        let mut disk = Self::new(seed);
        for name in &image.directories {
            disk.apply(&Entry::Directory { name });
        }
        for (name, bytes) in &image.files {
            disk.apply(&Entry::Open { name, truncate: false });
            disk.apply(&Entry::Write { name, at: 0, bytes });
        }
        for name in image.directories.iter().chain(image.files.keys()) {
            disk.sync(name, false);
        }
        disk.sync(".", false);
        disk
    }

    /// Carries out an entry of a record.
    ///
    /// # Panics
    /// If the record names a file that it does not create: then a call is missing in it.
    pub fn apply(&mut self, entry: &Entry<'_>) {
        match *entry {
            Entry::Open { name, truncate } => self.open(name, truncate),
            Entry::Write { name, at, bytes } => self.write(name, at, bytes),
            Entry::Size { name, len } => self.file(name).resize(len),
            Entry::Sync { name, failed } => self.sync(name, failed),
            Entry::Rename { from, to } => self.rename(from, to),
            Entry::Link { from, to } => {
                let node = self.found(from);
                self.name(to, node);
            }
            Entry::Unlink { name } => self.change(name, Change::Unname),
            Entry::Directory { name } => {
                self.nodes.push(Node::Directory(Directory::default()));
                self.name(name, self.nodes.len() - 1);
            }
            Entry::Failed { .. } | Entry::Acknowledged { .. } => {}
        }
    }

    /// Returns what a power cut may leave now.
    pub fn cut(&mut self, left: Left) -> Image {
        let (mut image, mut random) = (Image::default(), self.random.fork());
        self.gather(ROOT, "", &mut image, &mut |node, name, image: &mut Image| match node {
            Node::File(file) => {
                image.files.insert(name.to_owned(), file.cut(left, &mut random));
                BTreeMap::new()
            }
            Node::Directory(directory) => directory.cut(left, &mut random),
        });
        image
    }

    /// Returns the files as programs see them.
    pub fn cached(&self) -> Image {
        let mut image = Image::default();
        self.gather(ROOT, "", &mut image, &mut |node, name, image: &mut Image| match node {
            Node::File(file) => {
                image.files.insert(name.to_owned(), file.cached.clone());
                BTreeMap::new()
            }
            Node::Directory(directory) => directory.cached.clone(),
        });
        image
    }

    /// Walks the tree below a node. `visit` puts a file into the image, and returns the names in a directory.
    fn gather(
        &self,
        number: usize,
        name: &str,
        image: &mut Image,
        visit: &mut impl FnMut(&Node, &str, &mut Image) -> BTreeMap<String, usize>,
    ) {
        let node = &self.nodes[number];
        if matches!(node, Node::Directory(_)) && !name.is_empty() {
            image.directories.insert(name.to_owned());
        }
        for (inside, number) in visit(node, name, image) {
            let path = if name.is_empty() { inside } else { format!("{name}/{inside}") };
            self.gather(number, &path, image, visit);
        }
    }

    /// Returns the number of what programs find under this name.
    fn find(&self, name: &str) -> Option<usize> {
        let mut at = ROOT;
        for part in name.split('/').filter(|part| *part != ".") {
            let Node::Directory(directory) = &self.nodes[at] else { return None };
            at = *directory.cached.get(part)?;
        }
        Some(at)
    }

    #[expect(clippy::expect_used, reason = "a record with a gap proves nothing")]
    fn found(&self, name: &str) -> usize {
        self.find(name).ok_or(name).expect("the record has all names")
    }

    #[expect(clippy::panic, reason = "a record with a gap proves nothing")]
    fn file(&mut self, name: &str) -> &mut File {
        let number = self.found(name);
        match &mut self.nodes[number] {
            Node::File(file) => file,
            Node::Directory(_) => panic!("{name} is a directory"),
        }
    }

    fn open(&mut self, name: &str, truncate: bool) {
        if self.find(name).is_none() {
            self.nodes.push(Node::File(File::default()));
            self.name(name, self.nodes.len() - 1);
        }
        if truncate {
            self.file(name).resize(0);
        }
    }

    fn write(&mut self, name: &str, at: usize, bytes: &[u8]) {
        let writes_back = self.random.u32(..WRITES_BACK) == 0;
        let pick = self.random.usize(..);
        let file = self.file(name);
        let end = at + bytes.len();
        if file.cached.len() < end {
            file.cached.resize(end, 0);
            file.is_resized = true;
        }
        file.cached[at..end].copy_from_slice(bytes);
        file.dirty.extend(at / PAGE..end.div_ceil(PAGE));
        if writes_back && let Some(page) = file.dirty.iter().nth(pick % file.dirty.len().max(1)).copied() {
            file.dirty.remove(&page);
            file.put(page * PAGE, PAGE);
        }
    }

    fn sync(&mut self, name: &str, failed: bool) {
        let number = self.found(name);
        let mut random = self.random.fork();
        match &mut self.nodes[number] {
            Node::File(file) => file.sync(failed, &mut random),
            Node::Directory(directory) if !failed => {
                directory.changes.clear();
                directory.disk.clone_from(&directory.cached);
            }
            Node::Directory(_) => {}
        }
    }

    /// Within a directory, a rename is one change. A move to another directory is two, which a cut may separate: that
    /// is harsher than any file system with a journal.
    fn rename(&mut self, from: &str, to: &str) {
        let node = self.found(from);
        let ((from_in, from_name), (to_in, to_name)) = (split(from), split(to));
        if from_in == to_in {
            let to_name = to_name.to_owned();
            self.change(from, |from| Change::Rename(from, to_name));
        } else {
            self.change(to, |to| Change::Name(to, node));
            self.change(from, |_| Change::Unname(from_name.to_owned()));
        }
    }

    fn name(&mut self, name: &str, node: usize) {
        self.change(name, |name| Change::Name(name, node));
    }

    #[expect(clippy::panic, reason = "a record with a gap proves nothing")]
    fn change(&mut self, name: &str, change: impl FnOnce(String) -> Change) {
        let (parent, name) = split(name);
        let number = self.found(parent);
        let Node::Directory(directory) = &mut self.nodes[number] else { panic!("{parent} is a file") };
        let change = change(name.to_owned());
        change.apply(&mut directory.cached);
        directory.changes.push(change);
    }
}

/// Splits a name into its directory and the name in that directory.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or((".", name))
}

impl Directory {
    fn cut(&self, left: Left, random: &mut Rng) -> BTreeMap<String, usize> {
        let mut names = self.disk.clone();
        let kept = match left {
            Left::Nothing => 0,
            Left::Everything => self.changes.len(),
            Left::Some => random.usize(..=self.changes.len()),
        };
        self.changes.iter().take(kept).for_each(|change| change.apply(&mut names));
        names
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

    fn resize(&mut self, len: usize) {
        let pages = len.min(self.cached.len()) / PAGE..len.max(self.cached.len()).div_ceil(PAGE);
        self.cached.resize(len, 0);
        self.dirty.extend(pages);
        self.is_resized = true;
    }

    fn sync(&mut self, failed: bool, random: &mut Rng) {
        if failed {
            self.disk = self.cut(Left::Some, random);
        } else {
            for page in std::mem::take(&mut self.dirty) {
                self.put(page * PAGE, PAGE);
            }
            self.disk.resize(self.cached.len(), 0);
        }
        self.dirty.clear();
        self.is_resized = false;
    }

    /// Returns what the disk may hold of this file after a cut or a failed fsync.
    fn cut(&self, left: Left, random: &mut Rng) -> Vec<u8> {
        if self.dirty.is_empty() && !self.is_resized || left == Left::Nothing {
            return self.disk.clone();
        }
        let mut torn = self.clone();
        for page in &self.dirty {
            // Whole pages are more likely than torn ones, and of both there are enough.
            let whole = if left == Left::Everything { Some(true) } else { random.bool().then(|| random.bool()) };
            for at in (page * PAGE..(page + 1) * PAGE).step_by(SECTOR) {
                if whole.unwrap_or_else(|| random.bool()) {
                    torn.put(at, SECTOR);
                }
            }
        }
        if left == Left::Everything || random.bool() {
            torn.disk.resize(self.cached.len(), 0);
        }
        torn.disk
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Name(name, node) => drop(names.insert(name.clone(), *node)),
            Self::Unname(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
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
            disk.cut(Left::Some).files["a"] == NEW
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
                disk.cut(Left::Some).files.contains_key("b")
            };
            (0..50).map(image).collect()
        };
        assert_eq!((found(true), found(false)), ([true].into(), [false, true].into()));
    }

    #[test]
    fn a_directory_has_its_own_names_and_is_a_name_of_its_parent() {
        let cuts = |synced: &[&str]| -> BTreeSet<(bool, bool)> {
            let cut = |seed| {
                let mut disk = Disk::new(seed);
                disk.apply(&Entry::Directory { name: "d" });
                disk.apply(&Entry::Open { name: "d/.new", truncate: false });
                disk.apply(&Entry::Rename { from: "d/.new", to: "d/a" });
                disk.apply(&Entry::Link { from: "d/a", to: "d/b" });
                synced.iter().for_each(|name| disk.apply(&Entry::Sync { name, failed: false }));
                let image = disk.cut(Left::Some);
                (image.directories.contains("d"), image.files.contains_key("d/b"))
            };
            (0..200).map(cut).collect()
        };
        assert_eq!(cuts(&["d", "."]), [(true, true)].into());
        assert_eq!(cuts(&["."]), [(true, false), (true, true)].into());
        assert_eq!(cuts(&["d"]), [(false, false), (true, true)].into());
    }

    #[test]
    fn a_cut_leaves_nothing_everything_or_a_part_of_what_no_sync_brought_there() {
        let mut disk = Disk::with(1, &Image { files: [("a".to_owned(), OLD.to_vec())].into(), ..Image::default() });
        disk.apply(&Entry::Write { name: "a", at: 2 * PAGE, bytes: &NEW });
        let everything = [&OLD[..], &[0; PAGE], &NEW].concat();
        assert_eq!(disk.cached().files["a"], everything);
        assert_eq!(disk.cut(Left::Everything).files["a"], everything);
        let sizes: BTreeSet<usize> = (0..200).map(|_| disk.cut(Left::Some).files["a"].len()).collect();
        assert!(sizes.len() > 2, "{sizes:?}");
        disk.apply(&Entry::Unlink { name: "a" });
        assert!(disk.cut(Left::Nothing).files.contains_key("a"));
        assert_eq!(disk.cut(Left::Everything), Image::default());
    }
}
