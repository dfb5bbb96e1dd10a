//! `perilog ca list`: certificates that an authority has issued, and how long they last.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use perilog_host::authority::canonical;
use perilog_host::clock;
use serde_json::{Value, json};

use super::files::{self, CRL};
use super::issued::{self, Issued};
use super::read;
use crate::columns::{Cell, Columns, cell, styled};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, Page, Render};
use crate::{style, text, when};

/// Lists the certificates that the authority has issued: names, role, expiry, days left, serial number.
///
/// Shows the newest certificate of each name, the first to expire first; --all adds replaced and revoked ones. The
/// authority by which the controller enrols nodes is in /var/lib/perilog/enroll. With --quiet: the names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the authority is (ca init).
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Also show replaced and revoked certificates.
    #[arg(long)]
    all: bool,
    /// Only certificates that expire within this number of days.
    #[arg(long, value_name = "DAYS")]
    within: Option<u32>,
}

pub(super) const DAY_MS: u64 = 86_400_000;
/// Number of days before a certificate's end from which on the list colours the certificate.
const SOON_DAYS: u64 = 30;

pub(crate) fn run(args: &Args, mut out: Out) -> Result<Exit, Fault> {
    let now_ms = clock::wall_ms();
    let mut rows = issued_rows(&args.dir)?;
    rows.retain(|row| (args.all || row.is_current()) && row.ends_within(args.within, now_ms));
    rows.sort_by_key(|row| row.issued.not_after_ms);
    out.show(&List(rows))?;
    Ok(Exit::Ok)
}

/// An issued certificate, and whether it is still in use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) issued: Issued,
    revoked: bool,
    /// Whether the authority has issued a newer certificate of this role for these names.
    replaced: bool,
}

impl Row {
    /// Returns `true` if the certificate is not revoked, and no newer one for its names has replaced it.
    pub(super) const fn is_current(&self) -> bool {
        !self.revoked && !self.replaced
    }

    pub(super) fn ends_within(&self, days: Option<u32>, now_ms: u64) -> bool {
        days.is_none_or(|days| self.issued.not_after_ms < now_ms.saturating_add(u64::from(days) * DAY_MS))
    }
}

/// Returns all certificates that the authority in `dir` has issued, in the order of issue. Marks the revoked and the
/// replaced ones.
pub(super) fn issued_rows(dir: &Path) -> Result<Vec<Row>, Fault> {
    let path = dir.join(CRL);
    let revoked: HashSet<String> = match files::is_missing(&path) {
        true => HashSet::new(),
        false => {
            read::revocations(&path, &files::read_list(&path)?)?.1.into_iter().map(|revoked| revoked.serial).collect()
        }
    };
    let issued = issued::list(dir)?;
    if issued.is_empty() && !files::is_missing(&dir.join(files::CA_CERT)) {
        return Ok(Vec::new());
    }
    // Fails for an unreadable or mistyped directory, which must not look like an authority without certificates.
    files::read(&dir.join(files::CA_CERT))?;
    Ok(judge(issued, &revoked))
}

fn judge(issued: Vec<Issued>, revoked: &HashSet<String>) -> Vec<Row> {
    let key = |issued: &Issued| {
        let mut names: Vec<String> = issued.names.iter().map(|name| canonical(name)).collect();
        names.sort();
        (issued.role.clone(), names)
    };
    let newest: HashMap<_, usize> = issued.iter().enumerate().map(|(at, issued)| (key(issued), at)).collect();
    let rows = issued.into_iter().enumerate().map(|(at, issued)| Row {
        revoked: revoked.contains(&issued.serial),
        replaced: newest.get(&key(&issued)) != Some(&at),
        issued,
    });
    rows.collect()
}

struct List(Vec<Row>);

impl Render for List {
    fn table(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no such certificate");
            return;
        }
        let mut columns = Columns::new(["NAME", "ROLE", "ENDS", "DAYS", "HOW", "SERIAL"]).right(3);
        for row in &self.0 {
            let issued = &row.issued;
            let how = if issued.enrolled_ms.is_some() { "enrolled" } else { "manual" };
            let how = match (row.revoked, row.replaced) {
                (true, _) => styled("revoked", style::BAD),
                (false, true) => styled(format!("{how}, replaced"), style::QUIET),
                (false, false) => cell(how),
            };
            columns.row([
                cell(text::line(&issued.names.join(","))),
                cell(text::line(&issued.role)),
                cell(when::day(issued.not_after_ms)),
                days_left(issued.not_after_ms, page.now_ms),
                how,
                cell(text::line(&issued.serial)),
            ]);
        }
        page.columns(columns);
    }

    fn json(&self) -> Option<Value> {
        let now_ms = clock::wall_ms();
        let row = |row: &Row| {
            let issued = &row.issued;
            json!({
                "names": issued.names, "role": issued.role, "serial": issued.serial,
                "not_after": when::rfc3339(issued.not_after_ms),
                "days_left": issued.not_after_ms.saturating_sub(now_ms) / DAY_MS,
                "enrolled": issued.enrolled_ms.is_some(), "revoked": row.revoked, "replaced": row.replaced,
            })
        };
        Some(json!({ "certificates": self.0.iter().map(row).collect::<Vec<_>>() }))
    }

    fn quiet(&self, page: &mut Page) {
        self.0.iter().for_each(|row| page.line(text::line(&row.issued.names.join(","))));
    }
}

/// Returns a cell with the number of whole days until `until_ms`, coloured if there are few; `ENDED` past that time.
pub(in crate::verb) fn days_left(until_ms: u64, now_ms: u64) -> Cell {
    match until_ms.checked_sub(now_ms) {
        None => styled("ENDED", style::BAD),
        Some(left) if left < SOON_DAYS * DAY_MS => styled((left / DAY_MS).to_string(), style::CARE),
        Some(left) => cell((left / DAY_MS).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::tests::render;

    fn issued(serial: &str, role: &str, names: &[&str], days: u64, enrolled: bool) -> Issued {
        Issued {
            serial: serial.to_owned(),
            role: role.to_owned(),
            names: names.iter().map(ToString::to_string).collect(),
            not_after_ms: days * DAY_MS,
            enrolled_ms: enrolled.then_some(1),
        }
    }

    #[test]
    fn the_newest_unrevoked_certificate_of_a_name_is_current() {
        let list = vec![
            issued("01", "node", &["n0"], 5, false),
            issued("02", "controller", &["ctl", "ctl.site"], 900, false),
            issued("03", "node", &["N0."], 40, true),
            issued("04", "node", &["n1"], 40, false),
            // The same name in another role is another certificate.
            issued("05", "node", &["ctl"], 40, false),
            issued("06", "controller", &["ctl.site", "ctl"], 901, false),
        ];
        let rows = judge(list, &["04".to_owned()].into());
        let seen: Vec<_> = rows.iter().map(|row| (row.issued.serial.as_str(), row.revoked, row.replaced)).collect();
        let expect = [
            ("01", false, true),
            ("02", false, true),
            ("03", false, false),
            ("04", true, false),
            ("05", false, false),
            ("06", false, false),
        ];
        assert_eq!(seen, expect);
        let current: Vec<_> =
            rows.iter().filter(|row| row.is_current()).map(|row| row.issued.serial.as_str()).collect();
        assert_eq!(current, ["03", "05", "06"]);
        let soon = rows.iter().filter(|row| row.ends_within(Some(30), 10 * DAY_MS)).count();
        assert_eq!((soon, rows.iter().filter(|row| row.ends_within(None, 0)).count()), (1, 6));
    }

    #[test]
    fn the_table_says_how_long_each_lasts() {
        let list = vec![issued("01", "node", &["n0"], 5, false), issued("02", "node", &["n0"], 40, true)];
        let [table, _, quiet] = render(&List(judge(list, &HashSet::new())), 10 * DAY_MS);
        assert_eq!(
            table,
            "NAME  ROLE  ENDS         DAYS  HOW               SERIAL\nn0    node  1970-01-06  ENDED  manual, replaced  \
             01\nn0    node  1970-02-10     30  enrolled          02\n"
        );
        assert_eq!(quiet, "n0\nn0\n");
    }
}
