//! `perilog init node`: sets this host up as a node of a controller. It gets the certificates, writes the drop-ins,
//! starts the agent, and waits until the controller has welcomed the agent.

use std::fs;
use std::io::Read as _;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use perilog_core::HostName;
use perilog_host::munge::MUNGE;
use perilog_host::tls::{Pin, TlsFiles};
use toml::Table;

use super::act::{AGENT, Acting, is_online};
use super::dropin::Dropin;
use super::enrol::{self, Enrolling, Proof, Token, files_in};
use super::record::Record;
use super::settings::{self, OfNode, value};
use super::step::{Plan, Step};
use super::{Common, Role, refused, show_and_do, undo, units};
use crate::endpoint::{AgentSocket, Endpoint};
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::{Out, OutputFormat, aside};
use crate::verb::ca::files::{self, Who};
use crate::verb::doctor::config::texts;
use crate::verb::own_name;
use crate::{values, when};

/// Port at which a controller accepts agents, unless the operator names another one.
const AGENTS: u16 = 5115;
/// Port at which a controller enrols nodes, unless the operator names another one.
const ENROLS: u16 = 5117;
/// Directory on the disk in which the agent keeps and renews its certificate. The agent's unit lets the agent write
/// only to /run, so a drop-in of the unit adds this directory.
const DIRECTORY: &str = "/var/lib/perilog-agent/tls";
const UNIT_DROPIN: &str = "/etc/systemd/system/perilog-agent.service.d/perilog-init.conf";
const UNIT_TEXT: &str = "# Written by `perilog init node`, removed by `perilog init undo`: the agent keeps and renews \
                         its certificate in this directory.\n\
                         [Service]\n\
                         StateDirectory=perilog-agent\n\
                         StateDirectoryMode=0700\n";
/// Maximum size in bytes of a token's file: a token has 64 hexadecimal digits.
const MAX_TOKEN: u64 = 4096;

/// Set this host up as a node of a controller
///
/// Gets the authority's certificate and checks it by the pin, gets a certificate for this host with a one-time token or
/// by munge, writes /etc/perilog/agent.d/init.toml, starts the agent, and waits until the controller has accepted the
/// node. `perilog init controller` prints the command to type. A node with valid certificates in /etc/perilog/tls needs
/// neither pin nor token.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The controller, by a name or address in its certificate.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = controller)]
    controller: Address,
    /// The SHA-256 of the certificate of the controller's authority (perilog ca show).
    #[arg(long, value_name = "SHA256", value_parser = pin)]
    pin: Option<Pin>,
    /// The certificate of the controller's authority, instead of a pin.
    #[arg(long, value_name = "FILE", conflicts_with = "pin")]
    ca: Option<PathBuf>,
    /// The one-time token of this node (perilog token create); - reads it from standard input.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// File with the token.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Enrol by munge, now and whenever the node has no certificate.
    #[arg(long)]
    munge: bool,
    /// This node's name in the resource manager's hostlists; default: the kernel's host name.
    #[arg(long, value_name = "NAME", value_parser = values::host)]
    host: Option<HostName>,
    /// Where the controller enrols nodes; default: port 5117 of --controller.
    #[arg(long, value_name = "HOST:PORT")]
    enroll: Option<String>,
    #[command(flatten)]
    socket: AgentSocket,
    #[command(flatten)]
    common: Common,
}

/// An address that the operator types, as host and port. An IPv6 address is in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
}

impl Address {
    fn at(&self, port: u16) -> String {
        format!("{}:{port}", self.host)
    }
}

fn controller(text: &str) -> Result<Address, String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(Address { host: format!("[{text}]"), port: AGENTS });
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => {
            (host, port.parse().map_err(|_| format!("expected HOST or HOST:PORT; {port:?} is no port"))?)
        }
        _ => (text, AGENTS),
    };
    if host.is_empty() {
        return Err("expected HOST or HOST:PORT".to_owned());
    }
    Ok(Address { host: host.to_owned(), port })
}

fn pin(text: &str) -> Result<Pin, String> {
    text.parse()
}

#[derive(Debug, Clone)]
struct Wanted {
    controller: String,
    enroll: String,
    proof: Option<Proof>,
    munge: bool,
}

/// Values of the agent's configuration from which `init node` makes its plan: those that the agent would read with the
/// drop-in of `init`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Config {
    host: Option<String>,
    controllers: Vec<String>,
    enrols: Vec<String>,
    tls: Option<TlsFiles>,
    has_actions: bool,
}

impl Config {
    fn of(table: &Table) -> Self {
        let path = |key: &str| value(table, &["tls", key]).map(PathBuf::from);
        let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
        let is_on = table.get("tls").and_then(|tls| tls.get("enabled")?.as_bool()).unwrap_or(true);
        let tls = || Some(TlsFiles { ca: path("ca")?, cert: path("cert")?, key: path("key")?, crl: path("crl") });
        let enroll = table.get("enroll").and_then(toml::Value::as_table);
        Self {
            host: value(table, &["host"]).map(str::to_owned),
            controllers: owned(texts(table, "controller")),
            enrols: enroll.map(|enroll| owned(texts(enroll, "controller"))).unwrap_or_default(),
            tls: if is_on { tls() } else { None },
            has_actions: table.get("action").and_then(toml::Value::as_table).is_some_and(|table| !table.is_empty()),
        }
    }
}

#[derive(Debug, Clone)]
struct There {
    systemd: bool,
    installed: bool,
    munge: bool,
    host: String,
    dropin: Dropin,
    unit: Dropin,
    config: Result<Config, String>,
    /// End of a certificate that an administrator installed, in milliseconds since 1970; `None`: there is none that is
    /// good.
    brought: Option<u64>,
    /// End of the certificate in `DIRECTORY`, in milliseconds since 1970; `None`: there is none that is good.
    certificate: Option<u64>,
    /// The authority's certificate (PEM) in `DIRECTORY`; `None`: there is none.
    ca: Option<String>,
    /// The authority's certificate (PEM) to trust, and its source as text; or the reason why `init` cannot know the
    /// authority.
    authority: Result<(String, String), String>,
    service: Option<units::State>,
    online: bool,
}

/// Plans the steps that are missing on this host.
///
/// # Errors
/// The conflicts, as sentences: `init` changes nothing then. Without the agent's program, further conflicts are not
/// searched.
fn plan(wanted: &Wanted, dropin: &str, there: &There) -> Result<Plan, Vec<String>> {
    let host = &there.host;
    let mut plan = Plan::new(format!("{host} as a node of {}", wanted.controller));
    let mut conflicts = Vec::new();
    if !there.systemd {
        conflicts.push(
            "systemd does not run here; for an image, see administration.md in /usr/share/doc/perilog".to_owned(),
        );
    }
    if !there.installed {
        let program = Role::Node.program();
        conflicts.push(format!("there is no {}; install the package perilog-agent", program.display()));
        return Err(conflicts);
    }
    match &there.config {
        Err(why) => conflicts.push(format!("the configuration is wrong: {why}")),
        Ok(config) => overridden(wanted, there, config, &mut plan, &mut conflicts),
    }
    let changed = match there.brought {
        Some(until_ms) => {
            plan.is_there(format!(
                "a certificate for {host}, installed by an administrator and valid until {}",
                when::day(until_ms)
            ));
            conflicts.extend(there.authority.as_ref().err().cloned());
            false
        }
        None => keys(wanted, there, &mut plan, &mut conflicts),
    };
    let summary = format!("controller {}", wanted.controller);
    let written = there.dropin.plan(&Role::Node.dropin(), dropin, &summary, &mut plan, &mut conflicts);
    let runs = there.service.is_some_and(|state| state.active);
    if there.service.is_some_and(|state| state.active && state.enabled) && !changed && !written {
        plan.is_there(format!("{AGENT} is enabled and runs"));
    } else {
        let verb = if runs { "enable and restart" } else { "enable and start" };
        let meanwhile = if runs { " (scripts keep running)" } else { "" };
        plan.add(format!("{verb} {AGENT}{meanwhile}"), Step::Start { units: vec![AGENT], anew: runs });
    }
    if there.online && plan.is_empty() {
        plan.is_there(format!("{host} is online at {}", wanted.controller));
    } else {
        plan.add(format!("wait until {host} is online at {}", wanted.controller), Step::Online);
    }
    if conflicts.is_empty() { Ok(plan) } else { Err(conflicts) }
}

/// Adds a conflict if another file of the site sets a key to another value than the drop-in. Adds a note to the plan if
/// no action is configured.
fn overridden(wanted: &Wanted, there: &There, config: &Config, plan: &mut Plan, conflicts: &mut Vec<String>) {
    let mut other = |key: &str, has: &str, wants: &str| {
        conflicts.push(format!(
            "{key} is {has} in the configuration, not {wants}; change it there (perilog-agent --print-config shows \
             where it is set)"
        ));
    };
    if config.controllers != [wanted.controller.clone()] {
        other("controller", &format!("{:?}", config.controllers), &wanted.controller);
    }
    let own = files_in(Path::new(DIRECTORY));
    match &config.tls {
        None => other("[tls] enabled", "false", "true"),
        Some(_) if there.brought.is_some() => {}
        Some(tls) if tls.cert != own.cert || tls.key != own.key || tls.ca != own.ca => {
            other("[tls] cert", &tls.cert.display().to_string(), &own.cert.display().to_string());
        }
        Some(_) if config.enrols != [wanted.enroll.clone()] => {
            other("[enroll] controller", &format!("{:?}", config.enrols), &wanted.enroll);
        }
        Some(_) => {}
    }
    if !config.has_actions {
        plan.note(
            "no action is configured: the node refuses every action until you write a table such as [action.prolog] to \
             agent.d/site.toml",
        );
    }
}

/// Plans the steps for the authority, the certificate, and the unit's permission to write `DIRECTORY`. If there is no
/// conflict, returns `true` unless all three are on this host already.
fn keys(wanted: &Wanted, there: &There, plan: &mut Plan, conflicts: &mut Vec<String>) -> bool {
    let own = files_in(Path::new(DIRECTORY));
    let shown = own.ca.display();
    let mut changed = true;
    match (&there.authority, &there.ca) {
        (Err(why), _) => conflicts.push(why.clone()),
        (Ok((pem, from)), Some(ca)) if pem == ca => {
            plan.is_there(format!("{shown}: the authority {from}"));
            changed = false;
        }
        (Ok((_, from)), Some(_)) => conflicts.push(format!(
            "{shown} is the certificate of another authority than the one {from}: check --pin or --ca. If the \
             controller has a new authority, type perilog init undo node first"
        )),
        (Ok((pem, from)), None) => {
            plan.add(
                format!("write {shown}: the authority {from}"),
                Step::Write { path: own.ca.clone(), who: Who::Everybody, text: pem.clone() },
            );
        }
    }
    match (there.certificate, &wanted.proof) {
        (Some(until_ms), _) => {
            let until = when::day(until_ms);
            plan.is_there(format!("{}: a certificate for {}, until {until}", own.cert.display(), there.host));
        }
        (None, None) => conflicts.push(format!(
            "this node has no certificate; to get one, use --token (on the controller's host: perilog token create {}) \
             or --munge",
            there.host
        )),
        (None, Some(Proof::Munge)) if !there.munge => {
            conflicts.push(format!(
                "--munge: there is no {MUNGE}; install munge, with the munge key of the controller's host"
            ));
        }
        (None, Some(proof)) => {
            changed = true;
            let by = match proof {
                Proof::Token(_) => "with the token",
                Proof::Munge => "by munge",
            };
            plan.add(
                format!("get a certificate for {} from {} {by}, into {DIRECTORY}", there.host, wanted.enroll),
                Step::Enrol(Box::new(Enrolling {
                    address: wanted.enroll.clone(),
                    host: there.host.clone(),
                    dir: DIRECTORY.into(),
                    proof: proof.clone(),
                })),
            );
        }
    }
    let summary = "the agent may keep its certificate";
    changed | there.unit.plan(Path::new(UNIT_DROPIN), UNIT_TEXT, summary, plan, conflicts)
}

pub(super) fn run(args: Args, mut out: Out) -> Result<Exit, Fault> {
    let proof = match token(&args)? {
        Some(token) => Some(Proof::Token(token)),
        None => args.munge.then_some(Proof::Munge),
    };
    let wanted = Wanted {
        controller: args.controller.at(args.controller.port),
        enroll: args.enroll.clone().unwrap_or_else(|| args.controller.at(ENROLS)),
        proof,
        munge: args.munge,
    };
    let record = Record::read(Record::path_of(Role::Node))?;
    let endpoint = args.socket.endpoint();
    let (dropin, there) = inspect(&args, &wanted, record.as_ref(), &endpoint)?;
    let plan = plan(&wanted, &dropin, &there).map_err(|conflicts| refused(&conflicts))?;
    let is_first = record.is_none();
    let record = record.unwrap_or_else(|| Record::empty(Record::path_of(Role::Node)));
    let mut act = Acting { record, wait: args.common.wait, endpoint, lasts: None, tokens: Vec::new() };
    match show_and_do(&plan, &args.common, &mut out, &mut act) {
        Ok(is_done) => {
            if is_done && out.format == OutputFormat::Table {
                out.text(&format!("{} is online at {}\n", there.host, wanted.controller))?;
            }
            Ok(Exit::Ok)
        }
        // The controller refused the token of a first run: takes back all steps, so that the node is as before.
        Err(Fault::Usage(text)) if is_first => {
            let mut quiet = Out::stdout(OutputFormat::Quiet);
            undo::take_back(Role::Node, act.record, false, false, &mut quiet)?;
            aside("init has undone its steps");
            Err(Fault::Usage(text))
        }
        Err(fault) => Err(fault),
    }
}

fn token(args: &Args) -> Result<Option<Token>, Fault> {
    let read = |from: &mut dyn std::io::Read, path: &Path| -> Result<String, Fault> {
        let mut text = String::new();
        let read = from.take(MAX_TOKEN).read_to_string(&mut text);
        read.map_err(|source| Fault::File { what: "cannot read the token from", path: path.to_owned(), source })?;
        Ok(text)
    };
    let text = match (&args.token, &args.token_file) {
        (Some(token), _) if token == "-" => read(&mut std::io::stdin().lock(), Path::new("standard input"))?,
        (Some(token), _) => token.clone(),
        (None, Some(path)) => {
            let mut file = fs::File::open(path).map_err(|source| Fault::File {
                what: "cannot read the token from",
                path: path.clone(),
                source,
            })?;
            read(&mut file, path)?
        }
        (None, None) => return Ok(None),
    };
    match text.trim() {
        "" => Err(Fault::Usage("the token is empty".to_owned())),
        token => Ok(Some(Token(token.to_owned()))),
    }
}

fn inspect(
    args: &Args,
    wanted: &Wanted,
    record: Option<&Record>,
    endpoint: &Endpoint,
) -> Result<(String, There), Fault> {
    let installed = Role::Node.program().exists();
    let host = args.host.as_ref().map(ToString::to_string);
    let own = files_in(Path::new(DIRECTORY));
    let of = |enrols| {
        let controller = wanted.controller.as_str();
        OfNode { host: host.as_deref(), controller, enrols, munge: wanted.munge }.text()
    };
    let read = |dropin: &str| -> Result<Result<Config, String>, Fault> {
        if !installed {
            return Ok(Err("it is not read".to_owned()));
        }
        Ok(settings::would_be(Role::Node, dropin)?.map(|table| Config::of(&table)))
    };
    // A certificate that an administrator installed takes precedence over enrolment.
    let site = read(&of(None))?;
    let name = match &site {
        Ok(Config { host: Some(host), .. }) => host.clone(),
        _ => own_name(),
    };
    let site_tls = site.as_ref().ok().and_then(|config| config.tls.clone());
    let brought = site_tls.as_ref().and_then(|tls| enrol::certificate(tls, &name));
    let enrols = brought.is_none().then_some((wanted.enroll.as_str(), Path::new(DIRECTORY)));
    let dropin = of(enrols);
    let config = if enrols.is_none() { site } else { read(&dropin)? };
    let there = There {
        systemd: units::systemd_runs(),
        installed,
        munge: Path::new(MUNGE).is_file(),
        dropin: Dropin::inspect(&Role::Node.dropin(), record),
        unit: Dropin::inspect(Path::new(UNIT_DROPIN), record),
        config,
        brought,
        certificate: enrol::certificate(&own, &name),
        ca: fs::read_to_string(&own.ca).ok(),
        authority: authority(args, wanted, brought.is_some(), &own, site_tls.as_ref()),
        service: units::state(AGENT)?,
        online: is_online(endpoint),
        host: name,
    };
    Ok((dropin, there))
}

/// Returns the authority's certificate (PEM) that this node will trust, and its source as text.
fn authority(
    args: &Args,
    wanted: &Wanted,
    brought: bool,
    own: &TlsFiles,
    site: Option<&TlsFiles>,
) -> Result<(String, String), String> {
    let read = |path: &Path| files::read(path).map_err(|fault| fault.to_string());
    if brought {
        return trusted(args, site);
    }
    if let Some(path) = &args.ca {
        return Ok((read(path)?, format!("of {}", path.display())));
    }
    if let Some(pin) = args.pin {
        // The authority with this pin is on the disk already: the controller need not run.
        if let Ok(pem) = read(&own.ca)
            && enrol::is_pinned(&pem, pin)
        {
            return Ok((pem, format!("with the pin {pin}")));
        }
        return enrol::authority(&wanted.enroll, pin).map(|pem| (pem, format!("with the pin {pin}")));
    }
    let in_place = [Some(own), site].into_iter().flatten().map(|tls| &tls.ca).find(|path| path.exists());
    match in_place {
        Some(path) => Ok((read(path)?, format!("of {}", path.display()))),
        None => {
            Err("the controller's authority is not known; use --pin, as `perilog init controller` prints it, or --ca \
                 FILE"
                .to_owned())
        }
    }
}

/// Returns the certificate (PEM) of the authority that the administrator's files trust, and its source as text. Fails
/// if --ca or --pin names another authority, or if the administrator's files are missing.
fn trusted(args: &Args, site: Option<&TlsFiles>) -> Result<(String, String), String> {
    let read = |path: &Path| files::read(path).map_err(|fault| fault.to_string());
    let Some(site) = site else { return Err("the installed certificate has no authority".to_owned()) };
    let pem = read(&site.ca)?;
    let named = match (&args.ca, args.pin) {
        (Some(path), _) => read(path)?.trim() == pem.trim(),
        (None, Some(pin)) => enrol::is_pinned(&pem, pin),
        (None, None) => true,
    };
    match named {
        true => Ok((pem, "that an administrator installed".to_owned())),
        false => Err(format!(
            "{} is another authority than the one that you named, and the certificate that is installed belongs to it \
             ({})",
            site.ca.display(),
            site.cert.display()
        )),
    }
}

#[cfg(test)]
mod tests;
