//! `perilog-fuzz`: searches for inputs of one target with libFuzzer, whose options it takes. The variable
//! `PERILOG_FUZZ_TARGET` names the target. `cargo xtask fuzz` calls this program.

#![no_main]

use std::sync::OnceLock;

use perilog_fuzz::{TARGETS, Target};

static TARGET: OnceLock<&Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var("PERILOG_FUZZ_TARGET").unwrap_or_default();
        let target = TARGETS.iter().find(|target| target.name == name);
        let _ = TARGET.set(target.expect("PERILOG_FUZZ_TARGET names a target"));
    },
    |bytes: &[u8]| {
        if let Some(target) = TARGET.get() {
            target.check(bytes);
        }
    }
);
