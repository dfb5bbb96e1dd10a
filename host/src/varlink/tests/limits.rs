//! Tests with more clients than seats: each client gets an answer at once, and commands find a seat beside waiting
//! clients.

use super::*;

const BOUNDS: Bounds = Bounds { trusted: 4, for_root: 0, waiting: 2, strangers: 4, per_stranger: 2 };

fn text(answer: &Value) -> &str {
    answer["parameters"]["text"].as_str().unwrap()
}

/// Regression test: with 768 waiting clients, the server closed every further connection without a message, also the
/// connection of the command for which they waited.
#[tokio::test]
async fn commands_find_a_connection_beside_those_that_wait() {
    let bed = bed_of(BOUNDS);
    let mut waiting = Vec::new();
    for _ in 0..BOUNDS.waiting {
        let mut raw = Raw::connect(&bed).await;
        raw.send(json!({ "method": "test.echo.Wait", "more": true })).await;
        assert_eq!(raw.next().await.unwrap()["continues"], true);
        waiting.push(raw);
    }
    let mut beyond = Raw::connect(&bed).await;
    let turned_away = beyond.call("test.echo.Wait", Value::Null).await;
    assert_eq!(
        (&turned_away["error"], text(&turned_away).contains("2 clients wait")),
        (&json!("test.echo.Busy"), true)
    );
    // The connection that could not wait is still usable.
    assert_eq!(text(&beyond.call("test.echo.Echo", json!({ "text": "b" })).await), "b");
    for _ in 0..100 {
        echoes(&bed).await;
    }
}

#[tokio::test]
async fn idle_connections_give_way_and_are_notified() {
    let bed = bed_of(BOUNDS);
    let mut idle = Vec::new();
    for _ in 0..BOUNDS.trusted {
        let mut raw = Raw::connect(&bed).await;
        raw.call("test.echo.Echo", json!({ "text": "" })).await;
        idle.push(raw);
    }
    echoes(&bed).await;
    let reported = idle[0].next().await.unwrap();
    assert_eq!((&reported["error"], text(&reported).contains("idle")), (&json!("test.echo.Busy"), true));
    assert_eq!(idle[0].next().await, None);
    assert_eq!(text(&idle[3].call("test.echo.Echo", json!({ "text": "d" })).await), "d");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_past_the_limit_of_connections_is_refused_at_once() {
    let bed = strange_bed(BOUNDS);
    let mut busy = Vec::new();
    for _ in 0..BOUNDS.per_stranger {
        let mut raw = Raw::connect(&bed).await;
        raw.send(json!({ "method": "test.echo.Forever", "more": true })).await;
        raw.next().await.unwrap();
        busy.push(raw);
    }
    let turned_away = Raw::connect(&bed).await.next().await.unwrap();
    assert_eq!(turned_away["error"], "test.echo.Busy");
    assert!(text(&turned_away).contains("has 2 connections already"), "{turned_away}");
    let path = bed.path.clone();
    let blocking = tokio::task::spawn_blocking(move || {
        let error = Client::connect(&path).unwrap().call("test.echo.Echo", json!({ "text": "" })).unwrap_err();
        assert!(matches!(&error, CallError::Remote { name, .. } if name == "test.echo.Busy"), "{error}");
    });
    blocking.await.unwrap();
}
