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
    /// Returns `true` for an input that needs the exception; any other has the common bound.
    pub needed_by: fn(&[u8]) -> bool,
    pub why: &'static str,
}

/// All names of a list, the block from which they move to a larger one, and the offsets of their ends.
const HOSTS: usize = 3 * HostList::MAX_BYTES + 3 * 4 * HostList::MAX_HOSTS;

/// The exceptions from the common bound.
pub const EXCEPTIONS: [Exception; 5] = [
    Exception {
        targets: &["hostlist", "targets", "from-agent", "to-agent"],
        for_each_byte: FOR_EACH_BYTE,
        for_any: HOSTS,
        needed_by: has_brackets,
        why: "brackets name a million hosts in a few bytes; HostList::MAX_HOSTS and MAX_BYTES bound a list",
    },
    Exception {
        targets: &["resource-set", "varlink", "spool"],
        for_each_byte: FOR_EACH_BYTE,
        for_any: HOSTS,
        needed_by: has_brackets_in_json,
        why: "brackets name a million hosts in a few bytes; HostList::MAX_HOSTS and MAX_BYTES bound a list",
    },
    Exception {
        targets: &["frames"],
        for_each_byte: FOR_EACH_BYTE,
        for_any: 2 * MAX_FRAME + FOR_ANY,
        needed_by: |_| true,
        why: "the codec makes room for a whole frame once it knows its size; only hosts with a certificate get there",
    },
    Exception {
        targets: &["broker"],
        for_each_byte: FOR_EACH_BYTE,
        for_any: 4 * FOR_ANY,
        needed_by: |_| true,
        why: "the edge makes room for 64 KiB of a message of Flux's own broker before they have come",
    },
    Exception {
        targets: &["agent-config", "controller-config", "edge-config", "drop-ins"],
        for_each_byte: 512,
        for_any: 4 * FOR_ANY,
        needed_by: |_| true,
        why: "the TOML parser lists all mistakes of a file, 20 are kept; only root writes the files, of 1 MiB at most",
    },
];

/// Returns the most memory in bytes that the parser of this target may take for this input.
pub(crate) fn of(target: &str, input: &[u8]) -> usize {
    let own = EXCEPTIONS.iter().find(|own| own.targets.contains(&target) && (own.needed_by)(input));
    let (for_each_byte, for_any) = own.map_or((FOR_EACH_BYTE, FOR_ANY), |own| (own.for_each_byte, own.for_any));
    for_each_byte * input.len() + for_any
}

/// Returns `true` if a list of hosts in these bytes may have brackets: `[`, and the digit with which an id begins.
fn has_brackets(input: &[u8]) -> bool {
    input.windows(2).any(|pair| pair[0] == b'[' && pair[1].is_ascii_digit())
}

/// Returns `true` if a text of JSON in these bytes may be a list of hosts with brackets. An array is none. Bracket and
/// digit may be escaped: `"n\u005b\u0030-9]"`.
fn has_brackets_in_json(input: &[u8]) -> bool {
    const ESCAPED: &[u8] = b"\\u005b";
    let (mut in_text, mut at) = (false, 0);
    while let Some(byte) = input.get(at) {
        match byte {
            // No text has a control character: here another record begins.
            0..=0x1f => in_text = false,
            b'"' => in_text = !in_text,
            b'[' if in_text && input.get(at + 1).is_some_and(|next| next.is_ascii_digit() || *next == b'\\') => {
                return true;
            }
            b'\\' if in_text => {
                if input.get(at..at + ESCAPED.len()).is_some_and(|escape| escape.eq_ignore_ascii_case(ESCAPED)) {
                    return true;
                }
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_a_million_hosts_is_for_inputs_with_brackets() {
        for (target, input, is_wide) in [
            ("hostlist", "n[0-9]", true),
            ("hostlist", "n1,n2", false),
            ("hostlist", "n[", false),
            ("hostlist", "n[x]", false),
            ("to-agent", "\u{1}n[0-9]\u{2}", true),
            ("from-agent", "\u{1}n0\u{2}", false),
            ("resource-set", r#"{"nodelist":["n[0-9]"]}"#, true),
            ("resource-set", r#"{"nodelist":["n0","n1"],"ids":[0,1]}"#, false),
            ("resource-set", r#"{"nodelist":["n\u005b0-9]"]}"#, true),
            ("resource-set", r#"{"nodelist":["n\u005B0-9]"]}"#, true),
            ("resource-set", r#"{"nodelist":["n[\u0030-9]"]}"#, true),
            ("resource-set", r#"{"\\":[0],"\"":[0]}"#, false),
            ("spool", "{\"hosts\":\"n[0-9]\"}", true),
            ("spool", "\"torn\n[0]", false),
            ("varlink", "{\"job\":\"a\"}\0{\"nodes\":\"n[0-9]\"}", true),
            ("idset", "[0-9]", false),
        ] {
            let common = FOR_EACH_BYTE * input.len() + FOR_ANY;
            let most = of(target, input.as_bytes());
            assert_eq!(most, if is_wide { FOR_EACH_BYTE * input.len() + HOSTS } else { common }, "{target} {input:?}");
        }
        assert!(of("frames", b"") > of("ids", b""));
    }
}
