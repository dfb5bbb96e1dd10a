//! Warnings of `--check-config`: values that are well formed but cannot work on this host now. Some such values keep
//! the controller from starting; others have an effect only when a hook runs.

use std::path::Path;

use perilog_host::accounts;

use super::{Config, Hook, Read};

/// Directories that systemd creates when a unit of perilog starts (`StateDirectory=`, `RuntimeDirectory=`), so that
/// their absence needs no warning.
const MADE_BY_UNITS: [&str; 2] = ["/var/lib/perilog", "/run/perilog"];

/// Returns warnings for the operator, one problem each.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    match config.server_tls() {
        Ok(Some(_)) => {}
        Err(error) => warnings.push(format!("tls: {error}")),
        Ok(None) => {
            warnings.push("tls.enabled is false: anyone who reaches the port can impersonate a node".to_owned())
        }
    }
    if config.enroll.listen.is_some() && !config.tls.enabled {
        warnings.push("enroll.listen has no effect while tls.enabled is false".to_owned());
    }
    if config.enroll.munge && config.enroll.listen.is_none() {
        warnings.push("enroll.munge has no effect while enroll.listen is not set".to_owned());
    }
    match config.metrics.listen.filter(|_| config.metrics.page) {
        None if config.metrics.page => {
            warnings.push("metrics.page has no effect while metrics.listen is not set".to_owned())
        }
        Some(address) if !address.ip().is_loopback() => warnings.push(format!(
            "metrics.page: other hosts can reach {address}, and anyone who does can read the names of jobs, nodes and \
             scripts"
        )),
        Some(_) if config.api.read == Read::Group => warnings.push(
            "metrics.page: every user of this host can read the page, also those whom api.read = \"group\" refuses"
                .to_owned(),
        ),
        _ => {}
    }
    let unmunge = &config.enroll.unmunge_program;
    if config.enroll.munge && !unmunge.is_file() {
        warnings.push(format!("enroll.munge: there is no program {}; no node is enrolled by munge", unmunge.display()));
    }
    if let Some(Err(error)) = config.edge.group.as_deref().map(accounts::group_id) {
        warnings.push(format!("edge.group: {error}"));
    }
    if config.edge.drains && config.drain.command.is_some() {
        warnings.push(
            "edge.drains and drain.command are both set: the edge and the program both drain each host, and the first \
             that succeeds confirms the drain"
                .to_owned(),
        );
    }
    if let Some(Err(error)) = config.api.group.as_deref().map(accounts::group_id) {
        warnings.push(format!("api.group: {error}"));
    }
    for (key, path) in [("store", &config.store), ("api.socket", &config.api.socket)] {
        let is_missing =
            |directory: &&Path| !directory.is_dir() && !MADE_BY_UNITS.iter().any(|made| *directory == Path::new(made));
        if let Some(directory) = path.parent().filter(is_missing) {
            warnings.push(format!("{key}: there is no directory {}", directory.display()));
        }
    }
    warnings.extend([("release", &config.release), ("drain", &config.drain)].into_iter().filter_map(of_hook));
    warnings
}

fn of_hook((table, hook): (&str, &Hook)) -> Option<String> {
    let program = hook.command.as_ref()?.words().first()?;
    let is_there = Path::new(program).is_file();
    (!is_there)
        .then(|| format!("{table}.command: there is no program {program}; the controller retries until there is"))
}
