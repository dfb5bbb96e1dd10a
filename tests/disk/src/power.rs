//! Power cuts: moments at which a recorded run ends, and what the disk has then.

use fastrand::Rng;

use crate::disk::{Disk, Left};
use crate::image::Image;
use crate::record::Entry;

/// Of this many cuts, one leaves no unsynced write on the disk, and one leaves all of them.
const PURE: u8 = 8;

/// A power cut.
#[derive(Debug)]
pub struct Cut<'a> {
    /// Number of entries of the record before the cut.
    pub moment: usize,
    pub image: Image,
    /// Marks before the cut.
    pub acknowledged: Vec<&'a str>,
}

/// Returns `count` random moments in a record, sorted; each moment if there are fewer.
pub fn moments(seed: u64, entries: &[Entry<'_>], count: usize) -> Vec<usize> {
    if entries.len() < count {
        return (0..=entries.len()).collect();
    }
    let mut random = Rng::with_seed(seed);
    let mut moments: Vec<usize> = (0..count).map(|_| random.usize(..=entries.len())).collect();
    moments.sort_unstable();
    moments
}

/// Replays a record on a disk, and cuts the power at these moments, which are sorted. Calls `each` with every cut.
pub fn cuts<'a>(mut disk: Disk, seed: u64, entries: &[Entry<'a>], moments: &[usize], mut each: impl FnMut(Cut<'a>)) {
    let mut random = Rng::with_seed(seed);
    let (mut acknowledged, mut done) = (Vec::new(), 0);
    for moment in moments {
        for entry in &entries[done..*moment] {
            disk.apply(entry);
            if let Entry::Acknowledged { what } = entry {
                acknowledged.push(*what);
            }
        }
        done = *moment;
        let left = match random.u8(..PURE) {
            0 => Left::Nothing,
            1 => Left::Everything,
            _ => Left::Some,
        };
        each(Cut { moment: *moment, image: disk.cut(left), acknowledged: acknowledged.clone() });
    }
}

/// Returns the record without one in ten of its syncs: a disk that ignores them loses what was acknowledged.
pub fn without_some_syncs<'a>(seed: u64, entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let mut random = Rng::with_seed(seed);
    let stays = |entry: &&Entry<'_>| !matches!(entry, Entry::Sync { .. }) || random.u8(..10) > 0;
    entries.iter().filter(stays).cloned().collect()
}
