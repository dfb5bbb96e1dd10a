//! `perilog ca show`: contents of certificates.

use std::path::{Path, PathBuf};

use perilog_host::clock;
use serde_json::{Value, json};

use super::files;
use super::read::{Read, certificates};
use crate::columns::{Columns, cell, styled};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, when};

/// Shows certificates: role, names, validity, fingerprint. With --quiet: the fingerprints.
///
/// The exit status is 1 if one of them is not valid now.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Args {
    /// A PEM file.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// All certificates (*.pem) in this directory and in the directories directly below it.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const DAY_MS: u64 = 86_400_000;
/// Number of days before a certificate's expiry from which on the verb colours it.
const SOON_DAYS: u64 = 30;

pub(crate) fn run(args: Args, mut out: Out) -> Result<Exit, Fault> {
    let mut found = Vec::new();
    for file in &args.files {
        let read = certificates(file, &files::read(file)?)?;
        if read.is_empty() {
            return Err(Fault::Usage(format!("{} has no certificate in it", file.display())));
        }
        found.extend(read);
    }
    if let Some(dir) = &args.dir {
        let before = found.len();
        for file in pem_files(dir)? {
            found.extend(certificates(&file, &files::read(&file)?)?);
        }
        if found.len() == before {
            return Err(Fault::Usage(format!("no certificate in {}", dir.display())));
        }
    }
    let now_ms = clock::wall_ms();
    let valid = found.iter().all(|read| (read.not_before_ms..=read.not_after_ms).contains(&now_ms));
    out.show(&Certificates(found))?;
    Ok(if valid { Exit::Ok } else { Exit::Failed })
}

/// Returns the `*.pem` files of a directory and of its direct subdirectories, sorted; skips the keys.
fn pem_files(dir: &Path) -> Result<Vec<PathBuf>, Fault> {
    let list = |dir: &Path| -> Result<Vec<PathBuf>, Fault> {
        let failed = |source| Fault::File { what: "cannot read", path: dir.to_owned(), source };
        let entries = std::fs::read_dir(dir).map_err(failed)?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
    };
    let mut files = Vec::new();
    for path in list(dir)? {
        if path.is_dir() {
            files.extend(list(&path)?);
        } else {
            files.push(path);
        }
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pem") && path.is_file());
    // Skips keys, which contain nothing to show and may be unreadable.
    files.retain(|path| path.file_name().is_none_or(|name| name != files::KEY && name != files::CA_KEY));
    files.sort();
    Ok(files)
}

pub(super) struct Certificates(pub(super) Vec<Read>);

impl Render for Certificates {
    fn table(&self, page: &mut Page) {
        for (at, read) in self.0.iter().enumerate() {
            if at > 0 {
                page.blank();
            }
            page.line(style::STRONG.style(&read.file));
            let mut columns = Columns::headless();
            let mut line = |head: &str, what: crate::columns::Cell| columns.row([styled(head, style::QUIET), what]);
            line("role", cell(read.role));
            line("subject", cell(&read.subject));
            line("issuer", cell(if read.issuer == read.subject { "itself" } else { &read.issuer }));
            if !read.names.is_empty() {
                line("names", cell(read.names.join(", ")));
            }
            line("valid", validity(read, page.now_ms));
            line("serial", cell(&read.serial));
            line("sha256", cell(&read.fingerprint));
            page.indented(2, columns);
        }
    }

    fn json(&self) -> Option<Value> {
        Some(json!({ "certificates": self.0.iter().map(Read::json).collect::<Vec<_>>() }))
    }

    fn quiet(&self, page: &mut Page) {
        self.0.iter().for_each(|read| page.line(&read.fingerprint));
    }
}

fn validity(read: &Read, now_ms: u64) -> crate::columns::Cell {
    let (from, to) = (when::day(read.not_before_ms), when::day(read.not_after_ms));
    if now_ms < read.not_before_ms {
        return styled(format!("NOT YET VALID: from {from} to {to} (is the clock of this host right?)"), style::BAD);
    }
    match read.not_after_ms.checked_sub(now_ms) {
        None => styled(format!("EXPIRED on {to}"), style::BAD),
        Some(left) if left < SOON_DAYS * DAY_MS => {
            styled(format!("{from} to {to}, {} days left: issue a new one", left / DAY_MS), style::CARE)
        }
        Some(left) => cell(format!("{from} to {to}, {} days left", left / DAY_MS)),
    }
}
