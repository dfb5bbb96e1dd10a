//! The inputs that are kept: each corpus, and each input that once broke a target.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use perilog_fuzz::{EXCEPTIONS, TARGETS};
use perilog_tests::corpus;

fn files(of: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(of);
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn inputs(of: &str, name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(of).join(name);
    let text = fs::read_to_string(&path).unwrap_or_default();
    corpus::read(&text).unwrap_or_else(|| panic!("{}: an escape is malformed", path.display()))
}

#[test]
fn each_target_has_a_corpus_and_each_file_a_target() {
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names.len(), TARGETS.len());
    assert_eq!(files("corpus"), names);
    for of in ["dictionary", "regressions"] {
        let others: Vec<String> = files(of).difference(&names).cloned().collect();
        assert_eq!(others, ["README.md"], "{of}");
    }
    assert!(EXCEPTIONS.iter().flat_map(|exception| exception.targets).all(|target| names.contains(*target)));
}

#[test]
fn inputs_that_are_kept_break_no_target() {
    for target in TARGETS {
        for input in ["corpus", "regressions"].iter().flat_map(|of| inputs(of, target.name)) {
            target.check(&input);
            // A cut input is another one.
            target.check(&input[..input.len() / 2]);
        }
    }
}
