//! What is well formed and yet will not work here, for `--check-config`: the daemon starts all the same, since a file system or a directory
//! service may only be late.

use std::path::Path;

use perilog_host::accounts;
use perilog_host::tls::ClientTls;

use super::Config;
use super::action::Action;

/// Sentences for people, each about one thing.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.tls.enabled
        && !config.controller.is_empty()
        && (!config.enroll.is_on() || Path::new(&config.tls.cert.0).exists())
        && let Err(error) = ClientTls::load(&config.tls.files())
    {
        warnings.push(format!("tls: {error}"));
    }
    if !config.tls.enabled && !config.controller.is_empty() {
        warnings.push(
            "tls.enabled is false: whoever can reach the network can play this node or its controller".to_owned(),
        );
    }
    if config.enroll.is_on() && !config.tls.enabled {
        warnings.push("enroll: with tls.enabled = false nobody is enrolled".to_owned());
    }
    if config.enroll.munge && !config.enroll.is_on() {
        warnings.push("enroll.munge: without enroll.controller nobody is asked".to_owned());
    }
    if let Some(program) = config.enroll.munge().filter(|program| !program.is_file()) {
        warnings
            .push(format!("enroll.munge: there is no program {}; this node cannot enrol by munge", program.display()));
    }
    if config.action.is_empty() {
        warnings.push("no [action.NAME] table: every action will be refused".to_owned());
    }
    for (name, action) in &config.action {
        warnings.extend(of_action(action).into_iter().map(|text| format!("action.{name}: {text}")));
    }
    warnings
}

fn of_action(action: &Action) -> Vec<String> {
    let mut warnings = Vec::new();
    for directory in action.directories.iter().flatten() {
        if !Path::new(&directory.0).is_dir() {
            warnings.push(format!("there is no directory {}; the action will fail", directory.0));
        }
    }
    if let Some(program) = action.command.iter().flatten().next().filter(|program| !Path::new(program).is_file()) {
        warnings.push(format!("there is no program {program}; the action will fail"));
    }
    let users = action.script.values().filter_map(|script| script.user.as_ref());
    for user in std::iter::once(&action.user).chain(users) {
        if let Err(error) = accounts::account(&user.0) {
            warnings.push(format!("{error}; its scripts will fail"));
        }
    }
    warnings
}
