//! `perilog ca issue`: certificates for nodes, one each, or for a controller under all its names.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use perilog_core::{HostList, HostName};
use perilog_host::clock;

use super::authority::{Name, Role, Signer};
use super::files::{self, CA_CERT, CERT, KEY, Who};
use super::issued;
use super::read::{Read, certificates};
use super::show::Certificates;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::values;

const DAYS: u32 = 1825;

/// Issues what a daemon needs under /etc/perilog/tls: ca.pem, cert.pem and key.pem.
///
/// The files are written to OUT/HOST. Each node gets a certificate of its own. A controller gets one certificate for
/// all the names and addresses by which agents dial it; the first of them is its HOST. Copy the files to their hosts
/// and delete OUT: a key is made only once, and is stored nowhere else. DIR/issued.jsonl records each certificate and
/// its host, so that it can be revoked.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the authority is (ca init).
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[arg(long, value_enum)]
    role: Role,
    /// Host names as in the agents' configuration ("n[0-3]"); for a controller also addresses.
    #[arg(value_name = "HOST", required = true, value_parser = names)]
    hosts: Vec<Names>,
    /// Directory for the files of all hosts, each in OUT/HOST.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Replace files that exist.
    #[arg(long)]
    force: bool,
}

/// The names of one HOST argument, such as `n[0-3]`.
#[derive(Debug, Clone)]
struct Names(Vec<Name>);

pub(crate) fn run(args: &Args, mut out: Out) -> Result<Exit, Fault> {
    let signing = AuthorityDir::open(&args.dir)?;
    let jobs = args.jobs()?;
    if !args.force {
        for (dir, _) in &jobs {
            files::absent(dir, &[CA_CERT, CERT, KEY], "use --force to replace it, or another --out")?;
        }
    }
    let mut issued: Vec<Read> = Vec::new();
    for (dir, names) in &jobs {
        issued.extend(signing.issue(args.role, names, args.days, dir)?);
    }
    out.show(&Certificates(issued))?;
    Ok(Exit::Ok)
}

/// Issues a certificate and key for a controller and writes them to the directory `out`. The certificate lasts the
/// default time.
pub(in crate::verb) fn controller(ca: &Path, names: &[Name], out: &Path) -> Result<(), Fault> {
    AuthorityDir::open(ca)?.issue(Role::Controller, names, DAYS, out).map(drop)
}

/// An authority that can sign, with its directory and its certificate (PEM).
pub(super) struct AuthorityDir<'a> {
    dir: &'a Path,
    ca: String,
    signer: Signer,
}

impl<'a> AuthorityDir<'a> {
    pub(super) fn open(dir: &'a Path) -> Result<Self, Fault> {
        let ca = files::read(&dir.join(CA_CERT))?;
        Ok(Self { dir, ca, signer: Signer::open(dir, clock::wall_ms())? })
    }

    pub(super) fn issue(&self, role: Role, names: &[Name], days: u32, out: &Path) -> Result<Vec<Read>, Fault> {
        let made = self.signer.issue(role, names, days, clock::wall_ms())?;
        let cert = out.join(CERT);
        let read = certificates(&cert, &made.cert)?;
        // Records before the certificate leaves: an operator can revoke a host only by the certificates on the list.
        issued::add(self.dir, &read)?;
        files::directory(out)?;
        files::write(&out.join(CA_CERT), Who::Everybody, &self.ca)?;
        files::write(&out.join(KEY), Who::OwnerOnly, &made.key)?;
        files::write(&cert, Who::Everybody, &made.cert)?;
        Ok(read)
    }
}

impl Args {
    /// Returns, for each certificate to issue, its output directory and its names.
    fn jobs(&self) -> Result<Vec<(PathBuf, Vec<Name>)>, Fault> {
        let mut names: Vec<Name> = Vec::new();
        for name in self.hosts.iter().flat_map(|names| &names.0) {
            if names.contains(name) {
                return Err(Fault::Usage(format!("{} is named twice", name.text())));
            }
            names.push(name.clone());
        }
        if self.role == Role::Controller {
            return Ok(names.first().map(|first| (self.out.join(first.text()), names.clone())).into_iter().collect());
        }
        if let Some(Name::Address(address)) = names.iter().find(|name| matches!(name, Name::Address(_))) {
            return Err(Fault::Usage(format!(
                "{address} is an address, but the certificate of a node needs its host name"
            )));
        }
        Ok(names.into_iter().map(|name| (self.out.join(name.text()), vec![name])).collect())
    }
}

/// Parses one host name or address.
pub(in crate::verb) fn name(text: &str) -> Result<Name, values::Pointed> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Name::Address(address)),
        Err(_) => values::host(text).map(Name::Host),
    }
}

fn names(text: &str) -> Result<Names, values::Pointed> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Names(vec![Name::Address(address)]));
    }
    let hosts: HostList = values::hosts(text)?;
    Ok(Names(hosts.iter().filter_map(|name| HostName::new(name).ok()).map(Name::Host).collect()))
}
