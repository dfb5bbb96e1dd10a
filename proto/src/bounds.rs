//! Bounds on the parts of a frame. Together the bounds keep every message under [`crate::MAX_MESSAGE`]; tests build the
//! largest message of each kind.

use std::collections::BTreeMap;

use perilog_core::environment::MAX_BYTES as MAX_ENV_BYTES;
use perilog_core::{HostList, IdSet};

use crate::frame::MAX_MESSAGE;

/// Maximum size in bytes of the texts of an action's ranks (RFC 22) and hosts (RFC 29, folded), together. The rest of a
/// frame holds the largest environment that perilog admits (its bytes, and at most twelve more for each variable), and
/// 8 KiB of ids. For scale: 65,536 hosts without a pattern in their names, at eight bytes each, take 576 KiB; every
/// second rank of 131,072 takes 394 KiB.
pub const MAX_LAYOUT_TEXT: usize = MAX_MESSAGE - (MAX_ENV_BYTES + 12 * MAX_ENV + 8 * 1024);
/// Maximum number of variables of a Start; together they have at most [`perilog_core::environment::MAX_BYTES`].
pub const MAX_ENV: usize = 4096;
/// Maximum size in bytes of one part of an answer. The agent sends a longer answer in several parts.
pub const MAX_ANSWER: usize = 256 * 1024;
/// Maximum number of tasks in a Forget.
pub const MAX_FORGET: usize = 16_000;
/// Maximum number of tasks in a page of Hello; a page of this size always fits a frame. The agent's machine makes no
/// larger pages, and the decoder refuses larger pages.
pub const MAX_PAGE: usize = 512;

/// Maximum size in bytes of one text for people, such as a reason.
pub(crate) const TEXT: usize = 4 * 1024;
/// Maximum size in bytes of each text for people in a list, if the message would not fit a frame otherwise.
pub(crate) const LISTED_TEXT: usize = 256;
/// Maximum number of lingering processes in a phase: enough for an operator to inspect.
pub(crate) const PROCESSES: usize = 32;
/// Maximum number of lingering processes per task in a page of Hello, if the page would not fit a frame otherwise.
pub(crate) const LISTED_PROCESSES: usize = 2;

/// The error for a Start that would not fit a frame: the part that is too large, its size, and the most that fits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{is} {what}, at most {most} are taken")]
pub struct TooLarge {
    pub what: &'static str,
    pub is: usize,
    pub most: usize,
}

/// Checks that a Start with these ranks, hosts and variables fits a frame. The controller checks this before it adds a
/// job or begins an action. The encoder cuts nothing from a Start within the bounds.
///
/// # Errors
/// [`TooLarge`] names the part that does not fit.
pub fn check_start(ranks: &IdSet, hosts: &HostList, env: &BTreeMap<String, String>) -> Result<(), TooLarge> {
    check_layout(ranks.to_string().len(), hosts.to_string().len())?;
    let parts = [
        ("bytes of environment", env.iter().map(|(name, value)| name.len() + value.len()).sum(), MAX_ENV_BYTES),
        ("environment variables", env.len(), MAX_ENV),
    ];
    match parts.into_iter().find(|(_, is, most)| is > most) {
        Some((what, is, most)) => Err(TooLarge { what, is, most }),
        None => Ok(()),
    }
}

/// Checks that the texts of a Start's ranks and hosts have together at most [`MAX_LAYOUT_TEXT`] bytes. Then the Start
/// fits a frame with any environment that passes [`check_start`]. `ranks`, `hosts`: the sizes of the texts in bytes.
pub(crate) const fn check_layout(ranks: usize, hosts: usize) -> Result<(), TooLarge> {
    let is = ranks.saturating_add(hosts);
    if is <= MAX_LAYOUT_TEXT {
        return Ok(());
    }
    Err(TooLarge { what: "bytes in the list of ranks and the list of hosts", is, most: MAX_LAYOUT_TEXT })
}

/// Returns the beginning of `text`: whole characters, at most `most` bytes.
pub(crate) fn clip(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
