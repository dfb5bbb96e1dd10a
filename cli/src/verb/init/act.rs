//! Carries out the steps of a plan. A step enters each file in the record before it makes the file.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use perilog_core::{HostList, Span};
use perilog_host::authority::ISSUED;
use perilog_host::clock;
use serde::Deserialize;
use serde_json::json;

use super::record::Record;
use super::step::Step;
use super::{enrol, units, wait_until};
use crate::endpoint::{Answer, Daemon, Endpoint};
use crate::fault::Fault;
use crate::verb::ca;
use crate::verb::ca::files::{self, CA_CERT, CA_KEY, CERT, CRL, KEY, digest};

pub(super) const AGENT: &str = "perilog-agent.service";
pub(super) const CONTROLLER: &str = "perilog-controller.service";
pub(super) const SOCKET: &str = "perilog-controller.socket";

/// A run of `init` or of `init undo` in progress: what its steps need, and what they have made so far.
pub(super) struct Acting {
    pub(super) record: Record,
    pub(super) wait: Span,
    /// Socket of the daemon that `init` sets up: the controller, or on a node the agent.
    pub(super) endpoint: Endpoint,
    /// Life of new one-time tokens; `None`: the controller's default.
    pub(super) lasts: Option<Span>,
    /// Tokens that the controller has made: host and secret.
    pub(super) tokens: Vec<(String, String)>,
}

impl Acting {
    pub(super) fn carry_out(&mut self, step: &Step) -> Result<(), Fault> {
        match step {
            Step::Authority { dir } => self.authority(dir),
            Step::Issue { ca, names, to } => self.issue(ca, names, to),
            Step::Write { path, who, text } => {
                self.record.will_write(path, Some(text))?;
                make_directory(path.parent().unwrap_or(Path::new("/")))?;
                files::write(path, *who, text)
            }
            Step::Enrol(enrolling) => {
                for name in [KEY, CERT] {
                    self.record.will_write(&enrolling.dir.join(name), None)?;
                }
                enrol::enrol(enrolling)
            }
            Step::Start { units, anew } => self.start(units, *anew),
            Step::Tokens { hosts } => self.make_tokens(hosts),
            Step::Online => self.online(),
            Step::Stop { units } => {
                let units: Vec<&str> = units.iter().map(String::as_str).collect();
                units::systemctl(&[&["disable", "--now"], &units[..]].concat())
            }
            Step::Remove { path } => gone_is_fine(fs::remove_file(path)).map_err(failed("cannot remove", path)),
            Step::RemoveDirectory { path } => match fs::remove_dir(path) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
                removed => gone_is_fine(removed).map_err(failed("cannot remove", path)),
            },
            Step::Reload { running } => {
                units::systemctl(&["daemon-reload"])?;
                if running.is_empty() { Ok(()) } else { units::systemctl(&[&["try-restart"], &running[..]].concat()) }
            }
        }
    }

    fn authority(&mut self, dir: &Path) -> Result<(), Fault> {
        self.record.authorities.insert(dir.to_owned());
        self.record.will_make_directory(dir)?;
        for name in [CA_CERT, CA_KEY, CRL, ISSUED] {
            self.record.will_write(&dir.join(name), None)?;
        }
        ca::make(dir)
    }

    fn issue(&mut self, ca: &Path, names: &[ca::Name], to: &Path) -> Result<(), Fault> {
        for name in [CA_CERT, CERT, KEY] {
            self.record.will_write(&to.join(name), None)?;
        }
        ca::controller(ca, names, to)?;
        // Records the content: no daemon renews these files, so another content later means that an administrator
        // replaced them.
        for name in [CA_CERT, CERT, KEY] {
            let path = to.join(name);
            let text = fs::read(&path).map_err(failed("cannot read", &path))?;
            self.record.files.insert(path, Some(digest(&text)));
        }
        self.record.save()
    }

    fn start(&mut self, units: &[&str], anew: bool) -> Result<(), Fault> {
        units::systemctl(&["daemon-reload"])?;
        for unit in units {
            let is_enabled = units::state(unit)?.is_some_and(|state| state.enabled);
            if !is_enabled && !self.record.enabled.iter().any(|known| known == unit) {
                self.record.enabled.push((*unit).to_owned());
            }
        }
        self.record.save()?;
        units::systemctl(&[&["enable"], units].concat())?;
        for unit in units {
            // A socket unit is not restarted: agents that dial meanwhile wait in its queue.
            let verb = if anew && unit.ends_with(".service") { "restart" } else { "start" };
            units::systemctl(&[verb, unit])?;
        }
        let until_ms = self.until_ms();
        if wait_until(until_ms, || self.endpoint.version().is_ok()) {
            return Ok(());
        }
        let unit = self.endpoint.daemon.unit();
        Err(Fault::Late(format!(
            "the {} does not answer at {}; see systemctl status {unit}",
            self.endpoint.daemon.as_str(),
            self.endpoint.path.display()
        )))
    }

    fn make_tokens(&mut self, hosts: &HostList) -> Result<(), Fault> {
        #[derive(Deserialize)]
        struct Made {
            tokens: Vec<New>,
        }
        #[derive(Deserialize)]
        struct New {
            host: String,
            token: String,
        }
        let mut parameters = json!({ "nodes": hosts });
        if let Some(lasts) = self.lasts {
            parameters["lasts"] = lasts.to_exact().into();
        }
        let made: Answer<Made> = self.endpoint.ask("TokenMake", &parameters)?;
        self.tokens = made.body.tokens.into_iter().map(|new| (new.host, new.token)).collect();
        Ok(())
    }

    fn online(&self) -> Result<(), Fault> {
        if wait_until(self.until_ms(), || is_online(&self.endpoint)) {
            return Ok(());
        }
        let output = [Some(units::status_text(AGENT)), units::last_warning(AGENT)];
        let output: Vec<String> = output.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        Err(Fault::Late(format!(
            "the agent runs, but the controller has not accepted it within {}: {}; the agent keeps trying, and perilog \
             doctor node shows what is wrong",
            self.wait.to_exact(),
            crate::text::line(&output.join("; "))
        )))
    }

    fn until_ms(&self) -> u64 {
        clock::mono_ms().saturating_add(self.wait.as_millis().unwrap_or(u64::MAX))
    }
}

/// Returns `true` if the agent says that its controller has welcomed this node.
pub(super) fn is_online(endpoint: &Endpoint) -> bool {
    #[derive(Deserialize)]
    struct Status {
        session: String,
    }
    debug_assert!(endpoint.daemon == Daemon::Agent, "only the agent has a session");
    let status: Result<Answer<Status>, _> = endpoint.ask("Status", &json!({}));
    status.is_ok_and(|status| status.body.session == "connected")
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Fault {
    let path = path.to_owned();
    move |source| Fault::File { what, path, source }
}

/// Makes a directory and its missing parents, which everybody can enter whatever the umask is: the daemons that read
/// them have other users.
fn make_directory(dir: &Path) -> Result<(), Fault> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        let everybody = Permissions::from_mode(0o755);
        fs::create_dir(dir).and_then(|()| fs::set_permissions(dir, everybody)).map_err(failed("cannot make", dir))?;
    }
    Ok(())
}

fn gone_is_fine(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
