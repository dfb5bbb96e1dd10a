//! systemd over the system bus: the only module that knows D-Bus and uses zbus.
//!
//! The module translates and does not decide: core judges what a unit's state *means*. A [`Bus`] is one connection;
//! [`keeper`] makes the next one.
//!
//! ```text
//!   keeper: connect -> probe -> snapshot of units -> Up(bus, units) -> ... -> Lost -> connect ...
//!   bus:    calls (32 in flight, each with a time limit), the interest in signals
//!   signals: drains every message at once into `Wakeups`: an unread stream would stall every call of the connection
//! ```
//!
//! Facts behind the code (systemd 252, by experiment): JobRemoved of a connection's own jobs comes without
//! Manager.Subscribe, and can precede the reply. `Ref` makes PID 1 send PropertiesChanged of that unit only.
//! dbus-daemon refuses more than 128 pending replies of a connection. A missing unit still answers GetAll, as a stub
//! with LoadState=not-found.

mod bus;
mod cgroups;
mod empty;
mod error;
mod facts;
mod fields;
pub mod keeper;
mod names;
mod probe;
mod recipe;
pub(crate) mod runner;
mod signals;
#[cfg(test)]
mod tests;

pub use bus::{Bus, Surroundings};
pub use cgroups::Cgroups;
pub use empty::Emptiness;
pub use error::BusError;
pub use keeper::{BusEvent, UnitFound};
pub use probe::Probed;
pub use recipe::recipe;
