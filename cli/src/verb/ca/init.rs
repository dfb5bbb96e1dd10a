//! `perilog ca init`: a new authority in a directory.

use std::path::{Path, PathBuf};

use perilog_host::clock;

use super::authority::{self, Signer};
use super::files::{self, CA_CERT, CA_KEY, CRL, Who};
use super::read::{Read, certificates};
use super::show::Certificates;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Face, Out, aside};

const NAME: &str = "perilog authority";
const DAYS: u32 = 7300;

/// Makes an authority: DIR/ca.pem, which every node and controller gets, and DIR/ca-key.pem, which nobody gets.
///
/// DIR/crl.pem is its revocation list, empty at first (ca revoke).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The authority's name.
    #[arg(long, value_name = "NAME", default_value = NAME, value_parser = name)]
    name: String,
    /// How long it lasts; no certificate outlives it.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

pub(crate) fn run(args: &Args, mut out: Out) -> Result<Exit, Fault> {
    let certificates = made(&args.dir, &args.name, args.days)?;
    out.show(&Certificates(certificates))?;
    if out.face == Face::Table {
        let dir = args.dir.display();
        aside(format_args!(
            "keep {dir}/{CA_KEY} off every node; next: perilog ca issue --dir {dir} --role controller NAME... --out DIR"
        ));
    }
    Ok(Exit::Ok)
}

/// Makes an authority in `dir` with the default name and lifetime.
pub(in crate::verb) fn make(dir: &Path) -> Result<(), Fault> {
    made(dir, NAME, DAYS).map(drop)
}

fn made(dir: &Path, name: &str, days: u32) -> Result<Vec<Read>, Fault> {
    files::directory(dir)?;
    files::absent(
        dir,
        &[CA_CERT, CA_KEY, CRL],
        "an authority that is replaced shuts out all that it has let in; name another --dir",
    )?;
    let now_ms = clock::wall_ms();
    let made = authority::new(name, days, now_ms)?;
    files::write(&dir.join(CA_KEY), Who::OwnerOnly, &made.key)?;
    let cert = dir.join(CA_CERT);
    files::write(&cert, Who::Everybody, &made.cert)?;
    let none = Signer::open(dir, now_ms)?.revocations(1, &[], now_ms)?;
    files::write(&dir.join(CRL), Who::Everybody, &none)?;
    certificates(&cert, &made.cert)
}

fn name(text: &str) -> Result<String, &'static str> {
    let fits = !text.trim().is_empty() && text.chars().count() <= 64 && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err("expected 1 to 64 characters") }
}
