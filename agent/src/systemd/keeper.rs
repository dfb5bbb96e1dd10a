//! Keeps a connection to the system bus: connects, reports the units, notices the connection's end (dbus-daemon
//! restarted, daemon-reexec), connects again.

use std::sync::Arc;
use std::time::Duration;

use perilog_core::agent::io::UnitIds;
use perilog_core::task::{Process, UnitFacts};
use perilog_host::clock;
use tokio::sync::mpsc;
use zbus::MessageStream;

use super::bus::{Bus, CALL_LIMIT, Surroundings};
use super::error::BusError;
use super::signals::{self, Interest};
use crate::wakeups::Wakeups;

/// First pause between two tries while the bus is gone; each further pause doubles, up to [`RETRY_CEILING`]. A restart
/// of dbus-daemon takes some 70 ms.
const RETRY_FLOOR: Duration = Duration::from_millis(20);
const RETRY_CEILING: Duration = Duration::from_secs(5);
/// Shortest life of a connection that counts as steady. After shorter ones, the agent waits longer and longer before it
/// connects again, because PID 1 reports all units to each new connection.
const STEADY: Duration = Duration::from_secs(10);
/// Time limit for opening a connection: socket, authentication and the D-Bus call Hello. A bus may accept a connection
/// and stay silent (dbus.socket without its daemon).
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// A unit of perilog that systemd has loaded.
#[derive(Debug, Clone)]
pub struct UnitFound {
    pub stem: String,
    pub facts: UnitFacts,
    pub processes: Vec<Process>,
    pub ids: Option<UnitIds>,
}

/// An event of the connection to the system bus, sent to the agent's event loop.
#[derive(Debug)]
pub enum BusEvent {
    /// A new connection is open. `units`: the loaded units of perilog's tasks. The machine joins: it compares the units
    /// with its tasks.
    Up { bus: Bus, units: Vec<UnitFound> },
    /// The connection is lost; calls in flight fail, and `Up` follows later.
    Lost { why: String },
}

/// Keeps a connection to the system bus: sends `Up` for each new connection, and `Lost` for its end. Enters
/// each changed task into `wakeups` for an inspection. Runs until the receiver of `events` is dropped.
pub async fn keep(events: mpsc::Sender<BusEvent>, wakeups: Arc<Wakeups>, around: Surroundings) {
    let mut pause = RETRY_FLOOR;
    let mut flaps = Flaps::default();
    loop {
        match up(&wakeups, &around).await {
            Ok((bus, units, drained)) => {
                pause = RETRY_FLOOR;
                if events.send(BusEvent::Up { bus, units }).await.is_err() {
                    return;
                }
                let since = clock::mono_ms();
                let why = drained
                    .await
                    .unwrap_or_else(|error| format!("the agent has stopped reading the system bus: {error}"));
                tracing::warn!("{why}; connecting again");
                if events.send(BusEvent::Lost { why }).await.is_err() {
                    return;
                }
                let held = Duration::from_millis(clock::mono_ms().saturating_sub(since));
                tokio::time::sleep(flaps.lost(held)).await;
            }
            Err(error) => {
                tokio::time::sleep(pause).await;
                let longer = (pause * 2).min(RETRY_CEILING);
                // Logs once per outage, at a time when a restart of dbus-daemon would have ended: a person should know
                // by then.
                if longer == RETRY_CEILING && pause < longer {
                    tracing::error!("no systemd on the system bus: {error}; the agent keeps trying");
                }
                pause = longer;
            }
        }
    }
}

/// Computes the delay before the next connection to the bus. The delay is zero after a connection that lasted for
/// [`STEADY`]. It grows with each shorter connection in a row. The first of a row costs no delay, because dbus-daemon
/// or systemd may just be starting.
#[derive(Debug, Default)]
struct Flaps {
    pause: Duration,
}

impl Flaps {
    /// Returns the delay before the next connection, after a lost connection that lasted for `held`.
    fn lost(&mut self, held: Duration) -> Duration {
        if held >= STEADY {
            self.pause = Duration::ZERO;
            return Duration::ZERO;
        }
        let longer = (self.pause * 2).clamp(RETRY_FLOOR, RETRY_CEILING);
        std::mem::replace(&mut self.pause, longer)
    }
}

type Drained = tokio::task::JoinHandle<String>;

/// Connects and reads the units. The returned tokio task drains the connection's messages from the first on, and ends
/// with the reason of the connection's end.
async fn up(wakeups: &Arc<Wakeups>, around: &Surroundings) -> Result<(Bus, Vec<UnitFound>, Drained), BusError> {
    let connect = zbus::connection::Builder::system().method_timeout(CALL_LIMIT).build();
    let connection = tokio::time::timeout(CONNECT_LIMIT, connect)
        .await
        .map_err(|_| BusError::Unknown(format!("the system bus did not answer within {CONNECT_LIMIT:?}")))??;
    let interest = Arc::new(Interest::default());
    let drained = tokio::spawn(signals::drain(MessageStream::from(&connection), interest.clone(), wakeups.clone()));
    let bus = Bus::new(connection, interest, wakeups.clone(), around.clone());
    match list_units(&bus).await {
        // A loss meanwhile is in `drained` and follows right after `Up`.
        Ok(units) => Ok((bus, units, drained)),
        Err(error) => {
            drained.abort();
            Err(error)
        }
    }
}

async fn list_units(bus: &Bus) -> Result<Vec<UnitFound>, BusError> {
    bus.prepare().await?;
    bus.snapshot().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsteady_bus_is_retried_ever_more_slowly() {
        let (mut flaps, short) = (Flaps::default(), STEADY - Duration::from_millis(1));
        // A single loss is a restart: the keeper reconnects at once.
        assert_eq!((flaps.lost(STEADY), flaps.lost(short)), (Duration::ZERO, Duration::ZERO));
        let pauses: Vec<u128> = (0..10).map(|_| flaps.lost(short).as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000]);
        assert_eq!((flaps.lost(STEADY), flaps.lost(short)), (Duration::ZERO, Duration::ZERO), "it held: all is well");
    }
}
