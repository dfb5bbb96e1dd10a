//! Pieces of a soak: a soak of days is run in pieces of hours, and a file has one line for each. Their counts add up.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Counts of one piece of a soak, or the sum of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
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
}

/// Pieces of the soak with one seed that a file lists.
#[derive(Debug, Clone, PartialEq)]
pub struct Pieces(Vec<Piece>);

impl Pieces {
    /// Reads the pieces with this seed; none if there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is malformed.
    pub fn read(file: &Path, seed: u64) -> Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("{}", file.display()))?,
        };
        let pieces = text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("{line:?}")));
        let pieces: Vec<Piece> = pieces.collect::<Result<_>>().with_context(|| format!("{}", file.display()))?;
        Ok(Self(pieces.into_iter().filter(|piece| piece.seed == seed).collect()))
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Appends a piece to the file and to these.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, file: &Path, piece: Piece) -> Result<()> {
        let append = || -> Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(file)?;
            Ok(writeln!(file, "{}", serde_json::to_string(&piece)?)?)
        };
        append().with_context(|| format!("{}", file.display()))?;
        self.0.push(piece);
        Ok(())
    }
}

impl fmt::Display for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&Piece) -> usize| self.0.iter().map(of).sum::<usize>();
        let minutes = self.0.iter().map(|piece| piece.seconds).sum::<u64>() / 60;
        write!(
            f,
            "in all: {} pieces of {minutes} minutes together, {} jobs, {} faults, of which {} kill processes, {} tasks \
             compared, {} differences",
            self.0.len(),
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

    #[test]
    fn pieces_of_one_seed_add_up() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("soak.jsonl");
        let piece = |seed, jobs| Piece { seed, seconds: 90, jobs, faults: 3, kills: 2, compared: 8, differences: 0 };
        for (seed, jobs) in [(1, 5), (2, 100), (1, 6)] {
            Pieces::read(&file, seed).unwrap().push(&file, piece(seed, jobs)).unwrap();
        }
        let shown = Pieces::read(&file, 1).unwrap().to_string();
        let expected = "in all: 2 pieces of 3 minutes together, 11 jobs, 6 faults, of which 4 kill processes, 16 tasks \
                        compared, 0 differences";
        assert_eq!(shown, expected);
        assert_eq!(Pieces::read(&file, 3).unwrap().count(), 0);
        std::fs::write(&file, "x").unwrap();
        assert!(Pieces::read(&file, 1).is_err());
    }
}
