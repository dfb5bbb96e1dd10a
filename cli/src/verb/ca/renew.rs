//! `perilog ca renew`: new certificates for names that have one, issued manually.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use perilog_core::HostName;
use perilog_host::authority::canonical;
use perilog_host::clock;

use super::authority::{Name, Role};
use super::files::{self, CA_CERT, CERT, KEY};
use super::issue::AuthorityDir;
use super::list::{Row, issued_rows};
use super::show::Certificates;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat, aside};
use crate::text;

/// Issues new certificates and keys for names that have a certificate, into OUT/HOST as `ca issue` does.
///
/// Without --all: the certificates of these HOSTs. Copy the files to their hosts; the old certificates are valid until
/// they expire, so that hosts may change one after the other. Enrolled nodes renew their certificates themselves, and
/// are left out; so are revoked certificates.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The authority's directory, as made by `perilog ca init`.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Certificates of all nodes and controllers that were issued manually, also expired ones.
    #[arg(long, conflicts_with = "hosts")]
    all: bool,
    /// A host, by any name in its certificate.
    #[arg(value_name = "HOST", required_unless_present = "all")]
    hosts: Vec<String>,
    /// Only certificates of nodes, or of controllers.
    #[arg(long, value_enum)]
    role: Option<Role>,
    /// Only certificates that expire within this number of days.
    #[arg(long, value_name = "DAYS")]
    within: Option<u32>,
    /// Directory for the files of all hosts, each in OUT/HOST.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = 1825, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Replace files that exist.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, mut out: Out) -> Result<Exit, Fault> {
    let (rows, now_ms) = (issued_rows(&args.dir)?, clock::wall_ms());
    let signing = AuthorityDir::open(&args.dir)?;
    let of_role = |row: &Row| args.role.is_none_or(|role| Role::from_str(&row.issued.role, false) == Ok(role));
    let named =
        |row: &Row| of_role(row) && (args.all || args.hosts.iter().any(|host| row.issued.is_of(&canonical(host))));
    let (enrolled, issued_manually): (Vec<Row>, Vec<Row>) =
        rows.into_iter().filter(|row| row.is_current() && named(row)).partition(|row| row.issued.enrolled_ms.is_some());
    let is_there =
        |host: &String| enrolled.iter().chain(&issued_manually).any(|row| row.issued.is_of(&canonical(host)));
    if let Some(host) = args.hosts.iter().find(|host| !is_there(host)) {
        let dir = args.dir.display();
        return Err(Fault::Usage(format!(
            "the authority in {dir} has no certificate for {host}; perilog ca list --dir {dir} --all lists all, \
             perilog ca issue makes one"
        )));
    }
    let due: Vec<Row> = issued_manually.into_iter().filter(|row| row.ends_within(args.within, now_ms)).collect();
    let jobs = due.iter().map(|row| job(row, &args.out)).collect::<Result<Vec<_>, Fault>>()?;
    let twice = jobs.iter().enumerate().find(|(at, (dir, ..))| jobs[..*at].iter().any(|(other, ..)| other == dir));
    if let Some((_, (dir, ..))) = twice {
        return Err(Fault::Usage(format!(
            "{} would get the files of a node and of a controller; renew them one after the other, with --role node \
             and --role controller, each with an --out of its own",
            dir.display()
        )));
    }
    if !args.force {
        for (dir, ..) in &jobs {
            files::absent(dir, &[CA_CERT, CERT, KEY], "use --force to replace it, or another --out")?;
        }
    }
    let mut issued = Vec::new();
    for (dir, role, names) in &jobs {
        issued.extend(signing.issue(*role, names, args.days, dir)?);
    }
    let some = !issued.is_empty();
    out.show(&Certificates(issued))?;
    if out.format == OutputFormat::Table {
        if some {
            let files = "copy the files of each directory to /etc/perilog/tls on its host; then reload the controller \
                         (systemctl reload perilog-controller), or restart the agent (systemctl restart \
                         perilog-agent) there";
            aside(files);
        } else {
            aside("no certificate needs a renewal");
        }
        if !enrolled.is_empty() {
            aside(format_args!(
                "left out {}, which enrolled nodes renew themselves",
                text::count(enrolled.len() as u64, "certificate")
            ));
        }
    }
    Ok(Exit::Ok)
}

/// Returns the output directory below `out` for the renewal of a certificate, with the certificate's role and names.
fn job(row: &Row, out: &Path) -> Result<(PathBuf, Role, Vec<Name>), Fault> {
    let odd = |what: &str| Fault::Usage(format!("issued.jsonl: certificate {}: {what}", row.issued.serial));
    let role = Role::from_str(&row.issued.role, false).map_err(|_| odd("its role is not known to this perilog"))?;
    let name = |text: &String| match text.parse::<IpAddr>() {
        Ok(address) => Ok(Name::Address(address)),
        Err(_) => HostName::new(text).map(Name::Host).map_err(|_| odd("no host name")),
    };
    let names = row.issued.names.iter().map(name).collect::<Result<Vec<_>, _>>()?;
    let first = names.first().ok_or_else(|| odd("it has no name"))?;
    Ok((out.join(first.text()), role, names))
}
