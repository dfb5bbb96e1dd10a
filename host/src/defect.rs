//! Choice of the deliberate defect that a program is to have. Only programs that `cargo xtask mutate` builds contain
//! this module.

/// Environment variable that names the defect, for tests and the processes that they start.
const VARIABLE: &str = "PERILOG_DEFECT";
/// File that names the defect, for units of systemd, which do not inherit the tests' environment.
const FILE: &str = "/etc/perilog/defect";

/// Returns the name of the defect that the environment variable or the file names; `None` without either.
pub fn chosen() -> Option<String> {
    let of_file = || std::fs::read_to_string(FILE).ok();
    std::env::var(VARIABLE).ok().or_else(of_file).map(|name| name.trim().to_owned())
}
