//! Pieces of a soak: a soak of days is run in pieces of hours, and a file has one line for each. Their counts add up.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Counts of one piece of a soak, or the sum of several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    pub seed: u64,
    pub seconds: u64,
    pub jobs: usize,
    pub faults: usize,
    /// Number of faults that killed processes with SIGKILL.
    pub kills: usize,
    /// Number of compared tasks (action, job, attempt, node).
    pub compared: usize,
    pub differences: usize,
    /// The first of the differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<String>,
}

impl Piece {
    /// Returns a piece without a report: it counts as one difference, with this text.
    pub fn without_report(text: String) -> Self {
        Self { differences: 1, texts: vec![text], ..Self::default() }
    }
}

/// Pieces of the soak with one seed, and the file that lists them.
#[derive(Debug)]
pub struct Pieces {
    seed: u64,
    path: PathBuf,
    file: File,
    pieces: Vec<Piece>,
}

impl Pieces {
    /// Opens the file, or makes it, and reads the pieces with this seed.
    ///
    /// # Errors
    /// The file cannot be read and written, or a line of it is malformed.
    pub fn open(path: &Path, seed: u64) -> Result<Self> {
        let open = || -> Result<(File, Vec<Piece>)> {
            let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let pieces = text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("{line:?}")));
            Ok((file, pieces.collect::<Result<_>>()?))
        };
        let (file, mut pieces) =
            open().with_context(|| format!("{}: remove it, or make it yours and well-formed", path.display()))?;
        pieces.retain(|piece| piece.seed == seed);
        Ok(Self { seed, path: path.to_owned(), file, pieces })
    }

    /// Returns the seed of the next piece's faults. Each piece has faults of its own, also after one that ended early.
    pub fn next_seed(&self) -> u64 {
        self.seed.wrapping_add((self.pieces.len() as u64) << 32)
    }

    /// Appends a piece to the file and to these.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, piece: Piece) -> Result<()> {
        let piece = Piece { seed: self.seed, ..piece };
        let line = serde_json::to_string(&piece)? + "\n";
        self.file.write_all(line.as_bytes()).with_context(|| format!("writing {}", self.path.display()))?;
        self.pieces.push(piece);
        Ok(())
    }
}

impl fmt::Display for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&Piece) -> usize| self.pieces.iter().map(of).sum::<usize>();
        let minutes = self.pieces.iter().map(|piece| piece.seconds).sum::<u64>() / 60;
        write!(
            f,
            "in all: {} pieces of {minutes} minutes together, {} jobs, {} faults, of which {} kill processes, {} tasks \
             compared, {} differences",
            self.pieces.len(),
            sum(|piece| piece.jobs),
            sum(|piece| piece.faults),
            sum(|piece| piece.kills),
            sum(|piece| piece.compared),
            sum(|piece| piece.differences),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(jobs: usize) -> Piece {
        Piece { seconds: 90, jobs, faults: 3, kills: 2, compared: 8, ..Piece::default() }
    }

    #[test]
    fn pieces_of_one_seed_add_up() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("soak.jsonl");
        for (seed, jobs) in [(1, 5), (2, 100), (1, 6)] {
            Pieces::open(&file, seed).unwrap().push(counted(jobs)).unwrap();
        }
        let shown = Pieces::open(&file, 1).unwrap().to_string();
        let expected = "in all: 2 pieces of 3 minutes together, 11 jobs, 6 faults, of which 4 kill processes, 16 tasks \
                        compared, 0 differences";
        assert_eq!(shown, expected);
        assert_eq!(Pieces::open(&file, 3).unwrap().pieces, []);
        std::fs::write(&file, "x").unwrap();
        assert!(Pieces::open(&file, 1).is_err());
    }

    #[test]
    fn a_piece_that_ended_early_counts_and_the_next_has_other_faults() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("soak.jsonl");
        // A line of an earlier version has no texts.
        let line = r#"{"seed":1,"seconds":90,"jobs":5,"faults":3,"kills":2,"compared":8,"differences":0}"#;
        std::fs::write(&file, format!("{line}\n")).unwrap();
        let mut pieces = Pieces::open(&file, 1).unwrap();
        let seeds = (1..=3).map(|_| {
            let seed = pieces.next_seed();
            pieces.push(Piece::without_report("fault 7: reboot a node".to_owned())).unwrap();
            seed
        });
        assert_eq!(seeds.collect::<Vec<u64>>(), [1 + (1 << 32), 1 + (2 << 32), 1 + (3 << 32)]);
        let again = Pieces::open(&file, 1).unwrap();
        assert_eq!(again.pieces[1].texts, ["fault 7: reboot a node"]);
        assert!(again.to_string().ends_with(", 8 tasks compared, 3 differences"), "{again}");
    }
}
