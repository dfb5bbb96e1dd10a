//! Which deliberate defect the core's own test program is to have. The one file of the core that asks the world
//! anything: it is compiled into that program alone, and only for `cargo xtask mutate` (`cargo xtask tidy` sees to
//! both).

/// Name of one, in the environment of tests: as `perilog_host::defect` reads it for what is built around the core.
const VARIABLE: &str = "PERILOG_DEFECT";

/// The name that was chosen, if one was.
pub(crate) fn chosen() -> Option<String> {
    std::env::var(VARIABLE).ok().map(|name| name.trim().to_owned())
}
