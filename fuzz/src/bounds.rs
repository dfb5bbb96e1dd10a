//! Bounds of memory: how much a parser may take for an input.

use perilog_core::HostList;
use perilog_host::link::MAX_FRAME;

/// Most bytes of memory for each byte of input.
const FOR_EACH_BYTE: usize = 64;
/// Bytes of memory that a parser may take for an input of any length.
const FOR_ANY: usize = 64 * 1024;

/// A bound that some parsers have instead of the common one.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    pub targets: &'static [&'static str],
    /// Most bytes for each byte of input, and for an input of any length.
    pub for_each_byte: usize,
    pub for_any: usize,
    pub why: &'static str,
}

/// All names of a list, the block from which they move to a larger one, and the offsets of their ends.
const HOSTS: usize = 3 * HostList::MAX_BYTES + 3 * 4 * HostList::MAX_HOSTS;

/// The exceptions from the common bound.
pub const EXCEPTIONS: [Exception; 4] = [
    Exception {
        targets: &["hostlist", "targets", "resource-set", "from-agent", "to-agent", "varlink", "spool"],
        for_each_byte: FOR_EACH_BYTE,
        for_any: HOSTS,
        why: "brackets name a million hosts in a few bytes; HostList::MAX_HOSTS and MAX_BYTES bound a list",
    },
    Exception {
        targets: &["frames"],
        for_each_byte: FOR_EACH_BYTE,
        for_any: 2 * MAX_FRAME + FOR_ANY,
        why: "the codec makes room for a whole frame once it knows its size; only hosts with a certificate get there",
    },
    Exception {
        targets: &["broker"],
        for_each_byte: FOR_EACH_BYTE,
        for_any: 4 * FOR_ANY,
        why: "the edge makes room for 64 KiB of a message of Flux's own broker before they have come",
    },
    Exception {
        targets: &["agent-config", "controller-config", "edge-config", "drop-ins"],
        for_each_byte: 512,
        for_any: 4 * FOR_ANY,
        why: "the TOML parser lists all mistakes of a file, 20 are kept; only root writes the files, of 1 MiB at most",
    },
];

/// Returns the most memory in bytes that the parser of this target may take for an input of this length.
pub(crate) fn of(target: &str, length: usize) -> usize {
    let own = EXCEPTIONS.iter().find(|exception| exception.targets.contains(&target));
    let (for_each_byte, for_any) = own.map_or((FOR_EACH_BYTE, FOR_ANY), |own| (own.for_each_byte, own.for_any));
    for_each_byte * length + for_any
}
