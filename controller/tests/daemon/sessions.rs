//! Tests of sessions with agents: begun actions reach the agents, and the ends of tasks are durable before their Ack.

use perilog_core::message::{FromAgent, Held, HeldState, ToAgent};
use perilog_core::outcome::{Failure, Outcome};
use perilog_core::task::Start;
use serde_json::json;

use crate::agent::{Agent, hello};
use crate::bed::Bed;
use crate::python::{Stream, call, run};

const FAILED: Outcome = Outcome::Failed { why: Failure::Exit(3) };

pub(crate) fn held(start: &Start, state: HeldState) -> Held {
    Held {
        task: start.task,
        job: start.job.clone(),
        attempt: start.attempt,
        action: start.action.clone(),
        limit_ms: None,
        commit: None,
        userid: start.userid,
        local: false,
        state,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_reaches_every_agent_and_each_completion_its_followers() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agents = Vec::new();
    for host in ["n0", "n1", "n2"] {
        agents.push(Agent::connect(&bed, &controller, host).await);
    }
    let mut parameters = run("f1", "n[0-2]");
    parameters["env"] = json!({"FLUX_JOB_ID": "f1"});
    parameters["timeout"] = json!("90s");
    parameters["userid"] = json!(1000);
    let running = call(&bed, "Run", parameters.clone());
    assert_eq!(
        (&running["ranks"], &running["hosts"], &running["attached"]),
        (&json!("0-2"), &json!("n[0-2]"), &json!(false))
    );
    assert_eq!(call(&bed, "Run", parameters)["attached"], true, "the same thing asked twice is the same action");
    let mut events = Stream::open(&bed, "Events", json!({"job": "f1", "follow": true}), &["more"]);
    events.events_until("action-start");
    for (rank, agent) in (0..).zip(&mut agents) {
        let start = agent.accept().await;
        assert_eq!(
            (start.task.rank.0, start.hosts.to_string(), start.timeout_ms),
            (rank, "n[0-2]".to_owned(), Some(90_000))
        );
        assert_eq!((start.env["FLUX_JOB_ID"].as_str(), start.userid), ("f1", Some(1000)));
        agent.finish(&start, if rank == 1 { FAILED } else { Outcome::Ok }).await;
        agent.acked(&start).await;
        let finish = events.events_until("finish").pop().unwrap();
        assert_eq!(finish["context"]["ranks"], rank.to_string(), "as it happens, not at the end");
    }
    let verdict = events.events_until("verdict").pop().unwrap();
    assert_eq!((&verdict["context"]["verdict"], &verdict["context"]["ok"]), (&json!("failed"), &json!("0,2")));
    let status = call(&bed, "Status", json!({}));
    assert_eq!((&status["status"]["online"], &status["status"]["epoch"]), (&json!(3), &json!(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_ends_survive_kill_9_and_others_are_reported_again() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agents = [Agent::connect(&bed, &controller, "n0").await, Agent::connect(&bed, &controller, "n1").await];
    call(&bed, "Run", run("f1", "n[0-1]"));
    agents[0].run(FAILED).await;
    let start = agents[1].accept().await;
    let epoch = agents[1].epoch;
    controller.kill();

    let controller = bed.start();
    let shown = call(&bed, "Show", json!({"job": "f1"}));
    let action = &shown["job"]["attempts"][0]["actions"][0];
    assert_eq!(action["ended"][0]["ended"]["outcome"]["outcome"], "failed", "{shown}");
    // Unfinished work goes on when both are back.
    let _first = Agent::connect(&bed, &controller, "n0").await;
    // The other task ended while no controller ran.
    let mut first = hello("n1", vec![held(&start, HeldState::Ended)]);
    first.link = 2;
    let mut agent = Agent::connect_with(&bed, &controller, first).await;
    assert!(agent.epoch.number == epoch.number + 1 && epoch.admits(agent.epoch));
    agent.finish(&start, Outcome::Ok).await;
    agent.acked(&start).await;
    let events = call(&bed, "Events", json!({"job": "f1"}));
    let events = events["events"].as_array().unwrap();
    assert!(events.iter().map(|e| e["sequence"].as_u64().unwrap()).eq(1..=events.len() as u64));
    assert_eq!(events.last().unwrap()["name"], "verdict");
    // Reported again, it is acknowledged again and counts once.
    agent.finish(&start, Outcome::Ok).await;
    agent.acked(&start).await;
    assert_eq!(call(&bed, "Events", json!({"job": "f1"}))["events"].as_array().unwrap().len(), events.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_message_is_answered_and_the_session_goes_on() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut agent = Agent::connect(&bed, &controller, "n0").await;
    agent.link.writer.send(vec![0x7f, 0xff, 1, 2, 3].into()).await.unwrap();
    assert_eq!(agent.next().await, ToAgent::Unsupported { message: 0x7fff });
    call(&bed, "Run", run("f1", "n0"));
    agent.run(Outcome::Ok).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hello_comes_in_pages_and_a_newer_session_replaces_the_older() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut older = Agent::connect(&bed, &controller, "n0").await;
    call(&bed, "Run", run("f1", "n0"));
    let start = older.accept().await;
    let mut link = crate::agent::link(&bed, &controller, "n0").await;
    let mut page = hello("n0", vec![held(&start, HeldState::Ended)]);
    (page.link, page.more) = (2, true);
    link.writer.send(perilog_proto::encode_from_agent(&FromAgent::Hello(page.clone()))).await.unwrap();
    (page.tasks, page.more) = (Vec::new(), false);
    link.writer.send(perilog_proto::encode_from_agent(&FromAgent::Hello(page))).await.unwrap();
    let mut newer = Agent { host: "n0".to_owned(), link, epoch: older.epoch };
    assert!(matches!(newer.next().await, ToAgent::Welcome { .. }));
    assert!(matches!(crate::agent::next_frame(&mut older.link).await, Ok(None)), "a goodbye, not a cut");
    newer.finish(&start, Outcome::Ok).await;
    newer.acked(&start).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_for_another_host_is_turned_away_with_the_reason() {
    let mut bed = Bed::new();
    let controller = bed.start();
    let mut link = crate::agent::link(&bed, &controller, "n7").await;
    link.writer.send(perilog_proto::encode_from_agent(&FromAgent::Hello(hello("n0", vec![])))).await.unwrap();
    let mut agent = Agent { host: "n7".to_owned(), link, epoch: perilog_core::Epoch { number: 0, nonce: 0 } };
    assert_eq!(agent.next().await, ToAgent::TurnedAway { why: "the certificate is for n7, not for n0".to_owned() });
    assert!(matches!(crate::agent::next_frame(&mut agent.link).await, Ok(None)));
    controller.log.wait_for("the certificate is for n7, not for n0");
    Agent::connect(&bed, &controller, "n0").await;
}
