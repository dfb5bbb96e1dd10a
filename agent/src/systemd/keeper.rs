//! Keeps a connection to the system bus: makes it, tells what is there, notices its end (dbus-daemon restarted, daemon-reexec), makes the next.

use std::sync::Arc;
use std::time::Duration;

use perilog_core::agent::io::UnitIds;
use perilog_core::task::{Process, UnitFacts};
use tokio::sync::mpsc;
use zbus::MessageStream;

use super::bus::{Bus, CALL_LIMIT, Surroundings};
use super::error::BusError;
use super::signals::{self, Interest};
use crate::stir::Stir;

/// Between two tries, doubled up to the ceiling. Only while the bus is gone; a restart of dbus-daemon takes some 70 ms.
const RETRY_FLOOR: Duration = Duration::from_millis(20);
const RETRY_CEILING: Duration = Duration::from_secs(5);
/// For socket, authentication and Hello: a bus that accepts and says nothing (dbus.socket without its daemon) is not waited for longer.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// A unit of ours that systemd has loaded.
#[derive(Debug, Clone)]
pub struct UnitFound {
    pub stem: String,
    pub facts: UnitFacts,
    pub processes: Vec<Process>,
    pub ids: Option<UnitIds>,
}

/// What the keeper tells the loop.
#[derive(Debug)]
pub enum BusEdge {
    /// A connection stands, and these are all units of ours: join.
    Up { bus: Bus, units: Vec<UnitFound> },
    /// It is gone; calls in flight fail, and `Up` follows in time.
    Lost { why: String },
}

/// Runs until the loop stops listening.
pub async fn keep(edges: mpsc::Sender<BusEdge>, stir: Arc<Stir>, around: Surroundings) {
    let mut pause = RETRY_FLOOR;
    loop {
        match up(&stir, &around).await {
            Ok((bus, units, drained)) => {
                pause = RETRY_FLOOR;
                if edges.send(BusEdge::Up { bus, units }).await.is_err() {
                    return;
                }
                let why = drained.await.unwrap_or_else(|error| format!("the task that reads the bus ended: {error}"));
                tracing::warn!("{why}; connecting again");
                if edges.send(BusEdge::Lost { why }).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tokio::time::sleep(pause).await;
                let longer = (pause * 2).min(RETRY_CEILING);
                // Said once per outage, when it has become a matter for people: a restart of dbus-daemon is over by then.
                if longer == RETRY_CEILING && pause < longer {
                    tracing::error!("no systemd on the system bus: {error}; trying again and again");
                }
                pause = longer;
            }
        }
    }
}

type Drained = tokio::task::JoinHandle<String>;

/// Connects and looks around. The stream is drained from the first message on.
async fn up(stir: &Arc<Stir>, around: &Surroundings) -> Result<(Bus, Vec<UnitFound>, Drained), BusError> {
    let connect = zbus::connection::Builder::system().method_timeout(CALL_LIMIT).build();
    let connection = tokio::time::timeout(CONNECT_LIMIT, connect)
        .await
        .map_err(|_| BusError::Unknown(format!("the system bus did not answer within {CONNECT_LIMIT:?}")))??;
    let interest = Arc::new(Interest::default());
    let drained = tokio::spawn(signals::drain(MessageStream::from(&connection), interest.clone(), stir.clone()));
    let bus = Bus::new(connection, interest, stir.clone(), around.clone());
    match look_around(&bus).await {
        // A loss on the way is in `drained` and comes right after `Up`.
        Ok(units) => Ok((bus, units, drained)),
        Err(error) => {
            drained.abort();
            Err(error)
        }
    }
}

async fn look_around(bus: &Bus) -> Result<Vec<UnitFound>, BusError> {
    bus.prepare().await?;
    if !bus.has_systemd().await? {
        return Err(BusError::Unknown("systemd is not on the system bus".to_owned()));
    }
    bus.snapshot().await
}
