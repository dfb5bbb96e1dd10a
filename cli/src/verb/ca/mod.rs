//! `perilog ca`: a small certificate authority for sites without one.
//!
//! `init` makes an authority in a directory. `issue` makes the files of a node or a controller under /etc/perilog/tls
//! (ca.pem, cert.pem, key.pem), `renew` issues certificates anew, `list` says how long certificates last, `revoke`
//! revokes certificates, `show` reads certificates. Keys are EC P-256. An authority's directory:
//!
//! ```text
//!   ca.pem, ca-key.pem     the authority     issued.jsonl   each issued certificate, and its host
//!   crl.pem                the revoked certificates
//! ```
//! Automatic renewal is not part of this module: nodes that enrol renew their own certificates.

mod authority;
pub(super) mod files;
mod init;
mod issue;
mod issued;
pub(super) mod list;
pub(super) mod read;
mod renew;
mod revoke;
mod show;

pub(super) use authority::Name;
pub(super) use init::{is_cut, make};
pub(super) use issue::{controller, name};

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
    List(list::Args),
    Renew(renew::Args),
    Revoke(revoke::Args),
    Show(show::Args),
}

pub(crate) fn run(args: Args, out: Out) -> Result<Exit, Fault> {
    match args.what {
        What::Init(args) => init::run(&args, out),
        What::Issue(args) => issue::run(&args, out),
        What::List(args) => list::run(&args, out),
        What::Renew(args) => renew::run(&args, out),
        What::Revoke(args) => revoke::run(&args, out),
        What::Show(args) => show::run(args, out),
    }
}
