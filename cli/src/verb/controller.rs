//! `perilog controller`: what is done to the controller itself. `take-over` makes agents obey it whatever they have obeyed before; `backup` copies
//! its store.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::door::{Answer, Door};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Faces, Out, Page};
use crate::verb::backup;

/// Make this the controller that agents obey, or copy its store
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Makes this the controller that agents obey, whatever epoch they have obeyed before.
    ///
    /// For a controller whose store was lost or restored from a copy, when `perilog status` says that agents obey another one. First make
    /// sure that the other one is stopped: this is what keeps two controllers from commanding one node.
    TakeOver,
    /// Copies the store, all of one moment, while the controller runs. The copy is checked, and written whole or not at all.
    ///
    /// To restore it: stop perilog-controller and its socket, remove controller.db-wal and controller.db-shm, put the copy in the place of the store
    /// (`install -o perilog -g perilog -m 600 FILE /var/lib/perilog/controller.db`), start both, and `perilog controller take-over`. What nodes did since then they tell; nothing runs twice.
    Backup {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

pub(crate) fn run(args: Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::TakeOver => {
            let answer: Answer<TookOver> = door.ask("TakeOver", &json!({}))?;
            out.show(&answer)?;
            Ok(Exit::Ok)
        }
        What::Backup { file } => {
            let bytes = backup::take(&file, door)?;
            out.show(&Copied { file, bytes })?;
            Ok(Exit::Ok)
        }
    }
}

struct Copied {
    file: PathBuf,
    bytes: u64,
}

impl Faces for Copied {
    fn table(&self, page: &mut Page) {
        page.line(format_args!("{}: {} bytes", self.file.display(), self.bytes));
    }

    fn json(&self) -> Option<Value> {
        Some(json!({ "file": self.file.display().to_string(), "bytes": self.bytes }))
    }

    fn quiet(&self, page: &mut Page) {
        page.line(self.file.display());
    }
}

#[derive(Debug, Deserialize)]
struct TookOver {
    epoch: u64,
}

impl Faces for Answer<TookOver> {
    fn table(&self, page: &mut Page) {
        page.line(format_args!(
            "this controller has epoch {} now; agents come back under it within seconds (perilog nodes)",
            self.body.epoch
        ));
    }

    fn json(&self) -> Option<Value> {
        Some(self.raw.clone())
    }

    fn quiet(&self, page: &mut Page) {
        page.line(self.body.epoch);
    }
}
