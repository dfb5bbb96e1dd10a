//! Which of the variables that came from outside a script may see. Never by prefix: `FLUX_CONNECTOR_PATH` or `SLURM_CONF` would be code
//! execution as root; the node names each one.

use std::collections::BTreeMap;

/// Most bytes of names and values together in one Start.
pub const MAX_BYTES: usize = 64 * 1024;

/// What perilog itself sets; nothing from outside or from the node's configuration overrides it.
pub const OWN: &[&str] = &[
    "PERILOG_JOB",
    "PERILOG_RANK",
    "PERILOG_RANKS",
    "PERILOG_HOSTS",
    "PERILOG_RANKS_FILE",
    "PERILOG_HOSTS_FILE",
    "PERILOG_ACTION",
    "PERILOG_ATTEMPT",
    "PERILOG_USERID",
    "PERILOG_CONTROL",
];

/// Is `name` a name that a shell can use: `[A-Za-z_][A-Za-z0-9_]*`? `Err` has the byte offset of what does not fit.
///
/// # Errors
/// The offset of the first byte that does not fit.
pub fn check_name(name: &str) -> Result<(), usize> {
    let fits = |(i, b): (usize, u8)| b == b'_' || b.is_ascii_alphabetic() || (i > 0 && b.is_ascii_digit());
    match name.bytes().enumerate().position(|ib| !fits(ib)) {
        Some(at) => Err(at),
        None if name.is_empty() => Err(0),
        None => Ok(()),
    }
}

/// The variables of `offered` that `allowed` names, and how many were dropped.
///
/// # Errors
/// Text for `refused`: a name that is none, a NUL in a value, more than [`MAX_BYTES`].
pub fn admit(
    offered: &BTreeMap<String, String>,
    allowed: &[String],
) -> Result<(BTreeMap<String, String>, u32), String> {
    let bytes: usize = offered.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_BYTES {
        return Err(format!("environment of {bytes} bytes, at most {MAX_BYTES} are taken"));
    }
    for (name, value) in offered {
        if let Err(at) = check_name(name) {
            return Err(format!(
                "malformed environment name {name:?}: at character {}: expected [A-Za-z_][A-Za-z0-9_]*",
                at + 1
            ));
        }
        if value.contains('\0') {
            return Err(format!("the value of environment variable {name} holds a NUL byte"));
        }
    }
    let admitted: BTreeMap<_, _> = offered
        .iter()
        .filter(|(name, _)| allowed.iter().any(|a| a == *name) && !OWN.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let dropped = u32::try_from(offered.len() - admitted.len()).unwrap_or(u32::MAX);
    Ok((admitted, dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_variables_pass() {
        let offered = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let allowed = vec!["FLUX_JOB_ID".to_owned(), "PERILOG_JOB".to_owned()];
        let (kept, dropped) = admit(
            &offered(&[("FLUX_JOB_ID", "f1"), ("FLUX_CONNECTOR_PATH", "/tmp/x"), ("PERILOG_JOB", "forged")]),
            &allowed,
        )
        .unwrap();
        assert_eq!((kept, dropped), (offered(&[("FLUX_JOB_ID", "f1")]), 2));
        for bad in [("A-B", ""), ("", ""), ("1A", ""), ("A\u{e9}", ""), ("A", "x\0y")] {
            assert!(admit(&offered(&[bad]), &allowed).is_err(), "{bad:?}");
        }
        let large = "x".repeat(MAX_BYTES);
        assert!(admit(&offered(&[("FLUX_JOB_ID", &large)]), &allowed).unwrap_err().contains("at most 65536"));
    }
}
