//! `perilog controller`: operations on the controller itself and its store.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::door::Door;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Faces, Out, Page};
use crate::verb::{backup, recover, restore};

/// Copy the controller's store, put a copy back, and recover from that
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Shows what a controller in recovery waits for, and takes your word for it.
    ///
    /// A controller whose store was lost or restored from a copy is in recovery: it begins, tells and releases nothing
    /// of its store until the resource manager, or you, vouched for the store. Without options: the store's jobs that
    /// wait for a word, and the tasks on nodes that it does not know.
    Recover(recover::Args),
    /// Copies the store, all of one moment, while the controller runs. The copy is checked, and written whole or not at
    /// all.
    ///
    /// `perilog controller restore FILE` puts it back.
    Backup {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Replaces the store by a copy: checks the copy, stops the controller, installs it, starts the controller.
    ///
    /// The controller is in recovery then: see `perilog controller recover`. The copy stays where it is.
    Restore(restore::Args),
}

pub(crate) fn run(args: Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::Recover(args) => recover::run(&args, door, out),
        What::Restore(args) => {
            out.show(&restore::restore(&args)?)?;
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
