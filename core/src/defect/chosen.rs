//! Which deliberate defect the core's own test program is to have. The one file of the core that asks the world
//! anything: it is compiled into that program alone, and only for `cargo xtask mutate` (`cargo xtask tidy` sees to
//! both).

/// The environment variable that names a defect to tests; `perilog_host::defect` reads the same variable for the code
/// around the core.
const VARIABLE: &str = "PERILOG_DEFECT";

/// Returns the chosen name, if the variable is set.
pub(crate) fn chosen() -> Option<String> {
    std::env::var(VARIABLE).ok().map(|name| name.trim().to_owned())
}
