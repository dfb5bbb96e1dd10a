//! Tests of the method `NodeForget`: the controller forgets a dismantled node, also over a restart.

use serde_json::json;

use crate::agent::Agent;
use crate::bed::Bed;
use crate::python::{call, refused};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_node_stays_forgotten_over_a_restart() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let agents = [Agent::connect(&bed, &controller, "n0").await, Agent::connect(&bed, &controller, "n1").await];
    let (error, why) = refused(&bed, "NodeForget", json!({"nodes": "n0"}), &[]);
    assert!(error.ends_with(".Refused") && why["code"] == "conflict", "{error} {why}");
    let [gone, _stays] = agents;
    drop(gone);
    controller.log.wait_for("offline:");
    assert_eq!(call(&bed, "NodeForget", json!({"nodes": "n0"}))["tasks"], 1);
    controller.log.wait_for("removed this node from the controller");
    controller.kill();
    let _controller = bed.start();
    let nodes = call(&bed, "Nodes", json!({}));
    let names: Vec<_> = nodes["nodes"].as_array().unwrap().iter().map(|node| node["host"].clone()).collect();
    assert_eq!(names, ["n1"]);
}
