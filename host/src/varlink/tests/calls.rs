//! Tests with well-behaved clients, and the errors for their mistakes.

use super::*;

#[tokio::test]
async fn each_mistake_has_its_error_and_the_connection_goes_on() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    for (method, parameters, expect) in [
        ("test.echo.Nope", json!({}), error("MethodNotFound", "method", "Nope")),
        ("test.none.Echo", json!({}), error("InterfaceNotFound", "interface", "test.none")),
        ("", json!({}), error("InterfaceNotFound", "interface", "")),
        ("Echo", json!({}), error("InterfaceNotFound", "interface", "")),
        ("test.echo.", json!({}), error("MethodNotFound", "method", "")),
        ("test.echo.Echo", json!({}), error("InvalidParameter", "parameter", "missing field `text`")),
        ("test.echo.Echo", json!([1]), error("InvalidParameter", "parameter", "parameters")),
        (
            "test.echo.Echo",
            json!({ "text": "a", "times": "x" }),
            error("InvalidParameter", "parameter", "times: invalid type: string \"x\", expected usize"),
        ),
        ("test.echo.Silent", json!({}), error("MethodNotImplemented", "method", "test.echo.Silent")),
        ("org.varlink.service.Nope", json!({}), error("MethodNotFound", "method", "Nope")),
        (
            "org.varlink.service.GetInterfaceDescription",
            json!({ "interface": "no.such" }),
            error("InterfaceNotFound", "interface", "no.such"),
        ),
        (
            "test.echo.Count",
            json!({ "to": 2 }),
            json!({ "error": "org.varlink.service.ExpectedMore", "parameters": {} }),
        ),
        ("test.echo.Echo", json!({ "text": "ab", "times": 2 }), json!({ "parameters": { "text": "abab" } })),
        ("test.echo.Elsewhere", Value::Null, json!({ "parameters": {} })),
    ] {
        assert_eq!(raw.call(method, parameters).await, expect, "{method}");
    }
    raw.send(json!({ "method": "test.echo.Echo", "upgrade": true })).await;
    assert_eq!(raw.next().await.unwrap(), error("InvalidParameter", "parameter", "upgrade"));
    let unknown = raw.call("test.echo.Echo", json!({ "text": "", "tims": 1 })).await;
    assert!(unknown["parameters"]["parameter"].as_str().unwrap().contains("`tims`"), "{unknown}");
}

#[tokio::test]
async fn the_service_describes_itself() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    let info = raw.call("org.varlink.service.GetInfo", Value::Null).await;
    assert_eq!(info["parameters"]["interfaces"], json!(["org.varlink.service", "test.echo"]));
    assert_eq!(info["parameters"]["vendor"], "v");
    let description =
        raw.call("org.varlink.service.GetInterfaceDescription", json!({ "interface": "test.echo" })).await;
    assert_eq!(description["parameters"]["description"], TEXT);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_oneway_ones_never() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    let mut bytes = Vec::new();
    for i in 0..50 {
        let oneway = i % 5 == 0;
        let message = json!({ "method": "test.echo.Echo", "parameters": { "text": i.to_string() }, "oneway": oneway });
        bytes.extend_from_slice(message.to_string().as_bytes());
        bytes.push(0);
    }
    bytes.extend_from_slice(b"{\"method\":\"test.echo.Count\",\"parameters\":{\"to\":3},\"more\":true}\0");
    raw.stream.write_all(&bytes).await.unwrap();
    for i in (0..50).filter(|i| i % 5 != 0) {
        assert_eq!(raw.next().await.unwrap()["parameters"]["text"], i.to_string());
    }
    for (n, continues) in [(1, json!(true)), (2, json!(true)), (3, Value::Null)] {
        let reply = raw.next().await.unwrap();
        assert_eq!((&reply["parameters"]["n"], &reply["continues"]), (&json!(n), &continues));
    }
    assert_eq!(bed.service.calls.load(Ordering::SeqCst), 51);
}

/// The controller commits two requests together if both begin together. The first call here ends only after the second
/// has begun.
#[tokio::test]
async fn two_requests_that_arrive_together_begin_together() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    // The read buffer of a connection has 1 KiB.
    for size in [0, 1_000, 40_000] {
        let both = ["test.echo.Slow", "test.echo.Hurry"]
            .map(|method| json!({ "method": method, "parameters": { "x": "x".repeat(size) } }).to_string() + "\0");
        raw.stream.write_all(both.concat().as_bytes()).await.unwrap();
        for _ in both {
            let reply = tokio::time::timeout(PATIENCE, raw.next()).await.expect("the second call waits for the first");
            assert_eq!(reply.unwrap(), json!({ "parameters": {} }));
        }
    }
}

#[tokio::test]
async fn a_request_in_single_bytes_is_one_request() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    for byte in b"{\"method\":\"test.echo.Echo\",\"parameters\":{\"text\":\"\xc3\xa9\"}}\0" {
        raw.stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(raw.next().await.unwrap()["parameters"]["text"], "é");
}

#[tokio::test]
async fn a_stream_learns_that_its_client_left() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    raw.send(json!({ "method": "test.echo.Forever", "more": true })).await;
    raw.next().await.unwrap();
    let left = bed.service.client_left.notified();
    tokio::pin!(left);
    assert!(futures_util::poll!(left.as_mut()).is_pending());
    drop(raw);
    tokio::time::timeout(PATIENCE, left).await.expect("the stream does not learn that its client left");
}

#[tokio::test]
async fn a_client_that_only_stopped_writing_gets_its_answer() {
    let bed = bed();
    let mut raw = Raw::connect(&bed).await;
    raw.send(json!({ "method": "test.echo.Slow" })).await;
    raw.stream.shutdown().await.unwrap();
    echoes(&bed).await;
    bed.service.slow.notify_one();
    assert_eq!(raw.next().await.unwrap(), json!({ "parameters": {} }));
    assert_eq!(raw.next().await, None);
}

#[tokio::test]
async fn the_peer_is_who_the_kernel_says() {
    let bed = bed();
    let who = Raw::connect(&bed).await.call("test.echo.Who", Value::Null).await;
    let who = &who["parameters"];
    assert_eq!(who["uid"], rustix::process::geteuid().as_raw());
    assert_eq!(who["gid"], rustix::process::getegid().as_raw());
    assert_eq!(who["pid"], std::process::id());
    assert_eq!(who["own"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_blocking_client_calls_and_streams() {
    let bed = bed();
    let path = bed.path.clone();
    let blocking = tokio::task::spawn_blocking(move || {
        let mut client = Client::connect(&path).unwrap();
        assert_eq!(client.call("test.echo.Echo", json!({ "text": "x" })).unwrap(), json!({ "text": "x" }));
        let counted: Vec<_> =
            client.call_more("test.echo.Count", json!({ "to": 3 })).unwrap().map(|r| r.unwrap()["n"].clone()).collect();
        assert_eq!(counted, [1, 2, 3]);
        // An error of the service ends the call, not the connection.
        let remote = client.call("test.echo.Nope", Value::Null).unwrap_err();
        assert!(
            matches!(&remote, CallError::Remote { name, .. } if name == "org.varlink.service.MethodNotFound"),
            "{remote}"
        );
        let mut refused = client.call_more("test.echo.Count", json!({})).unwrap();
        assert!(matches!(refused.next(), Some(Err(CallError::Remote { .. }))));
        assert!(refused.next().is_none());
        client.call("test.echo.Echo", json!({ "text": "x" })).unwrap();
        // Leaving a stream makes the connection useless, and later calls report that.
        client.call_more("test.echo.Count", json!({ "to": 5 })).unwrap().next().unwrap().unwrap();
        assert!(matches!(client.call("test.echo.Echo", json!({ "text": "x" })), Err(CallError::Closed)));
        let mut client = Client::connect(&path).unwrap();
        let limit = Duration::from_millis(50);
        client.set_timeout(Some(limit)).unwrap();
        assert!(matches!(client.call("test.echo.Slow", Value::Null), Err(CallError::TimedOut(l)) if l == limit));
        assert!(matches!(client.call("test.echo.Echo", json!({})), Err(CallError::Closed)));
        let mut client = Client::connect(&path).unwrap();
        assert!(matches!(client.call("test.echo.Panic", Value::Null), Err(CallError::Closed)));
        assert!(matches!(client.call("test.echo.Panic", Value::Null), Err(CallError::Closed)));
        let nobody = Client::connect(&path.with_file_name("nobody")).unwrap_err();
        assert!(matches!(&nobody, CallError::NotThere { .. }) && nobody.to_string().contains("nobody"), "{nobody}");
    });
    blocking.await.unwrap();
}
