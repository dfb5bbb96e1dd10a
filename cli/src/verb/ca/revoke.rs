//! `perilog ca revoke`: the authority takes its word back. What is revoked is in DIR/crl.pem (RFC 5280, section 5), which is the only memory of it.

use std::path::{Path, PathBuf};

use perilog_core::HostName;
use perilog_host::authority::canonical;
use perilog_host::clock;
use serde_json::{Value, json};

use super::authority::{Revoked, Signer};
use super::files::{self, CA_CERT, CRL, Who};
use super::issued::{self, Issued};
use super::read::{self, certificates};
use crate::columns::{Columns, cell, styled};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Face, Faces, Out, Page, aside};
use crate::{style, when};

/// Revokes certificates: they are added to the authority's revocation list, DIR/crl.pem.
///
/// The list counts where it is brought to: as `crl` of [tls] in controller.toml for the certificates of nodes, in agent.toml for those of controllers,
/// then a reload. The controller ends the sessions of what is revoked. Without HOST the list is written anew and shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the authority is (ca init).
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// A host (all its certificates, but of those that a node asked for itself those that have run out), a serial number (0x... or with colons), or a certificate's file (with a slash).
    #[arg(value_name = "HOST|SERIAL|FILE", value_parser = what)]
    what: Vec<What>,
}

#[derive(Debug, Clone)]
enum What {
    Host(HostName),
    Serial(String),
    File(PathBuf),
}

pub(crate) fn run(args: &Args, mut out: Out) -> Result<Exit, Fault> {
    let signer = Signer::open(&args.dir, clock::wall_ms())?;
    // Of two that add to the list at once, none is forgotten.
    let _lock = files::lock(&args.dir)?;
    let path = args.dir.join(CRL);
    let begins = files::is_missing(&path);
    let (number, mut list) =
        if begins { (0, Vec::new()) } else { read::revocations(&path, &files::read_list(&path)?)? };
    let now_ms = clock::wall_ms();
    let issued = issued::list(&args.dir)?;
    let mut added = Vec::new();
    for what in &args.what {
        for serial in serials(&args.dir, &issued, what)? {
            if !list.iter().any(|revoked: &Revoked| revoked.serial == serial) {
                list.push(Revoked { serial: serial.clone(), at_ms: now_ms });
                added.push(serial);
            }
        }
    }
    files::write(&path, Who::Everybody, &signer.revocations(number + 1, &list, now_ms)?)?;
    let names = |serial: &str| {
        let known = issued.iter().find(|issued| issued.serial == serial);
        known.map(|issued| issued.names.join(", ")).unwrap_or_default()
    };
    let rows = list.iter().map(|revoked| Row {
        names: names(&revoked.serial),
        serial: revoked.serial.clone(),
        at_ms: revoked.at_ms,
        new: added.contains(&revoked.serial),
    });
    out.show(&List { file: path.display().to_string(), rows: rows.collect() })?;
    if begins {
        aside(format_args!(
            "{} was not there, and this is a new list: if there was one elsewhere, bring it back and revoke again, or who is on it is let in again",
            path.display()
        ));
    }
    if out.face == Face::Table && !added.is_empty() {
        aside(format_args!(
            "bring {} to the controller ([tls] crl in controller.toml) and reload it: systemctl reload perilog-controller",
            path.display()
        ));
    }
    Ok(Exit::Ok)
}

/// Which certificates are meant; at least one.
fn serials(dir: &Path, issued: &[Issued], what: &What) -> Result<Vec<String>, Fault> {
    match what {
        What::Serial(serial) => Ok(vec![serial.clone()]),
        What::File(file) => {
            let authority = certificates(&dir.join(CA_CERT), &files::read(&dir.join(CA_CERT))?)?;
            let found = certificates(file, &files::read(file)?)?;
            let Some(first) = found.first() else {
                return Err(Fault::Usage(format!("{} has no certificate in it", file.display())));
            };
            if !authority.first().is_some_and(|authority| first.is_of(authority)) {
                let (file, dir) = (file.display(), dir.display());
                return Err(Fault::Usage(format!(
                    "{file} is not of the authority in {dir} (its issuer: {})",
                    first.issuer
                )));
            }
            Ok(vec![first.serial.clone()])
        }
        What::Host(host) => {
            let its = issued::of_host(issued, &canonical(host.as_str()), clock::wall_ms());
            let serials: Vec<String> = its.iter().map(|issued| issued.serial.clone()).collect();
            if serials.is_empty() {
                let dir = dir.display();
                return Err(Fault::Usage(format!(
                    "the authority in {dir} has no record of a certificate for {host}: name its file, or its serial number (perilog ca show)"
                )));
            }
            Ok(serials)
        }
    }
}

fn what(text: &str) -> Result<What, String> {
    if text.contains('/') {
        return Ok(What::File(PathBuf::from(text)));
    }
    let hexadecimal =
        text.strip_prefix("0x").map(str::to_owned).or_else(|| text.contains(':').then(|| text.replace(':', "")));
    if let Some(serial) = hexadecimal {
        let good = !serial.is_empty() && serial.len() <= 40 && serial.bytes().all(|byte| byte.is_ascii_hexdigit());
        let padded = if serial.len() % 2 == 1 { format!("0{serial}") } else { serial };
        return if good {
            Ok(What::Serial(padded.to_ascii_uppercase()))
        } else {
            Err("expected at most 40 hexadecimal digits".to_owned())
        };
    }
    HostName::new(text).map(What::Host).map_err(|error| error.to_string())
}

struct List {
    file: String,
    rows: Vec<Row>,
}

struct Row {
    serial: String,
    names: String,
    at_ms: u64,
    new: bool,
}

impl Faces for List {
    fn table(&self, page: &mut Page) {
        page.line(style::STRONG.style(&self.file));
        if self.rows.is_empty() {
            page.line("  nothing is revoked");
            return;
        }
        let mut columns = Columns::headless();
        for row in &self.rows {
            let word = if row.new { styled("now", style::CARE) } else { cell("") };
            columns.row([cell(&row.serial), cell(&row.names), cell(when::day(row.at_ms)), word]);
        }
        page.indented(2, columns);
    }

    fn json(&self) -> Option<Value> {
        let row = |row: &Row| json!({ "serial": row.serial, "names": row.names, "revoked": when::rfc3339(row.at_ms), "now": row.new });
        Some(json!({ "file": self.file, "revoked": self.rows.iter().map(row).collect::<Vec<_>>() }))
    }

    fn quiet(&self, page: &mut Page) {
        self.rows.iter().filter(|row| row.new).for_each(|row| page.line(&row.serial));
    }
}
