//! Failed calls: systemd refused, or the result is unknown.
//!
//! The difference matters: only an error *reply of systemd itself* proves that a start failed. When systemd dies
//! half-way, the bus driver answers in systemd's place (`NoReply`), so errors of the driver prove nothing.

use zbus::fdo;

/// The reason why a D-Bus call to systemd has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// systemd answered with an error: `name` is the name of the D-Bus error, `text` is for people.
    #[error("{text} ({name})")]
    Refused { name: String, text: String },
    /// A time-out, a broken or overloaded bus, or an unreadable reply: the effect of the call is unknown.
    #[error("{0}")]
    Unknown(String),
}

impl BusError {
    /// Returns `true` if the error has this name, such as `org.freedesktop.systemd1.UnitExists`.
    pub(super) fn is(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { name, .. } if name == wanted)
    }
}

impl From<zbus::Error> for BusError {
    fn from(error: zbus::Error) -> Self {
        match &error {
            zbus::Error::MethodError(name, text, reply) => {
                let driver = reply.header().sender().is_some_and(|sender| sender.as_str() == super::names::DBUS);
                let text = text.clone().unwrap_or_default();
                if driver {
                    Self::Unknown(format!("{text} ({name})"))
                } else {
                    Self::Refused { name: name.to_string(), text }
                }
            }
            zbus::Error::FDO(error) => from_standard(error),
            _ => Self::Unknown(error.to_string()),
        }
    }
}

/// Converts an error that zbus knows by its name; zbus has dropped the error's sender. The result is
/// [`BusError::Refused`] only for errors that the bus driver never sends for a delivered call: such an error comes from
/// systemd, or the call was not delivered. Every other error becomes [`BusError::Unknown`]; after a start, the agent
/// then inspects the task once more.
fn from_standard(error: &fdo::Error) -> BusError {
    use fdo::Error as E;
    use zbus::DBusError as _;
    let refused = matches!(
        error,
        E::InvalidArgs(_)
            | E::InvalidSignature(_)
            | E::PropertyReadOnly(_)
            | E::UnknownProperty(_)
            | E::UnknownMethod(_)
            | E::UnknownInterface(_)
            | E::UnknownObject(_)
            | E::NotSupported(_)
            | E::FileNotFound(_)
            | E::FileExists(_)
            | E::AccessDenied(_)
            | E::InteractiveAuthorizationRequired(_)
    );
    let text = error.description().unwrap_or_default().to_owned();
    let name = error.name().to_string();
    if refused { BusError::Refused { name, text } } else { BusError::Unknown(format!("{text} ({name})")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_proves_nothing() {
        for (error, refused) in [
            (fdo::Error::NoReply("Message recipient disconnected".to_owned()), false),
            (fdo::Error::LimitsExceeded("pending replies".to_owned()), false),
            (fdo::Error::ServiceUnknown(String::new()), false),
            (fdo::Error::Disconnected(String::new()), false),
            (fdo::Error::TimedOut(String::new()), false),
            (fdo::Error::InvalidArgs("Invalid unit name".to_owned()), true),
            (fdo::Error::PropertyReadOnly("Cannot set property X, or unknown property.".to_owned()), true),
            (fdo::Error::AccessDenied(String::new()), true),
        ] {
            let found = BusError::from(zbus::Error::FDO(Box::new(error.clone())));
            assert_eq!(matches!(found, BusError::Refused { .. }), refused, "{error:?}");
        }
        assert!(matches!(BusError::from(zbus::Error::InvalidReply), BusError::Unknown(_)));
    }
}
