//! Environment: decides which variables of a requester a script may see. The node's configuration names each variable,
//! never a prefix, because variables such as `FLUX_CONNECTOR_PATH` or `SLURM_CONF` make root run other code.

use std::collections::BTreeMap;

/// Maximum size in bytes of all names and values in one Start.
pub const MAX_BYTES: usize = 64 * 1024;

/// The variables that perilog sets for scripts; no requester and no node configuration overrides them.
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

/// Variable that tells the program for an orphaned hook which process ran the hook. No script gets it.
pub const STARTER: &str = "PERILOG_STARTER";

/// Returns `true` for a variable that only perilog sets, for scripts or for the program of an orphaned hook.
pub fn is_own(name: &str) -> bool {
    OWN.contains(&name) || name == STARTER
}

/// Checks that a shell can use `name` as the name of a variable: `[A-Za-z_][A-Za-z0-9_]*`.
///
/// # Errors
///
/// The offset of the first byte that does not fit; 0 for an empty name.
pub fn check_name(name: &str) -> Result<(), usize> {
    let fits = |(i, b): (usize, u8)| b == b'_' || b.is_ascii_alphabetic() || (i > 0 && b.is_ascii_digit());
    match name.bytes().enumerate().position(|ib| !fits(ib)) {
        Some(at) => Err(at),
        None if name.is_empty() => Err(0),
        None => Ok(()),
    }
}

/// Variables that the loader, a shell, an interpreter or another program reads, many of them before a script's first
/// line. With most of them, a requester could run code as the script's user.
#[rustfmt::skip]
const HONOURED: &[&str] = &[
    "PATH", "IFS", "ENV", "BASH_ENV", "BASHOPTS", "SHELLOPTS", "CDPATH", "GLOBIGNORE", "PS4", "PROMPT_COMMAND",
    "ZDOTDIR", "FPATH", "GCONV_PATH", "LOCPATH",
    "NLSPATH", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF", "MALLOC_TRACE", "TZDIR", "TERMINFO",
    "TERMINFO_DIRS", "TERMCAP", "NODE_OPTIONS",
    "NODE_PATH", "RUBYLIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH",
    "TCLLIBPATH", "LUA_PATH", "LUA_CPATH",
    "LUA_INIT", "AWKPATH", "AWKLIBPATH", "PAGER", "EDITOR", "VISUAL", "LESSOPEN", "LESSCLOSE", "TAR_OPTIONS",
    "RSYNC_RSH", "OPENSSL_CONF", "OPENSSL_MODULES",
    "OPENSSL_ENGINES", "SLURM_CONF", "FLUX_CONNECTOR_PATH", "FLUX_EXEC_PATH", "FLUX_MODULE_PATH",
    "FLUX_PYTHONPATH_PREPEND", "PWD", "OLDPWD",
];
const HONOURED_PREFIXES: &[&str] = &[
    "LD_",
    "GLIBC_",
    "MALLOC_",
    "PYTHON",
    "PERL",
    "GIT_",
    "DYLD_",
    "BASH_FUNC_",
    "SYSTEMD_",
    "SSH_",
    "LUA_PATH_",
    "LUA_CPATH_",
    "LUA_INIT_",
];

/// Returns `true` for a variable that a loader, a shell, an interpreter or another program reads, as far as perilog
/// lists it. perilog never passes such a variable from a requester to a script, even if the node's configuration lists
/// the name.
pub fn is_honoured(name: &str) -> bool {
    HONOURED.contains(&name) || HONOURED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the variables of `offered` that a script may see, and the number of dropped variables. `allowed`: the names
/// in the node's configuration.
///
/// # Errors
/// The reason of the outcome `refused`: an invalid name, a NUL in a value, or more than [`MAX_BYTES`].
pub fn admit(
    offered: &BTreeMap<String, String>,
    allowed: &[String],
) -> Result<(BTreeMap<String, String>, u32), String> {
    let bytes: usize = offered.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_BYTES {
        return Err(format!("the variables of the request have {bytes} bytes, and the limit is {MAX_BYTES}"));
    }
    for (name, value) in offered {
        if let Err(at) = check_name(name) {
            return Err(format!(
                "malformed environment name {name:?} at character {}: expected [A-Za-z_][A-Za-z0-9_]*",
                at + 1
            ));
        }
        if value.contains('\0') {
            return Err(format!("the value of environment variable {name} holds a NUL byte"));
        }
    }
    let admitted: BTreeMap<_, _> = offered
        .iter()
        .filter(|(name, _)| allowed.iter().any(|a| a == *name) && !is_own(name) && !is_honoured(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let dropped = u32::try_from(offered.len() - admitted.len()).unwrap_or(u32::MAX);
    Ok((admitted, dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interpreter_honours_passes_under_no_list() {
        for name in ["LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "IFS", "PERL5LIB", "GCONV_PATH", "ENV", "PATH"] {
            assert!(is_honoured(name), "{name}");
            let offered = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            assert_eq!(admit(&offered, &[name.to_owned()]), Ok((BTreeMap::new(), 1)), "{name}");
        }
        for name in ["FLUX_JOB_ID", "SLURM_JOB_ID", "SLURM_JOB_PARTITION", "PERILOG_X", "LDAP", "ENVOY", "PATHS"] {
            assert!(!is_honoured(name), "{name}");
        }
    }

    #[test]
    fn only_named_variables_pass() {
        let offered = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let allowed = ["FLUX_JOB_ID", "PERILOG_JOB", STARTER].map(str::to_owned);
        let (kept, dropped) = admit(
            &offered(&[
                ("FLUX_JOB_ID", "f1"),
                ("FLUX_CONNECTOR_PATH", "/tmp/x"),
                ("PERILOG_JOB", "forged"),
                (STARTER, "1:2"),
            ]),
            &allowed,
        )
        .unwrap();
        assert_eq!((kept, dropped), (offered(&[("FLUX_JOB_ID", "f1")]), 3));
        for bad in [("A-B", ""), ("", ""), ("1A", ""), ("A\u{e9}", ""), ("A", "x\0y")] {
            assert!(admit(&offered(&[bad]), &allowed).is_err(), "{bad:?}");
        }
        let large = "x".repeat(MAX_BYTES);
        assert!(admit(&offered(&[("FLUX_JOB_ID", &large)]), &allowed).unwrap_err().contains("the limit is 65536"));
    }
}
