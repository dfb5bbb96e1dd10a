//! Runs a small core bench and expects success. The bench itself fails unless every rank is released exactly once, one
//! release of the job says `final`, and the release hook gets the releases. The test checks no times.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_small_core_bench_releases_every_rank() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perilog-bench-core"));
    let output = command.args(["--ranks", "64,256", "--rounds", "2", "--jobs", "500"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = document["cases"].as_array().unwrap();
    assert_eq!(
        cases.iter().map(|case| case["case"].as_str().unwrap()).collect::<Vec<_>>(),
        ["each", "batches", "together", "bad"]
    );
    for case in cases {
        let sizes = case["sizes"].as_array().unwrap();
        // The first size comes once more at the end, for the difference between equal measurements.
        assert_eq!(sizes.iter().map(|of| of["ranks"].as_u64().unwrap()).collect::<Vec<_>>(), [64, 256, 64]);
        let many = &sizes[1];
        assert_eq!(many["ms"]["raw"].as_array().unwrap().len(), 2);
        assert!(many["memory_most"].as_i64().unwrap() > 0 && many["record_bytes"].as_u64().unwrap() > 0);
    }
    assert!(document["table"].as_str().unwrap().contains("256 ranks over 64"));
    assert!(document["table"].as_str().unwrap().contains("500 finished jobs over none"));
}
