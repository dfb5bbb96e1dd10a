//! `perilog ca init`: a new authority in a directory.

use std::path::{Path, PathBuf};

use perilog_host::authority::ISSUED;
use perilog_host::clock;

use super::authority::{self, Signer};
use super::files::{self, CA_CERT, CA_KEY, CRL, Who};
use super::read::{Read, certificates};
use super::show::Certificates;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat, aside};

const NAME: &str = "perilog authority";
const DAYS: u32 = 7300;

/// Makes an authority: DIR/ca.pem, which every node and controller needs, and DIR/ca-key.pem, which stays here.
///
/// DIR/crl.pem is its revocation list, empty at first (ca revoke).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The authority's name.
    #[arg(long, value_name = "NAME", default_value = NAME, value_parser = name)]
    name: String,
    /// How long the authority is valid; no certificate outlives it.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

pub(crate) fn run(args: &Args, mut out: Out) -> Result<Exit, Fault> {
    let certificates = made(&args.dir, &args.name, args.days)?;
    out.show(&Certificates(certificates))?;
    if out.format == OutputFormat::Table {
        let dir = args.dir.display();
        aside(format_args!(
            "keep {dir}/{CA_KEY} off every node; next, type perilog ca issue --dir {dir} --role controller NAME... \
             --out DIR"
        ));
    }
    Ok(Exit::Ok)
}

/// Makes an authority in `dir` with the default name and lifetime.
pub(in crate::verb) fn make(dir: &Path) -> Result<(), Fault> {
    made(dir, NAME, DAYS).map(drop)
}

/// Makes the files of an authority, its certificate last: the authority exists once its certificate does. If an earlier
/// `init` was cut off, its key, with which nothing was signed, becomes the key of the new authority.
fn made(dir: &Path, name: &str, days: u32) -> Result<Vec<Read>, Fault> {
    files::directory(dir)?;
    files::is_own(dir, false)?;
    let key = dir.join(CA_KEY);
    let others: &[&str] = if is_cut(dir) { &[CA_CERT] } else { &[CA_CERT, CA_KEY, CRL] };
    files::absent(
        dir,
        others,
        "a new authority in its place would invalidate all certificates that it has issued; name another --dir",
    )?;
    let now_ms = clock::wall_ms();
    let made = if files::is_missing(&key) {
        authority::new(name, days, now_ms)?
    } else {
        files::is_own(&key, false)?;
        authority::of_key(name, days, now_ms, &files::read_secret(&key)?)?
    };
    // Writes an existing key again: the init that was cut perhaps did not bring the key to the disk.
    files::write(&key, Who::OwnerOnly, &made.key)?;
    let cert = dir.join(CA_CERT);
    let read = certificates(&cert, &made.cert)?;
    let until_ms = read.first().map_or(0, |read| read.not_after_ms);
    let none = Signer::of(&made.cert, &made.key, until_ms, String::new())?.revocations(1, &[], now_ms)?;
    files::write(&dir.join(CRL), Who::Everybody, &none)?;
    files::write(&cert, Who::Everybody, &made.cert)?;
    Ok(read)
}

/// Returns `true` if an earlier `init` in `dir` was cut off: there is a key, but no certificate and no list of issued
/// ones.
pub(in crate::verb) fn is_cut(dir: &Path) -> bool {
    files::is_missing(&dir.join(CA_CERT))
        && files::is_missing(&dir.join(ISSUED))
        && !files::is_missing(&dir.join(CA_KEY))
}

fn name(text: &str) -> Result<String, &'static str> {
    let fits = !text.trim().is_empty() && text.chars().count() <= 64 && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err("expected 1 to 64 characters") }
}
