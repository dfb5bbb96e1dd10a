//! Tests of power cuts: acknowledged batches are on the disk, and every batch is whole or absent. (For kill -9 see
//! `tests/store_survives_kill.rs`.)

use std::path::{Path, PathBuf};

use super::*;

const BATCH: u64 = 7;

fn batch(n: u64) -> Vec<Record> {
    (1..=BATCH).map(|i| event(&job(1), n * BATCH + i)).collect()
}

/// Returns the number of the last batch in a store, and checks that no event is missing.
fn last_batch(path: &Path) -> u64 {
    let last = Store::open(path).unwrap().load().unwrap().events_last.get(&job(1)).copied().unwrap_or(0);
    assert_eq!(last % BATCH, 0, "half a batch");
    let (reader, mut events) = (EventReader::open(path).unwrap(), Vec::new());
    loop {
        let page = reader.events(&job(1), events.last().copied().unwrap_or(0), usize::MAX).unwrap();
        if page.is_empty() {
            break;
        }
        events.extend(page.iter().map(|(n, _)| *n));
    }
    assert!(events.into_iter().eq(1..=last), "a hole");
    last / BATCH
}

const SECTOR: usize = 512;

/// The contents of the store's file and of its log on the disk.
#[derive(Clone)]
struct Image {
    db: Vec<u8>,
    wal: Vec<u8>,
}

fn image(path: &Path) -> Image {
    let read = |path: PathBuf| std::fs::read(path).unwrap_or_default();
    Image { db: read(path.to_owned()), wal: read(wal(path)) }
}

fn wal(path: &Path) -> PathBuf {
    place::beside(path, "wal")
}

/// Returns a file that a power cut between `before` and `after` may leave: each sector has either version, and the file
/// either size. `coin` decides.
fn torn(before: &[u8], after: &[u8], coin: &mut impl FnMut() -> bool) -> Vec<u8> {
    let size = if coin() { before.len() } else { after.len() };
    let mut torn = Vec::with_capacity(size);
    for at in (0..size).step_by(SECTOR) {
        let of = |image: &[u8]| -> Vec<u8> {
            let mut sector = image.get(at..image.len().min(at + SECTOR)).unwrap_or_default().to_vec();
            sector.resize(SECTOR, 0);
            sector
        };
        torn.extend(if coin() { of(before) } else { of(after) });
    }
    torn.truncate(size);
    torn
}

#[test]
fn acknowledged_batches_survive_power_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("live.db");
    let mut store = Store::open(&path).unwrap();
    // The order of writes matters across fsync: a checkpoint is a step of its own, when the log is on the disk.
    store.db.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut coin = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random & 1 == 0
    };
    let cut = dir.path().join("cut.db");
    let mut before = image(&path);
    for n in 0..60 {
        let mut acknowledged = n;
        if n % 11 == 10 {
            store.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        } else {
            store.commit(&batch(n - n / 11)).unwrap();
        }
        acknowledged -= n / 11;
        let after = image(&path);
        for _ in 0..4 {
            std::fs::write(&cut, torn(&before.db, &after.db, &mut coin)).unwrap();
            std::fs::write(wal(&cut), torn(&before.wal, &after.wal, &mut coin)).unwrap();
            let found = last_batch(&cut);
            assert!(found >= acknowledged, "step {n}: {acknowledged} acknowledged, {found} found");
            for file in [cut.clone(), wal(&cut), place::beside(&cut, "shm")] {
                let _ = std::fs::remove_file(file);
            }
        }
        before = after;
    }
}
