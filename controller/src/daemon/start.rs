//! Starts the daemon from a configuration. A wrong configuration, certificate or address fails before a new epoch
//! begins.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use perilog_host::accounts::{self, AccountError};
use perilog_host::activation::{self, Activated, ActivationError};
use perilog_host::link::{self, Keepalive, LinkError, Listener};
use perilog_host::notify::LongStart;
use perilog_host::tls::{ServerTls, TlsError};
use perilog_host::varlink::{self, SocketError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::inlet::Inlet;
use super::writer::Writer;
use crate::api::{self, Access, Api, Calls, MaxHosts};
use crate::config::{Config, Failover, FailoverError, Hook};
use crate::enroll::{AuthorityError, Enrolment, Munged};
use crate::hooks::{self, Command, Kind};
use crate::http::{self, Names, Page, PageCache, Site};
use crate::listener::{self, Expiries, Sessions};
use crate::metrics::{Metrics, Source};
use crate::store::{EventReader, OpenError, Search, StepReader, Store, StoreError};

/// The name of the agents' socket in perilog-controller.socket (`FileDescriptorName=`).
const SOCKET: &str = "agents";
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The reason why the controller cannot run, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    #[error("signals: {0}")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Failover(#[from] FailoverError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the listening socket: {0}")]
    Listen(#[source] io::Error),
    #[error(transparent)]
    Activation(#[from] ActivationError),
    #[error("the authority of enrolment: {0}")]
    Authority(#[from] AuthorityError),
    #[error("the local API: {0}")]
    Socket(#[from] SocketError),
    #[error("[api] group: {0}")]
    Group(#[source] AccountError),
    #[error("[edge] group: {0}")]
    EdgeGroup(#[source] AccountError),
    #[error("[metrics] listen {address}: {source}")]
    Metrics { address: SocketAddr, source: io::Error },
    #[error("cannot start the {name}'s thread: {source}")]
    Thread { name: &'static str, source: io::Error },
    #[error("the thread that writes the store ended unexpectedly; the lines before may have the reason")]
    WriterEnded,
}

/// The result of the writer's thread; `Err` if the thread panicked.
pub(super) type LastWord = Result<Result<(), StoreError>, oneshot::error::RecvError>;

pub(super) fn ended(last_word: LastWord) -> Result<(), Fault> {
    match last_word {
        Ok(result) => result.map_err(Fault::Store),
        // The thread panicked; the log has the panic.
        Err(_) => Err(Fault::WriterEnded),
    }
}

pub(super) struct Started {
    pub(super) inlet: Inlet,
    pub(super) sessions: Arc<Sessions>,
    pub(super) calls: Calls,
    pub(super) certificates: Certificates,
    pub(super) writer: oneshot::Receiver<Result<(), StoreError>>,
    /// What the search of the store for damage found; closed without a value if the store is whole, or if no search was
    /// due.
    pub(super) damage: mpsc::Receiver<StoreError>,
    /// The tokio tasks that accept agents, nodes to enrol, and clients.
    pub(super) listeners: Listeners,
    pub(super) hooks: Hooks,
    /// The line of `systemctl status`.
    pub(super) status: watch::Receiver<String>,
    /// The problem that the last reload left: keys that need a restart, or a wrong configuration; `None`: no problem.
    pub(super) remark: watch::Sender<Option<String>>,
}

/// Passes the certificates that a reload has read on to the listeners that use them.
pub(super) struct Certificates {
    tls: watch::Sender<Option<ServerTls>>,
    enroll_tls: watch::Sender<Option<ServerTls>>,
    enrolment: Option<Arc<Enrolment>>,
}

/// Certificates and enrolment settings that a reload has read, but not applied yet.
pub(super) struct Renewed {
    tls: Option<ServerTls>,
    enroll_tls: Option<ServerTls>,
    enroll_port: u16,
    failover: Failover,
    lifetime_ms: u64,
    munged: Option<Munged>,
}

impl Certificates {
    pub(super) fn read(config: &Config) -> Result<Renewed, TlsError> {
        let lifetime_ms = config.enroll.lifetime.as_millis();
        let munged = config.enroll.munged();
        let (tls, enroll_tls) = (config.server_tls()?, config.enroll_tls()?);
        let (enroll_port, failover) = (port_of(config), config.failover.clone());
        Ok(Renewed { tls, enroll_tls, enroll_port, failover, lifetime_ms, munged })
    }

    /// Applies what a reload has read. Returns what of the certificates is new, for people.
    pub(super) fn apply(
        &self,
        Renewed { tls, enroll_tls, enroll_port, failover, lifetime_ms, munged }: Renewed,
    ) -> Vec<&'static str> {
        let before = self.tls.send_replace(tls.clone());
        let changes = tls.zip(before).map(|(tls, before)| tls.changes_since(&before)).unwrap_or_default();
        // Without new settings the enrolment server keeps its earlier ones, because switching it off needs a restart.
        if let Some(enrolment) = &self.enrolment {
            enroll_tls.iter().for_each(|tls| enrolment.invite(tls, enroll_port, &failover));
            enrolment.set(lifetime_ms, munged);
        }
        if enroll_tls.is_some() {
            self.enroll_tls.send_replace(enroll_tls);
        }
        changes
    }
}

/// The tokio tasks that accept agents, nodes to enrol, and clients.
pub(super) struct Listeners {
    agents: JoinSet<()>,
    /// The tokio tasks that serve the local API and HTTP. They end only with the daemon, so that accepted calls still
    /// get answers.
    _clients: JoinSet<()>,
}

impl Listeners {
    /// Stops accepting new connections from agents, and from nodes that want to enrol. Open sessions and the local API
    /// go on.
    pub(super) fn close(&mut self) {
        self.agents.abort_all();
    }
}

/// The running hooks: their tokio tasks, and channels that give them the commands of the configuration. A reload sends
/// other commands.
pub(super) struct Hooks {
    release: watch::Sender<Option<Command>>,
    drain: watch::Sender<Option<Command>>,
    _tasks: JoinSet<()>,
}

impl Hooks {
    fn start(config: &Config, inlet: &Inlet, grew: &watch::Receiver<()>, metrics: Option<&Metrics>) -> Self {
        let mut tasks = JoinSet::new();
        let mut hook = |kind, hook: &Hook| {
            let (command, configured) = watch::channel(hook.command());
            tasks.spawn(hooks::run(kind, inlet.clone(), configured, grew.clone(), metrics.cloned()));
            command
        };
        let (release, drain) = (hook(Kind::Release, &config.release), hook(Kind::Drain, &config.drain));
        Self { release, drain, _tasks: tasks }
    }

    pub(super) fn configure(&self, config: &Config) {
        self.release.send_replace(config.release.command());
        self.drain.send_replace(config.drain.command());
    }
}

pub(super) async fn start(config: &Config) -> Result<Started, Fault> {
    // First: store and authority must be on the disk that moves. On a host without it, enrolment would make another
    // authority, which knows no node.
    config.failover.check(&config.store, config.enroll.authority())?;
    let group = |name: &Option<String>| name.as_deref().map(accounts::group_id).transpose();
    let access = Access {
        group: group(&config.api.group).map_err(Fault::Group)?,
        edges: group(&config.edge.group).map_err(Fault::EdgeGroup)?,
        read: config.api.read,
    };
    let expiries = Expiries::default();
    let enrolment = enrolment(config, &expiries)?;
    let (server_tls, enroll_tls) = (config.server_tls()?, config.enroll_tls()?);
    if server_tls.is_none() {
        tracing::warn!("TLS is switched off: anyone who reaches the port can impersonate a node");
    }
    let mut activated = activation::listen_fds()?;
    let listeners = listeners(&mut activated, config.listen)?;
    let visited = match (config.enroll.listen, &enroll_tls) {
        (Some(address), Some(_)) => Some(bind(address)?),
        _ => None,
    };
    let long = LongStart::begin();
    let store = Store::open(&config.store)?;
    drop(long);
    let (reader, steps) = (EventReader::open(&config.store)?, StepReader::open(&config.store)?);
    let scraped =
        config.metrics.listen.map(|address| http::bind(address).map_err(|source| Fault::Metrics { address, source }));
    let scraped = scraped.transpose()?;
    let metrics = scraped.is_some().then(Metrics::default);
    let local = local(&config.api.socket, access)?;

    let (outbox, outbox_grew) = watch::channel(());
    let nonce = uuid::Uuid::new_v4().as_u64_pair().0;
    let (status_line, status) = watch::channel(String::new());
    let search = store.search();
    let writer = Writer::new(store, config.settings(), nonce, outbox, status_line, metrics.clone())?;
    let logged = writer.logged();
    let (inlet, entries) = Inlet::new();
    let (last_word, writer_ended) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    thread::Builder::new()
        .name("writer".to_owned())
        .spawn(move || {
            let result = runtime.block_on(writer.run(entries));
            // The send fails if the daemon was dropped.
            let _ = last_word.send(result);
        })
        .map_err(|source| Fault::Thread { name: "writer", source })?;
    let damage = begin_search(search)?;

    let (tls, tls_changes) = watch::channel(server_tls.clone());
    let sessions = Sessions::new(inlet.clone(), RELEASE, expiries.clone());
    let mut agents = JoinSet::new();
    for socket in listeners {
        let listener = Listener::new(socket, server_tls.clone(), Keepalive::default()).map_err(Fault::Listen)?;
        tracing::info!(address = %listener.local_addr().map_err(Fault::Listen)?, "listening for agents");
        agents.spawn(listener::accept(listener, sessions.clone(), tls_changes.clone()));
    }
    let (enroll_tls, enroll_changes) = watch::channel(enroll_tls);
    if let (Some(socket), Some(enrolment)) = (visited, &enrolment) {
        let tls = enroll_tls.borrow().clone();
        tls.iter().for_each(|tls| enrolment.invite(tls, port_of(config), &config.failover));
        let listener = Listener::new(socket, tls, Keepalive::default()).map_err(Fault::Listen)?;
        tracing::info!(address = %listener.local_addr().map_err(Fault::Listen)?, "enrolling nodes");
        agents.spawn(perilog_host::enroll::serve(listener, enroll_changes, enrolment.clone()));
    }
    let hooks = Hooks::start(config, &inlet, &outbox_grew, metrics.as_ref());
    let calls = Calls::new();
    let mut clients = JoinSet::new();
    if let (Some(listener), Some(metrics)) = (scraped, metrics) {
        tracing::info!(address = %listener.local_addr().map_err(Fault::Listen)?, "metrics for Prometheus");
        let names = Names::new(&rustix::system::uname().nodename().to_string_lossy(), tls.subscribe());
        let site = site(config, metrics, &inlet, &expiries, names)?;
        clients.spawn(async move {
            let Err(error) = http::serve(listener, site).await;
            tracing::error!(%error, "HTTP is no longer served");
        });
    }
    let (remark, remarks) = watch::channel(None);
    let api = Api {
        inlet: inlet.clone(),
        reader,
        steps,
        access,
        max_hosts: MaxHosts(config.max_hosts),
        outbox: outbox_grew,
        logged,
        calls: calls.clone(),
        cluster: config.cluster.as_str().to_owned(),
        store: config.store.to_path_buf(),
        backup: tokio::sync::Mutex::default(),
        enrolment: enrolment.clone(),
        expiries,
        remark: remarks,
        following: Default::default(),
    };
    clients.spawn(async move {
        let Err(error) = api::serve(local, api).await;
        tracing::error!(%error, "the local API ended");
    });
    Ok(Started {
        inlet,
        sessions,
        calls,
        certificates: Certificates { tls, enroll_tls, enrolment },
        writer: writer_ended,
        damage,
        listeners: Listeners { agents, _clients: clients },
        hooks,
        status,
        remark,
    })
}

/// Searches the store for damage in a thread of its own, if a search is due.
fn begin_search(search: Option<Search>) -> Result<mpsc::Receiver<StoreError>, Fault> {
    let (found, damage) = mpsc::channel(1);
    if let Some(search) = search {
        let name = "search";
        let run = move || {
            if let Err(error) = search.run() {
                // The send fails if the daemon was dropped.
                let _ = found.try_send(error);
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|source| Fault::Thread { name, source })?;
    }
    Ok(damage)
}

/// Builds the contents of the HTTP listener: metrics, health, and the page if configured.
fn site(
    config: &Config,
    metrics: Metrics,
    inlet: &Inlet,
    expiries: &Expiries,
    names: Names,
) -> Result<Site, StoreError> {
    let page_cache = || PageCache::new(inlet.clone(), config.cluster.as_str());
    let page = config.metrics.page.then(|| Page { page_cache: page_cache(), names });
    // A separate connection, so that a sum over a million tasks delays no scraper.
    let steps = StepReader::open(&config.store)?;
    let (expiries, store) = (expiries.clone(), config.store.to_path_buf());
    let figures = Source { metrics, inlet: inlet.clone(), steps, expiries, store };
    Ok(Site { figures, health: page_cache(), page })
}

/// Binds the local API's socket; sets the socket's group, if this process may. If it may not, everybody may connect
/// (0666), and the API checks each call.
fn local(path: &Path, access: Access) -> Result<UnixListener, SocketError> {
    match varlink::bind(path, api::socket_mode(access), access.group) {
        // A user can give files only to a group of the user. The API checks permissions for each call anyway.
        Err(SocketError::Io { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied && access.group.is_some() =>
        {
            tracing::info!(
                "the controller is not in the group of [api]: every user can connect, but requests of other users are \
                 refused"
            );
            varlink::bind(path, 0o666, None)
        }
        bound => bound,
    }
}

/// Returns the sockets that systemd passed; if there are none, binds a socket to `address`.
fn listeners(activated: &mut Activated, address: SocketAddr) -> Result<Vec<TcpListener>, Fault> {
    let given = activated.take_tcp(SOCKET);
    for name in activated.left() {
        tracing::warn!(
            name,
            "a socket of perilog-controller.socket is not used: FileDescriptorName= is not `{SOCKET}`"
        );
    }
    if !given.is_empty() {
        return Ok(given);
    }
    Ok(vec![bind(address)?])
}

fn bind(address: SocketAddr) -> Result<TcpListener, LinkError> {
    match link::bind(address) {
        // A host without IPv6.
        Err(LinkError::Bind { source, .. })
            if address.ip().is_unspecified()
                && source.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) =>
        {
            link::bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    }
}

/// Returns the port of the enrolment server; 0 if there is none.
fn port_of(config: &Config) -> u16 {
    config.enroll.listen.map_or(0, |listen| listen.port())
}

/// Opens the authority and the tokens of enrolment; `None` if `enroll.listen` is not set, or TLS is off.
fn enrolment(config: &Config, expiries: &Expiries) -> Result<Option<Arc<Enrolment>>, Fault> {
    if config.enroll.listen.is_none() {
        return Ok(None);
    }
    if !config.tls.enabled {
        tracing::warn!("TLS is switched off, and so is enrolment");
        return Ok(None);
    }
    let (cluster, lifetime_ms) = (config.cluster.as_str(), config.enroll.lifetime.as_millis());
    let (directory, munged) = (&config.enroll.directory, config.enroll.munged());
    Ok(Some(Arc::new(Enrolment::open(directory, cluster, lifetime_ms, munged, expiries.clone())?)))
}
