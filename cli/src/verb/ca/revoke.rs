//! `perilog ca revoke`: revokes certificates. DIR/crl.pem (RFC 5280, section 5) is the only record of revocations.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use perilog_core::HostName;
use perilog_host::authority::canonical;
use perilog_host::clock;
use perilog_host::tls::MAX_FILE;
use serde_json::{Value, json};

use super::authority::{Revoked, Signer};
use super::files::{self, CA_CERT, CRL, Who};
use super::issued::{self, Issued};
use super::read::{self, Read, certificates};
use crate::columns::{Columns, cell, styled};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat, Page, Render, aside};
use crate::{style, text, when};

/// Time for which a revoked certificate stays on the list after its expiry. By then the operator has brought the list
/// to the controllers, and sessions with the certificate have ended (RFC 5280, section 3.3).
const KEPT_MS: u64 = 30 * 86_400_000;

/// Revokes certificates: adds them to the authority's revocation list, DIR/crl.pem.
///
/// Copy the list to each host that is to check it, and name it as `crl` of [tls]: in controller.toml for the
/// certificates of nodes, in agent.toml for those of controllers. Then reload the controller, which ends the sessions
/// of revoked certificates; agents read the list when they next connect. The list of the authority that enrols nodes
/// needs only the reload. Without HOST the list is written again and shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The authority's directory, as made by `perilog ca init`.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// A host (all its certificates, except enrolled ones that have expired), a serial number (0x... or with colons),
    /// or a certificate's file (with a slash).
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
    // Without the lock, one of two concurrent revocations would be lost.
    let _lock = files::lock(&args.dir)?;
    let path = args.dir.join(CRL);
    let begins = files::is_missing(&path);
    let (number, list) = if begins { (0, Vec::new()) } else { read::revocations(&path, &files::read_list(&path)?)? };
    let now_ms = clock::wall_ms();
    let known = Issuances::of(&args.dir, &args.what, now_ms)?;
    let mut list: Vec<Revoked> = list.into_iter().filter(|revoked| !known.is_over(revoked)).collect();
    let mut revoked: HashSet<String> = list.iter().map(|revoked| revoked.serial.clone()).collect();
    let mut added = Vec::new();
    for what in &args.what {
        for serial in known.serials(&args.dir, what)? {
            if revoked.insert(serial.clone()) {
                list.push(Revoked { serial: serial.clone(), at_ms: now_ms });
                added.push(serial);
            }
        }
    }
    let text = signer.revocations(number + 1, &list, now_ms)?;
    fits(&path, text.len() as u64)?;
    files::write(&path, Who::Everybody, &text)?;
    let rows = list.iter().map(|revoked| Row {
        names: known.names(&revoked.serial),
        serial: revoked.serial.clone(),
        at_ms: revoked.at_ms,
        new: added.contains(&revoked.serial),
    });
    out.show(&List { file: path.display().to_string(), rows: rows.collect() })?;
    if begins {
        aside(format_args!(
            "{} did not exist, so this is a new list; if an older list exists elsewhere, restore it and revoke again, \
             or the hosts on it are accepted again",
            path.display()
        ));
    }
    for (host, others) in known.left(args, &revoked) {
        aside(format_args!(
            "{host} has {}; perilog ca revoke --dir {} {host} revokes all",
            text::count(others as u64, "other valid certificate"),
            args.dir.display()
        ));
    }
    if out.format == OutputFormat::Table && !added.is_empty() {
        aside(format_args!("{}", next(&path, signer.enrols() || known.enrols())));
    }
    Ok(Exit::Ok)
}

/// Fails if `bytes`, the size of the new revocation list, is more than a controller reads. A running controller would
/// keep its old list, and a stopped one would not start again.
fn fits(path: &Path, bytes: u64) -> Result<(), Fault> {
    if bytes <= MAX_FILE {
        return Ok(());
    }
    Err(Fault::Usage(format!(
        "{} would have {bytes} bytes, and no controller reads more than {MAX_FILE}: nothing was revoked. Expired \
         certificates leave the list 30 days later; a new authority begins an empty list \
         (/usr/share/doc/perilog/security.md, \"A new authority\")",
        path.display()
    )))
}

/// Returns what the operator does next to put the new revocation list at `path` into effect. `enrols`: whether the list
/// is that of the authority by which the controller enrols nodes.
fn next(path: &Path, enrols: bool) -> String {
    let reload = "systemctl reload perilog-controller";
    let path = path.display();
    if enrols {
        return format!(
            "the controller no longer renews the revoked certificates; to end their sessions: {reload}. journalctl -u \
             perilog-controller then shows `refused ...: its certificate was revoked` for each. If it shows `the \
             configuration that was read before stays in force`, the reload failed for the reason in the line before, \
             and the sessions continue (perilog doctor controller)"
        );
    }
    format!("copy {path} to the controller's host ([tls] crl in controller.toml), and reload the controller: {reload}")
}

/// The certificates that the authority has issued, found by serial number, and which of them are the newest of a host.
struct Issuances {
    /// All records of issued.jsonl, in the order of issue.
    issued: Vec<Issued>,
    /// Position in `issued` of each serial number.
    at: HashMap<String, usize>,
    /// Serial numbers of the certificates that are the newest of a host.
    newest: HashSet<String>,
    now_ms: u64,
}

impl Issuances {
    /// Reads the authority's list of issued certificates. If the list is unreadable, fails only if `what` names a host;
    /// otherwise warns and goes on without the list, which revoking a file or a serial number does not need.
    fn of(dir: &Path, what: &[What], now_ms: u64) -> Result<Self, Fault> {
        let issued = match issued::list(dir) {
            Err(fault) if !what.iter().any(|what| matches!(what, What::Host(_))) => {
                aside(format_args!("{fault}; the hosts of the revoked certificates are not known"));
                Vec::new()
            }
            list => list?,
        };
        let at = issued.iter().enumerate().map(|(at, issued)| (issued.serial.clone(), at)).collect();
        let names = |issued: &Issued| issued.names.iter().map(|name| canonical(name)).collect::<Vec<_>>();
        let newest: HashMap<String, String> = issued
            .iter()
            .flat_map(|issued| names(issued).into_iter().map(|name| (name, issued.serial.clone())))
            .collect();
        Ok(Self { at, newest: newest.into_values().collect(), issued, now_ms })
    }

    fn get(&self, serial: &str) -> Option<&Issued> {
        self.issued.get(*self.at.get(serial)?)
    }

    fn names(&self, serial: &str) -> String {
        self.get(serial).map(|issued| issued.names.join(", ")).unwrap_or_default()
    }

    /// Returns `true` if the entry may leave the revocation list: the certificate's expiry and revocation are long ago,
    /// and its host has a newer certificate. The entry of a host's newest certificate stays, as the evidence that the
    /// host was revoked.
    fn is_over(&self, revoked: &Revoked) -> bool {
        let long_ago = |at_ms: u64| at_ms.saturating_add(KEPT_MS) < self.now_ms;
        let has_run_out = self.get(&revoked.serial).is_some_and(|issued| long_ago(issued.not_after_ms));
        has_run_out && long_ago(revoked.at_ms) && !self.newest.contains(&revoked.serial)
    }

    /// Returns `true` if a node has enrolled with this authority. The controller then reads the revocation list where
    /// this command writes it.
    fn enrols(&self) -> bool {
        self.issued.iter().any(|issued| issued.enrolled_ms.is_some())
    }

    /// Returns the hosts of which the operator revoked single certificates (by file or serial number) and which still
    /// have valid ones, each with the number of its valid certificates.
    fn left(&self, args: &Args, revoked: &HashSet<String>) -> Vec<(String, usize)> {
        let one = args.what.iter().filter(|what| !matches!(what, What::Host(_)));
        let serials = one.flat_map(|what| self.serials(&args.dir, what).unwrap_or_default());
        let mut hosts: Vec<String> = serials
            .filter_map(|serial| self.get(&serial))
            .flat_map(|issued| issued.names.iter().map(|name| canonical(name)))
            .collect();
        hosts.sort();
        hosts.dedup();
        let is_good = |issued: &&Issued| issued.not_after_ms > self.now_ms && !revoked.contains(&issued.serial);
        let others = |host: &str| self.issued.iter().filter(|issued| issued.is_of(host)).filter(is_good).count();
        let counted = hosts.into_iter().map(|host| (others(&host), host));
        counted.filter(|(others, _)| *others > 0).map(|(others, host)| (host, others)).collect()
    }

    /// Returns the serial numbers, at least one, of the certificates that `what` names. Fails if it names none.
    fn serials(&self, dir: &Path, what: &What) -> Result<Vec<String>, Fault> {
        match what {
            What::Serial(serial) => Ok(vec![serial.clone()]),
            What::File(file) => Ok(vec![of_file(dir, file)?.serial]),
            What::Host(host) => {
                let its = issued::of_host(&self.issued, &canonical(host.as_str()), self.now_ms);
                let serials: Vec<String> = its.iter().map(|issued| issued.serial.clone()).collect();
                if serials.is_empty() {
                    let dir = dir.display();
                    return Err(Fault::Usage(format!(
                        "the authority in {dir} has no record of a certificate for {host}; name the certificate's \
                         file, or its serial number (perilog ca show)"
                    )));
                }
                Ok(serials)
            }
        }
    }
}

/// Returns the first certificate in a file. Fails if the authority in `dir` has not issued it.
fn of_file(dir: &Path, file: &Path) -> Result<Read, Fault> {
    let authority = certificates(&dir.join(CA_CERT), &files::read(&dir.join(CA_CERT))?)?;
    let Some(first) = certificates(file, &files::read(file)?)?.into_iter().next() else {
        return Err(Fault::Usage(format!("{} has no certificate in it", file.display())));
    };
    if !authority.first().is_some_and(|authority| first.is_of(authority)) {
        let (file, dir) = (file.display(), dir.display());
        return Err(Fault::Usage(format!(
            "{file} was not issued by the authority in {dir} (issuer: {})",
            first.issuer
        )));
    }
    Ok(first)
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

impl Render for List {
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
        let row = |row: &Row| {
            json!({ "serial": row.serial, "names": row.names, "revoked": when::rfc3339(row.at_ms),
                                     "now": row.new })
        };
        Some(json!({ "file": self.file, "revoked": self.rows.iter().map(row).collect::<Vec<_>>() }))
    }

    fn quiet(&self, page: &mut Page) {
        self.rows.iter().filter(|row| row.new).for_each(|row| page.line(&row.serial));
    }
}
