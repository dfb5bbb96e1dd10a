//! Names on the bus, and the conversion of a unit's name to an object path.

pub(super) const SYSTEMD: &str = "org.freedesktop.systemd1";
pub(super) const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
pub(super) const UNIT: &str = "org.freedesktop.systemd1.Unit";
pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
pub(super) const DBUS: &str = "org.freedesktop.DBus";
pub(super) const DBUS_PATH: &str = "/org/freedesktop/DBus";

/// Returns the object path of a unit: every byte except letters and digits, and a leading digit, becomes `_` and two
/// hexadecimal digits (bus_label_escape of systemd). The conversion needs no call, and units that are not loaded have
/// the same path. An invocation id instead of the name gives the path of the unit with that id
/// (manager_load_unit_from_dbus_path, since 233).
pub(super) fn unit_path(unit: &str) -> String {
    let mut path = String::from("/org/freedesktop/systemd1/unit/");
    for (at, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_as_systemd_escapes_them() {
        for (unit, path) in [
            (
                "perilog-task-prolog-f1.x_y-3-0123456789ab.service",
                "perilog_2dtask_2dprolog_2df1_2ex_5fy_2d3_2d0123456789ab_2eservice",
            ),
            ("0a.slice", "_30a_2eslice"),
            ("-.mount", "_2d_2emount"),
        ] {
            assert_eq!(super::unit_path(unit), format!("/org/freedesktop/systemd1/unit/{path}"));
        }
    }
}
