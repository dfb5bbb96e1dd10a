//! Runs a small bench of the history and expects success. The bench itself fails unless each request gets the answer
//! that the seeded jobs have. The test checks no times, and needs `perilog-controller` in the directory of its own
//! program.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_small_history_answers_every_request() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perilog-bench"));
    let output = command.args(["history", "--jobs", "20,40", "--rounds", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sizes = document["sizes"].as_array().unwrap();
    assert_eq!(sizes.iter().map(|size| size["jobs"].as_u64().unwrap()).collect::<Vec<_>>(), [20, 40, 20]);
    for size in sizes {
        for request in ["write", "Show", "Ps", "Status", "Why", "Stats", "Skew"] {
            assert_eq!(size["cpu_us"][request]["n"], 2, "{request}");
        }
        assert!(size["memory"]["rss_kib"].as_u64().unwrap() > 0 && size["restart_ms"]["n"] == 3);
    }
    assert!(document["table"].as_str().unwrap().contains("40 over 20"));
}
