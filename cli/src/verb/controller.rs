//! `perilog controller`: operations on the controller itself and its store.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use perilog_host::clock;
use serde_json::{Value, json};

use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::verb::failover::inventory;
use crate::verb::{backup, copies, recover, restore};

/// Back up and restore the controller's store, and recover after a restore
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Lists what a restore has left, or makes agents accept this controller (--take-over).
    ///
    /// The list is that of `perilog ps --abandoned`.
    Recover(recover::Args),
    /// Copies the store, as it is at one moment, while the controller runs. The copy is checked, and is complete or
    /// does not appear at all.
    ///
    /// `perilog controller restore FILE` restores the copy. If perilog-backup.timer is enabled, it makes a copy every
    /// day.
    Backup {
        #[arg(value_name = "FILE", required_unless_present = "into")]
        file: Option<PathBuf>,
        /// Make the copy in this directory, with the time in its name (controller-20261125T031500Z.db), and remove the
        /// oldest of these copies beyond --keep.
        #[arg(long, value_name = "DIR", conflicts_with = "file")]
        into: Option<PathBuf>,
        /// How many copies of --into stay.
        #[arg(long, value_name = "NUMBER", default_value = "7", requires = "into")]
        keep: NonZeroUsize,
    },
    /// Replaces the store by a copy: checks the copy, stops the controller, installs the copy, starts the controller.
    ///
    /// The jobs of the copy are abandoned until a hook, an edge or a user asks for them again: see `perilog ps
    /// --abandoned`. FILE stays where it is. On two hosts ([failover]) type this on the one with the disk: failover.md
    /// in /usr/share/doc/perilog has the commands before and after it.
    Restore(restore::Args),
    /// Prints what this host itself has for the controller: configuration, certificates, hooks, user.
    ///
    /// `perilog doctor` reads this from each host of [failover] and compares. The output leaves out the file system
    /// that moves between the hosts, and is always JSON.
    Inventory(inventory::Args),
}

pub(crate) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::Recover(args) => recover::run(&args, endpoint, out),
        What::Inventory(args) => {
            out.show(&inventory::run(&args)?)?;
            Ok(Exit::Ok)
        }
        What::Restore(args) => {
            out.show(&restore::restore(&args)?)?;
            Ok(Exit::Ok)
        }
        What::Backup { file, into, keep } => {
            let file = match (&into, file) {
                (Some(dir), _) => copies::path(dir, clock::wall_ms()),
                (None, file) => file.ok_or_else(|| Fault::Usage("backup needs a FILE, or --into DIR".to_owned()))?,
            };
            let bytes = backup::take(&file, endpoint)?;
            let removed = into.map_or(Ok(Vec::new()), |dir| copies::prune(&dir, &file, keep))?;
            out.show(&Copied { file, bytes, removed })?;
            Ok(Exit::Ok)
        }
    }
}

struct Copied {
    file: PathBuf,
    bytes: u64,
    /// Older copies that the verb removed from the directory.
    removed: Vec<PathBuf>,
}

impl Render for Copied {
    fn table(&self, page: &mut Page) {
        page.line(format_args!("{}: {} bytes", self.file.display(), self.bytes));
        self.removed.iter().for_each(|gone| page.line(format_args!("removed {}", gone.display())));
    }

    fn json(&self) -> Option<Value> {
        let removed: Vec<_> = self.removed.iter().map(|path| path.display().to_string()).collect();
        Some(json!({ "file": self.file.display().to_string(), "bytes": self.bytes, "removed": removed }))
    }

    fn quiet(&self, page: &mut Page) {
        page.line(self.file.display());
    }
}
