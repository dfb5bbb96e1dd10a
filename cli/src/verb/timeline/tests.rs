use serde_json::json;

use super::*;
use crate::out::tests::render;
use crate::when;

fn step(script: &str, nth: u32, after_ms: u64, elapsed_ms: u64, status: Value) -> Value {
    json!({"script": script, "digest": "aa", "try": nth, "after_ms": after_ms, "elapsed_ms": elapsed_ms,
           "status": status,
        "tolerable": false, "timed_out": false})
}

fn task(action: &str, rank: u32, outcome: &str, began_ms: u64, steps: Vec<Value>) -> Task {
    let elapsed =
        steps.iter().map(|step| step["after_ms"].as_u64().unwrap() + step["elapsed_ms"].as_u64().unwrap()).max();
    let raw = json!({"attempt": "0", "action": action, "asked_ms": 1_000, "rank": rank, "host": format!("n{rank}"),
                     "outcome": outcome,
        "began_ms": began_ms, "elapsed_ms": elapsed, "steps": steps});
    Task::deserialize(raw).unwrap()
}

fn timeline() -> Timeline {
    let id = "00000000-0000-5000-8000-000000000000";
    let action = |name: &str, ok: &str, verdict: Value, open: Value| {
        json!({"id": id, "name": name, "ranks": "0-3", "began_ms": 1_000,
               "ended_ms": (!verdict.is_null()).then_some(2_300), "timeout_ms": null, "verdict": verdict,
            "ok": ok, "open": open, "ended": []})
    };
    let open = json!([{"job": "f1", "attempt": "0", "action": "epilog", "ranks": "2", "hosts": "n2", "state": "running",
        "why": "10-<umount> (1 of 1)", "age_ms": 42_000, "local": false}]);
    let job = json!({"job": "f1", "userid": null,
                     "attempts": [{"attempt": "0", "open": true, "hosts": "n[0-3]", "actions": [
        action("prolog", "0,3", json!("failed"), json!([])), action("epilog", "", Value::Null, open)]}]});
    let tasks = vec![
        task(
            "prolog",
            0,
            "ok",
            1_012,
            vec![step("10-mount.sh", 1, 2, 400, json!(0)), step("20-gpu.sh", 1, 410, 20, json!(0))],
        ),
        task(
            "prolog",
            1,
            "failed",
            990,
            vec![step("10-mount.sh", 1, 2, 30, json!(7)), step("10-mount.sh", 2, 140, 1_100, json!(137))],
        ),
    ];
    let args = Args { job: JobId::new("f1").unwrap(), action: None, attempt: None, all: false, svg: None };
    Timeline::new(JobView::deserialize(job).unwrap(), tasks, &args)
}

#[test]
fn scripts_then_ranks_then_what_goes_on() {
    let [table, json, quiet] = render(&timeline(), 43_000);
    let began = when::second(1_000);
    assert_eq!(
        table,
        format!(
            "job f1  attempt 0\n\
             \n\
             prolog  failed  {began}, took 1.3s\n\
             \u{20} SCRIPT       RUNS  FAILED   MIN  MEDIAN   MAX  SLOWEST ON\n\
             \u{20} 10-mount.sh     3       2  30ms   400ms  1.1s  n1\n\
             \u{20} 20-gpu.sh       1          20ms    20ms  20ms  n0\n\
             \u{20} RANK  NODE  OUTCOME  AFTER   TOOK  SCRIPTS\n\
             \u{20}    1  n1    failed   -10ms   1.2s  10-mount.sh 30ms (exit 7), 10-mount.sh 1.1s (signal KILL, try \
             2)\n\
             \u{20}    0  n0    ok        12ms  430ms  10-mount.sh 400ms, 20-gpu.sh 20ms\n\
             \u{20} no times of scripts are known for rank 3 (perilog show)\n\
             \n\
             epilog  open  {began}, for 42s\n\
             \u{20} running  n2  10-<umount> (1 of 1)  (42s)\n"
        )
    );
    assert_eq!((json.as_str(), quiet.as_str()), ("", "prolog 0 430\nprolog 1 1240\n"));
}

#[test]
fn the_drawing_is_xml_with_a_bar_for_each_try() {
    let svg = svg::draw(&timeline(), 43_000);
    assert_eq!(svg.matches("<rect class=\"failed\"").count(), 2, "{svg}");
    for part in [
        "<title>n1 (rank 1): 10-mount.sh 30ms, exit 7</title>",
        "<title>n0 (rank 0): 20-gpu.sh 20ms</title>",
        "<title>n2: running: 10-&lt;umount&gt; (1 of 1) for 42s</title>",
        "no times of scripts are known for rank 3",
    ] {
        assert!(svg.contains(part), "{part} is not in\n{svg}");
    }
    // Every element is closed, and no part of a script's name is markup.
    for tag in ["text", "rect", "title", "style", "svg"] {
        let (begins, ends) = (format!("<{tag}"), format!("</{tag}>"));
        let alone = svg.lines().filter(|line| line.contains(&begins) && line.ends_with("/>")).count();
        assert_eq!(svg.matches(&begins).count(), svg.matches(&ends).count() + alone, "{tag}");
    }
    assert!(!svg.contains("<umount>") && !svg.contains("NaN"));
}
