//! Reads from the environment which deliberate defect the core's own test program switches on. No other file of the
//! core reads anything outside the process. Only that test program contains this file, and only for `cargo xtask
//! mutate`; `cargo xtask tidy` checks both.

/// The environment variable that names a defect. `perilog_host::defect` reads the same variable for the other crates.
const VARIABLE: &str = "PERILOG_DEFECT";

/// Returns the name of the defect in the environment variable [`VARIABLE`]; `None`: the variable is not set.
pub(crate) fn chosen() -> Option<String> {
    std::env::var(VARIABLE).ok().map(|name| name.trim().to_owned())
}
