//! Which deliberate defect a program is to have: programs of `cargo xtask mutate` alone are built with this.

/// Name of one, in the environment of tests and of what they start.
const VARIABLE: &str = "PERILOG_DEFECT";
/// For what systemd starts, which has no environment of ours: a file with the same in it.
const FILE: &str = "/etc/perilog/defect";

/// The name that was chosen, if one was.
pub fn chosen() -> Option<String> {
    let of_file = || std::fs::read_to_string(FILE).ok();
    std::env::var(VARIABLE).ok().or_else(of_file).map(|name| name.trim().to_owned())
}
