//! Finds out the state of the controller's host before `init`.

use std::collections::BTreeMap;
use std::path::Path;

use perilog_core::controller::view::NodeView;
use perilog_host::clock;
use perilog_host::munge::UNMUNGE;
use perilog_host::tls::{ServerTls, TlsFiles};
use serde::Deserialize;
use serde_json::json;

use super::{Config, Files, There, Wanted};
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::verb::ca::files::{self, CA_CERT, CA_KEY};
use crate::verb::ca::is_cut;
use crate::verb::ca::read::certificates;
use crate::verb::init::act::{CONTROLLER, SOCKET};
use crate::verb::init::dropin::Dropin;
use crate::verb::init::record::Record;
use crate::verb::init::settings::{self, OfController};
use crate::verb::init::{Role, units};

pub(super) fn inspect(
    wanted: &Wanted,
    record: Option<&Record>,
    endpoint: &Endpoint,
) -> Result<(OfController, There), Fault> {
    let program = Role::Controller.program();
    let there = Dropin::inspect(&Role::Controller.dropin(), record);
    let mut dropin = there.text().map(OfController::of).unwrap_or_default();
    if wanted.cluster.is_some() && dropin.cluster.is_none() {
        dropin.cluster.clone_from(&wanted.cluster);
    }
    if let Some(nodes) = wanted.nodes.as_ref().filter(|_| wanted.munge) {
        dropin.enrol_by_munge(nodes);
    }
    let installed = program.exists();
    let config = if installed {
        settings::would_be(Role::Controller, &dropin.text())?.map(|table| Config::of(&table))
    } else {
        Err("it is not read".to_owned())
    };
    let certificate = match &config {
        Ok(Config { tls: Some(tls), .. }) => certificate(tls),
        _ => Files::None,
    };
    let found = There {
        systemd: units::systemd_runs(),
        installed,
        unmunge: Path::new(UNMUNGE).is_file(),
        dropin: there,
        config,
        authority: authority(&wanted.ca),
        certificate,
        service: units::state(CONTROLLER)?,
        socket: units::state(SOCKET)?,
        known: known(endpoint),
    };
    Ok((dropin, found))
}

/// Returns [`Files::None`] if no file of `paths` exists, and [`Files::Part`] if only some exist. Returns `None` if all
/// exist, so that the caller can read them.
fn presence<const N: usize>(paths: [&Path; N]) -> Option<Files> {
    let there: Vec<&Path> = paths.into_iter().filter(|path| path.symlink_metadata().is_ok()).collect();
    match there.as_slice() {
        [] => Some(Files::None),
        [first, ..] if there.len() < N => Some(Files::Part(first.to_path_buf())),
        _ => None,
    }
}

pub(super) fn certificate(tls: &TlsFiles) -> Files {
    if let Some(files) = presence([&tls.ca, &tls.cert, &tls.key]) {
        return files;
    }
    let read = || -> Result<Files, String> {
        ServerTls::load(tls).map_err(|error| error.to_string())?;
        let pem = files::read(&tls.cert).map_err(|fault| fault.to_string())?;
        let read = certificates(&tls.cert, &pem).map_err(|fault| fault.to_string())?;
        let first =
            read.into_iter().next().ok_or_else(|| format!("{} has no certificate in it", tls.cert.display()))?;
        if first.role == "node" {
            let other = "set [tls] in controller.d/site.toml to another directory, such as /etc/perilog/controller-tls";
            return Err(format!("{} is the certificate of a node; {other}", tls.cert.display()));
        }
        if first.not_after_ms <= clock::wall_ms() {
            return Err(format!("{} has expired; issue a new one (perilog ca issue)", tls.cert.display()));
        }
        Ok(Files::Good { names: first.names, until_ms: first.not_after_ms })
    };
    read().unwrap_or_else(Files::Bad)
}

pub(super) fn authority(dir: &Path) -> Files {
    let (cert, key) = (dir.join(CA_CERT), dir.join(CA_KEY));
    if is_cut(dir) {
        return Files::None;
    }
    if let Some(files) = presence([&cert, &key]) {
        return files;
    }
    match files::read(&cert).and_then(|pem| certificates(&cert, &pem)) {
        Ok(read) if read.iter().any(|read| read.role == "authority") => Files::Good { names: Vec::new(), until_ms: 0 },
        Ok(_) => Files::Bad(format!("{} is not the certificate of an authority", cert.display())),
        Err(fault) => Files::Bad(fault.to_string()),
    }
}

/// Returns the nodes that need no token, with the reason, if the controller runs; otherwise none.
fn known(endpoint: &Endpoint) -> BTreeMap<String, &'static str> {
    #[derive(Deserialize)]
    struct Tokens {
        tokens: Vec<Token>,
    }
    #[derive(Deserialize)]
    struct Token {
        host: String,
        until_ms: u64,
        used_ms: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Nodes {
        nodes: Vec<NodeView>,
    }
    let mut known = BTreeMap::new();
    // A controller that does not run, or does not enrol yet, knows none.
    if let Ok(answer) = endpoint.ask::<Tokens>("Tokens", &json!({})) {
        for token in answer.body.tokens {
            if token.used_ms.is_some() {
                known.insert(token.host, "enrolled with a token (for another token: perilog token create)");
            } else if token.until_ms > clock::wall_ms() {
                known
                    .entry(token.host)
                    .or_insert("has a token, which is not shown again (for another token: perilog token create)");
            }
        }
    }
    if let Ok(answer) = endpoint.ask_all::<Nodes>("Nodes", &json!({ "nodes": null }), &["/nodes"]) {
        let online = answer.body.nodes.into_iter().filter(|node| node.state == "online");
        known.extend(online.map(|node| (node.host.to_string(), "online")));
    }
    known
}
