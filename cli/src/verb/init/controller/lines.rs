//! The commands that the operator types on the nodes after `init controller`.

use std::collections::BTreeSet;
use std::path::Path;

use perilog_host::tls::{Pin, TlsFiles};
use serde_json::{Value, json};

use super::{Config, ENROLS, Wanted};
use crate::fault::Fault;
use crate::out::{Page, Render};
use crate::verb::ca::Name;
use crate::verb::ca::files::{self, CA_KEY};
use crate::verb::ca::read::{Read, certificates};
use crate::{style, text};

/// Returns the pin of the authority that issued the controller's certificate.
pub(super) fn pin(tls: &TlsFiles) -> Result<Pin, Fault> {
    let of = |path: &Path| files::read(path).and_then(|pem| certificates(path, &pem));
    let chain = of(&tls.cert)?;
    let is_issuer = |authority: &&Read| chain.last().is_some_and(|last| last.was_issued_by(authority));
    let authorities = of(&tls.ca)?;
    let issuer = authorities.iter().find(is_issuer);
    let fault = || {
        Fault::Other(format!(
            "{} does not contain the authority that issued {}, which nodes need: append it",
            tls.ca.display(),
            tls.cert.display()
        ))
    };
    issuer.and_then(|issuer| issuer.fingerprint.parse().ok()).ok_or_else(fault)
}

/// The commands that the operator types on the nodes.
pub(super) struct Lines {
    cluster: String,
    /// Each command, with the node on which the operator types it; `None`: the command names no node.
    lines: Vec<(Option<String>, String)>,
    notes: Vec<String>,
    /// Whether one command is for all nodes: with munge, which needs no token for each node.
    same: bool,
}

pub(super) fn lines(
    host: &str,
    wanted: &Wanted,
    config: &Config,
    tokens: Vec<(String, String)>,
    made_authority: bool,
) -> Result<Lines, Fault> {
    let Some(tls) = &config.tls else { return Err(Fault::Usage("TLS is switched off".to_owned())) };
    let name = wanted.names.first().map_or_else(|| host.to_owned(), Name::text);
    let name = if name.contains(':') { format!("[{name}]") } else { name };
    let mut line = format!("perilog init node --controller {name} --pin {}", pin(tls)?);
    if let Some(port) = config.enrols.filter(|port| *port != ENROLS) {
        line.push_str(&format!(" --enroll {name}:{port}"));
    }
    let mut notes = Vec::new();
    let lines = if wanted.munge {
        let hosts: BTreeSet<String> = wanted.nodes.iter().flat_map(|nodes| nodes.iter().map(str::to_owned)).collect();
        hosts.into_iter().map(|host| (Some(host), format!("{line} --munge"))).collect()
    } else if wanted.nodes.is_some() {
        tokens.into_iter().map(|(host, token)| (Some(host), format!("{line} --token {token}"))).collect()
    } else {
        notes.push(
            "a TOKEN is for one node and valid once: perilog init controller --nodes HOSTLIST prints each node's line"
                .to_owned(),
        );
        vec![(None, format!("{line} --token TOKEN"))]
    };
    if made_authority {
        let ca = wanted.ca.display();
        notes.push(format!(
            "keep {ca}/{CA_KEY} where no node and no user can read it, best not on this host \
             (/usr/share/doc/perilog/security.md): it is needed again for the controller's next certificate"
        ));
    }
    Ok(Lines { cluster: config.cluster.clone(), same: wanted.munge, lines, notes })
}

impl Render for Lines {
    fn table(&self, page: &mut Page) {
        page.line(format_args!("the controller of {} runs", text::line(&self.cluster)));
        match self.lines.as_slice() {
            [] => {}
            [(_, line), ..] if self.same => {
                page.line(style::STRONG.style("type on each node:"));
                page.line(format_args!("  {line}"));
            }
            [(None, line)] => {
                page.line(style::STRONG.style("type on a node:"));
                page.line(format_args!("  {line}"));
            }
            lines => {
                page.line(style::STRONG.style("type on the nodes, each its own line:"));
                for (host, line) in lines {
                    page.line(format_args!("  {}# {line}", text::line(host.as_deref().unwrap_or_default())));
                }
            }
        }
        for note in &self.notes {
            page.line(note);
        }
    }

    fn json(&self) -> Option<Value> {
        let lines: Vec<Value> =
            self.lines.iter().map(|(host, command)| json!({"host": host, "command": command})).collect();
        Some(json!({"cluster": self.cluster, "lines": lines, "notes": self.notes}))
    }

    fn quiet(&self, page: &mut Page) {
        for (host, line) in &self.lines {
            page.line(format_args!("{} {line}", text::line(host.as_deref().unwrap_or("NODE"))));
        }
    }
}
