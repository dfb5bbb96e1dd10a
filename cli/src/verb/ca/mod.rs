//! `perilog ca`: a small certificate authority for sites that have none.
//!
//! `init` makes an authority in a directory, `issue` makes what a node or a controller needs under /etc/perilog/tls (ca.pem, cert.pem,
//! key.pem), `show` reads certificates back. Keys are EC P-256. It keeps no list of what it issued: a node is shut out by its host name, in
//! the controller, or by a new authority. Not here: revocation lists, and renewal by itself.

mod authority;
mod files;
mod init;
mod issue;
pub(super) mod read;
mod show;

use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;

/// Certificates for nodes and controller
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Init(init::Args),
    Issue(issue::Args),
    Show(show::Args),
}

pub(crate) fn run(args: Args, out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::Init(args) => init::run(&args, out),
        What::Issue(args) => issue::run(&args, out),
        What::Show(args) => show::run(args, out),
    }
}
