//! The deliberate defect of the core's own test program. This file alone of the core reads the outside world. Only that
//! test program contains this file, and only for `cargo xtask mutate`; `cargo xtask tidy` checks both.

/// The environment variable that names a defect to tests; `perilog_host::defect` reads the same variable for the code
/// around the core.
const VARIABLE: &str = "PERILOG_DEFECT";

/// Returns the chosen name, if the variable is set.
pub(crate) fn chosen() -> Option<String> {
    std::env::var(VARIABLE).ok().map(|name| name.trim().to_owned())
}
