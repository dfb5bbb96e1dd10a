//! SIGHUP: settings and certificates are read again. What is wrong is logged, and what was in force stays so.

use std::path::{Path, PathBuf};

use perilog_host::notify;
use perilog_host::tls::ServerTls;
use tokio::sync::watch;

use super::inlet::{Entry, Inlet};
use super::start::Hooks;
use crate::config::Config;

pub(super) struct Reload {
    file: PathBuf,
    config: Config,
    inlet: Inlet,
    tls: watch::Sender<Option<ServerTls>>,
    hooks: Hooks,
}

impl Reload {
    pub(super) fn new(
        file: &Path,
        config: Config,
        inlet: Inlet,
        tls: watch::Sender<Option<ServerTls>>,
        hooks: Hooks,
    ) -> Self {
        Self { file: file.to_owned(), config, inlet, tls, hooks }
    }

    pub(super) async fn now(&mut self) {
        notify::reloading();
        let status = match self.apply().await {
            Ok(()) => "configuration read again".to_owned(),
            Err(text) => {
                for line in text.lines() {
                    tracing::error!("{line}");
                }
                "the configuration is wrong; the one before is in force (see the log)".to_owned()
            }
        };
        notify::ready(&status);
    }

    async fn apply(&mut self) -> Result<(), String> {
        let config = Config::load(&self.file).map_err(|error| error.to_string())?;
        let tls =
            config.tls.files().map(|files| ServerTls::load(&files)).transpose().map_err(|error| error.to_string())?;
        for (key, changed) in [
            ("cluster", config.cluster != self.config.cluster),
            ("listen", config.listen != self.config.listen),
            ("store", config.store != self.config.store),
            ("log", config.log != self.config.log),
            ("[api]", config.api != self.config.api),
            ("[metrics]", config.metrics != self.config.metrics),
        ] {
            if changed {
                tracing::warn!("{key} has changed: that takes a restart");
            }
        }
        let mut settings = config.settings();
        // Every action's id is made with it.
        settings.cluster = self.config.settings().cluster;
        self.tls.send_replace(tls);
        self.hooks.configure(&config);
        // An ending writer needs no settings.
        let _ = self.inlet.put(Entry::Settings(settings)).await;
        self.config = Config { cluster: self.config.cluster.clone(), ..config };
        tracing::info!("configuration and certificates were read again");
        Ok(())
    }
}
