//! Runs a small fan bench and expects success. The bench itself fails unless every rank is ok in every round, and each
//! start is acknowledged, even when the controller is killed with -9. The test checks no times, and needs
//! `perilog-controller` in the directory of its own program.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_small_fan_counts_every_completion() {
    let (agents, rounds) = (20, 3);
    let mut command = Command::new(env!("CARGO_BIN_EXE_perilog-bench"));
    let output = command.args(["fan", "--agents", "20", "--rounds", "3"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let size = &document["sizes"][0];
    assert_eq!(size["agents"], agents);
    for samples in ["real_ms", "bare_ms", "bare_again_ms"] {
        assert_eq!(size[samples]["n"], rounds, "{samples}");
        assert_eq!(size[samples]["raw"].as_array().unwrap().len(), rounds, "{samples}");
    }
    for herd in ["idle", "live", "bare", "bare_again", "resumed"] {
        assert!(size["herds"][herd]["all_ms"].as_f64().unwrap() > 0.0, "{herd}");
    }
    assert!(document["table"].as_str().unwrap().contains("bare wire, 20 agents"));
}
