//! `perilog controller take-over`: makes agents obey this controller whatever they have obeyed before.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::door::{Answer, Door};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Faces, Out, Page};

/// Make this the controller that agents obey
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
}

pub(crate) fn run(args: Args, door: &Door, mut out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::TakeOver => {
            let answer: Answer<TookOver> = door.ask("TakeOver", &json!({}))?;
            out.show(&answer)?;
            Ok(Exit::Ok)
        }
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
