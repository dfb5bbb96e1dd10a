//! `perilog init controller`: authority, certificate, drop-in, units and tokens of the controller's host; then the line
//! to type on a node.

mod inspect;
mod lines;
mod second;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perilog_core::{HostList, Span};
use perilog_host::munge::UNMUNGE;
use perilog_host::tls::TlsFiles;
use toml::Table;

use self::inspect::inspect;
use self::lines::lines;
use super::act::{Acting, CONTROLLER, SOCKET};
use super::dropin::Dropin;
use super::enrol::files_in;
use super::record::Record;
use super::settings::{OfController, value};
use super::step::{Plan, Step};
use super::{Common, Role, refused, show_and_do, units};
use crate::endpoint::Endpoint;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::out::Out;
use crate::verb::ca::files::{CA_CERT, CA_KEY};
use crate::verb::ca::{self, Name};
use crate::verb::{failover, own_name};
use crate::{values, when};

/// The port at which the controller enrols nodes, as `init` writes it into the drop-in.
const ENROLS: u16 = 5117;

/// Set this host up as the controller
///
/// Makes an authority and the controller's certificate, writes /etc/perilog/controller.d/init.toml, enables and starts
/// the units, and prints the command to type on each node. Certificates that exist already are used as they are. With
/// --quiet: the commands, each behind its node's name.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The cluster's name; default: the name in the configuration.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// A name or address by which nodes dial this host, for its certificate; may be repeated. Default: this host's
    /// name, or with [failover] the first name of the certificate that is not one of its hosts.
    #[arg(long = "name", value_name = "HOST", value_parser = ca::name)]
    names: Vec<Name>,
    /// Directory of the authority that signs the certificate (perilog ca init); if it is missing, init makes an
    /// authority there.
    #[arg(long, value_name = "DIR", default_value = "/root/perilog-ca")]
    ca: PathBuf,
    /// Print the command to type on each of these nodes: perilog init node, with a one-time token unless --munge is
    /// given. Without --munge, a node that is online, or has a valid or used token, gets no token and no command.
    #[arg(long, value_name = "HOSTLIST", value_parser = values::hosts)]
    nodes: Option<HostList>,
    /// How long the tokens are valid; default: one hour.
    #[arg(long = "for", value_name = "DURATION", value_parser = values::span, requires = "nodes")]
    lasts: Option<Span>,
    /// Enrol the nodes of --nodes by munge, without tokens. A node then proves its name by its address: see security.md
    /// in /usr/share/doc/perilog.
    #[arg(long, requires = "nodes")]
    munge: bool,
    /// Make this host the second host of the controller that HOST has, for a cluster manager that moves the controller:
    /// copy over ssh what HOST has in /etc/perilog (failover.md in /usr/share/doc/perilog). Repeat the command after a
    /// change on HOST.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["cluster", "names", "ca", "nodes", "lasts", "munge"])]
    failover_of: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// The arguments of `init controller`, as the plan uses them.
#[derive(Debug, Clone)]
struct Wanted {
    cluster: Option<String>,
    names: Vec<Name>,
    ca: PathBuf,
    nodes: Option<HostList>,
    munge: bool,
}

/// State of the files of the controller's certificate (`ca`, `cert` and `key` of `[tls]`), or of an authority (its
/// certificate and key). All of these files or none should exist.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Files {
    None,
    /// Some of the files exist and some are missing. Contains the path of the first one that exists.
    Part(PathBuf),
    /// The files exist, but cannot be used. Contains the reason as text.
    Bad(String),
    /// All of the files exist, and the certificate in them can be used. `names`, `until_ms`: the names in the
    /// controller's certificate, and its end in milliseconds since 1970; for an authority, no names and 0.
    Good {
        names: Vec<String>,
        until_ms: u64,
    },
}

/// Values of the controller's configuration from which `init controller` makes its plan: those that the controller
/// would read with the drop-in of `init`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Config {
    cluster: String,
    tls: Option<TlsFiles>,
    enrols: Option<u16>,
    /// The hosts on which a cluster manager starts the controller (`[failover]`); `None`: systemd starts it here.
    hosts: Option<HostList>,
}

impl Config {
    fn of(table: &Table) -> Self {
        let path = |key: &str| value(table, &["tls", key]).map(PathBuf::from);
        let is_on = table.get("tls").and_then(|tls| tls.get("enabled")?.as_bool()).unwrap_or(true);
        let tls = || Some(TlsFiles { ca: path("ca")?, cert: path("cert")?, key: path("key")?, crl: path("crl") });
        let listen = value(table, &["enroll", "listen"]).and_then(|listen| listen.rsplit_once(':')?.1.parse().ok());
        Self {
            cluster: value(table, &["cluster"]).unwrap_or_default().to_owned(),
            tls: if is_on { tls() } else { None },
            enrols: listen,
            hosts: failover::hosts(table),
        }
    }
}

/// The state of this host before `init`.
#[derive(Debug, Clone)]
struct There {
    systemd: bool,
    /// Whether the controller's program is installed.
    installed: bool,
    unmunge: bool,
    dropin: Dropin,
    config: Result<Config, String>,
    authority: Files,
    certificate: Files,
    service: Option<units::State>,
    socket: Option<units::State>,
    /// Nodes that need no token, each with the reason as text, such as `online`.
    known: BTreeMap<String, &'static str>,
}

/// Plans the steps that are missing on this host.
///
/// # Errors
/// The conflicts, as sentences: `init` changes nothing then. Without the program, or with a wrong configuration,
/// further ones are not searched.
fn plan(host: &str, wanted: &Wanted, dropin: &OfController, there: &There) -> Result<Plan, Vec<String>> {
    let mut plan = Plan::new(format!("the controller on {host}"));
    let mut conflicts = Vec::new();
    if !there.systemd {
        conflicts.push(
            "systemd does not run here; for an image, see administration.md in /usr/share/doc/perilog".to_owned(),
        );
    }
    if !there.installed {
        let program = Role::Controller.program();
        conflicts.push(format!("there is no {}; install the package perilog-controller", program.display()));
        return Err(conflicts);
    }
    if wanted.munge && !there.unmunge {
        conflicts.push(format!("--munge: there is no {UNMUNGE}; install munge"));
    }
    let config = match &there.config {
        Ok(config) => config,
        Err(why) => {
            let hint = if dropin.cluster.is_none() { " (the cluster's name: --cluster NAME)" } else { "" };
            conflicts.push(format!("the configuration is wrong: {why}{hint}"));
            return Err(conflicts);
        }
    };
    if let Some(cluster) = wanted.cluster.as_ref().filter(|cluster| **cluster != config.cluster) {
        conflicts.push(format!(
            "the name of the cluster is {} in the configuration, not {cluster}, and a cluster keeps its name \
             (perilog-controller --print-config shows where it is set)",
            config.cluster
        ));
    }
    let issued = match &config.tls {
        None => {
            conflicts.push("[tls] enabled is false in the configuration: nodes cannot enrol without TLS".to_owned());
            false
        }
        Some(tls) => keys(wanted, there, tls, &mut plan, &mut conflicts),
    };
    let summary = match &dropin.munge_hosts {
        Some(hosts) => format!("cluster {}, nodes enrol at port {ENROLS}, {hosts} by munge", config.cluster),
        None => format!("cluster {}, nodes enrol at port {ENROLS}", config.cluster),
    };
    let path = Role::Controller.dropin();
    let written = there.dropin.plan(&path, &dropin.text(), &summary, &mut plan, &mut conflicts);
    let is_up = |state: Option<units::State>| state.is_some_and(|state| state.enabled && state.active);
    let names = format!("{SOCKET}, {CONTROLLER}");
    if config.hosts.is_some() {
        plan.is_there(format!("the cluster manager starts {CONTROLLER} ([failover])"));
        if issued || written {
            plan.note(
                "the controller reads this at its next start; on the host where it runs: systemctl restart \
                 perilog-controller",
            );
        }
    } else if is_up(there.service) && is_up(there.socket) && !issued && !written {
        plan.is_there(format!("{names} are enabled and run"));
    } else {
        let runs = there.service.is_some_and(|state| state.active);
        let verb = if runs { "enable and restart" } else { "enable and start" };
        plan.add(format!("{verb} {names}"), Step::Start { units: vec![SOCKET, CONTROLLER], anew: runs });
    }
    if let Some(nodes) = wanted.nodes.as_ref().filter(|_| !wanted.munge) {
        tokens(nodes, &there.known, &mut plan);
    }
    if conflicts.is_empty() { Ok(plan) } else { Err(conflicts) }
}

/// Plans the steps that make the authority and the controller's certificate. Returns `false` if the controller has a
/// good certificate already.
fn keys(wanted: &Wanted, there: &There, tls: &TlsFiles, plan: &mut Plan, conflicts: &mut Vec<String>) -> bool {
    let (cert, ca) = (tls.cert.display(), wanted.ca.display());
    let names: Vec<String> = wanted.names.iter().map(Name::text).collect();
    match &there.certificate {
        Files::Good { names: has, until_ms } => {
            let lacks: Vec<&str> = names.iter().filter(|name| !has.contains(name)).map(String::as_str).collect();
            if lacks.is_empty() {
                plan.is_there(format!("{cert}: for {}, until {}", has.join(", "), when::day(*until_ms)));
            } else {
                conflicts.push(format!(
                    "{cert} is for {}, not for {}; use --name with the names that it has, or remove {cert}, its key \
                     and its ca",
                    has.join(", "),
                    lacks.join(", ")
                ));
            }
            return false;
        }
        Files::Part(path) => conflicts.push(format!(
            "{} exists, but not all three files of ca, cert and key do; copy those that are missing, or remove those \
             that are there",
            path.display()
        )),
        Files::Bad(why) => conflicts.push(format!("the certificate cannot be used: {why}")),
        Files::None => {}
    }
    match &there.authority {
        Files::None => plan.add(
            format!("make an authority in {ca}: anyone who has its key can impersonate the controller"),
            Step::Authority { dir: wanted.ca.clone() },
        ),
        Files::Part(path) => {
            conflicts.push(format!(
                "{} exists, but not both of {CA_CERT} and {CA_KEY} do; use another --ca",
                path.display()
            ));
        }
        Files::Bad(why) => conflicts.push(format!("the authority cannot be used: {why}")),
        Files::Good { .. } => plan.is_there(format!("{ca}: an authority")),
    }
    let to = tls.cert.parent().unwrap_or(Path::new("/"));
    let own = files_in(to);
    if (&tls.ca, &tls.cert, &tls.key) == (&own.ca, &own.cert, &own.key) {
        plan.add(
            format!("issue the controller's certificate for {} to {}", names.join(", "), to.display()),
            Step::Issue { ca: wanted.ca.clone(), names: wanted.names.clone(), to: to.to_owned() },
        );
    } else {
        conflicts.push(format!(
            "{cert} does not exist, and [tls] names other files than ca.pem, cert.pem and key.pem in one directory, so \
             copy the files there yourself"
        ));
    }
    true
}

/// Returns the name by which nodes dial the controller, where the operator names none: this host's own, or with
/// `[failover]` the certificate's first name that moves with the controller. A node that dialled one host alone would
/// lose the controller when it moves.
///
/// # Errors
/// A conflict, as text: there is no certificate, or it has no such name.
fn dialled(own: Name, there: &There) -> Result<Name, String> {
    let Some(hosts) = there.config.as_ref().ok().and_then(|config| config.hosts.as_ref()) else { return Ok(own) };
    let advice =
        "--name NAME, the name of the address that moves with the controller (/usr/share/doc/perilog/failover.md)";
    match &there.certificate {
        Files::Good { names, .. } => {
            failover::moving_name(hosts, names).and_then(|name| ca::name(name).ok()).ok_or_else(|| {
                format!(
                    "the certificate is for {}, and [failover] has the hosts {hosts}: by which name do nodes dial the \
                     controller on either host? Type {advice}",
                    names.join(", ")
                )
            })
        }
        // The plan reports what is wrong with the files.
        Files::Part(_) | Files::Bad(_) => Ok(own),
        Files::None => Err(format!(
            "there is no certificate yet. With [failover], give every name: --name NAME (moves with the controller), \
             then --name for each of {hosts} (/usr/share/doc/perilog/failover.md)"
        )),
    }
}

fn tokens(nodes: &HostList, known: &BTreeMap<String, &'static str>, plan: &mut Plan) {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut needy = Vec::new();
    for host in nodes.iter() {
        match known.get(host) {
            Some(why) => groups.entry(why).or_default().push(host),
            None => needy.push(host),
        }
    }
    let folded = |hosts: &[&str]| HostList::from_names(hosts.iter()).map(|list| (list.to_string(), list)).ok();
    for (why, hosts) in groups {
        plan.is_there(format!("{} {why}", folded(&hosts).map(|(text, _)| text).unwrap_or_default()));
    }
    if let Some((text, hosts)) = folded(&needy).filter(|_| !needy.is_empty()) {
        plan.add(format!("make one-time tokens for {text}"), Step::Tokens { hosts });
    }
}

pub(super) fn run(args: Args, endpoint: &Endpoint, mut out: Out) -> Result<Exit, Fault> {
    if let Some(other) = &args.failover_of {
        return second::run(other, &args.common, endpoint, out);
    }
    let host = own_name();
    let own = ca::name(&host).map_err(|error| Fault::Usage(format!("this host's name {host:?}: {error}")))?;
    let Args { cluster, names, ca, nodes, munge, .. } = args;
    let mut wanted = Wanted { cluster, names, ca: absolute(&ca)?, nodes, munge };
    let record = Record::read(Record::path_of(Role::Controller))?;
    let (dropin, there) = inspect(&wanted, record.as_ref(), endpoint)?;
    if wanted.names.is_empty() {
        wanted.names = vec![dialled(own, &there).map_err(|conflict| refused(&[conflict]))?];
    }
    let plan = plan(&host, &wanted, &dropin, &there).map_err(|conflicts| refused(&conflicts))?;
    let record = record.unwrap_or_else(|| Record::empty(Record::path_of(Role::Controller)));
    let mut act =
        Acting { record, wait: args.common.wait, endpoint: endpoint.clone(), lasts: args.lasts, tokens: Vec::new() };
    let is_done = show_and_do(&plan, &args.common, &mut out, &mut act)?;
    let (true, Ok(config)) = (is_done, &there.config) else { return Ok(Exit::Ok) };
    let made_authority = plan.steps().any(|(_, step)| matches!(step, Step::Authority { .. }));
    out.show(&lines(&host, &wanted, config, act.tokens, made_authority)?)?;
    Ok(Exit::Ok)
}

fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    std::path::absolute(path).map_err(|source| Fault::File { what: "cannot find", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
