//! `perilog token`: its requests, the tokens that it shows only once, its exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod fake;

use fake::{Call, CliOutput, Done, Error, Place};
use serde_json::{Value, json};

#[test]
fn tokens_are_shown_once_and_listed_without_themselves() {
    let made = |until_ms: u64| {
        json!({"tokens": [
            {"host": "n0", "token": "4sJm", "until_ms": until_ms, "brand_new": 1},
            {"host": "n1", "token": "_x-9", "until_ms": until_ms}]})
    };
    let shown =
        "NODE  UNTIL                 TOKEN\nn0    2026-11-22T10:10:00Z  4sJm\nn1    2026-11-22T10:10:00Z  _x-9\n";
    let once = "perilog: each token is valid once, for its node; tokens are not shown again\n";
    let until_ms = 1_795_342_200_000;
    // Only the table warns that tokens are shown once.
    for (args, asked_for, out, err) in [
        (&["n[0-1]"][..], json!({"nodes": "n[0-1]"}), shown.to_owned(), once),
        (&["n[0-1]", "--for", "10m", "-q"], json!({"nodes": "n[0-1]", "lasts": "600s"}), "4sJm\n_x-9\n".to_owned(), ""),
        (&["n[0-1]", "--json"], json!({"nodes": "n[0-1]"}), format!("{}\n", made(until_ms)), ""),
    ] {
        let args = [&["token", "create"], args].concat();
        let (output, asked) = Place::new().ask(&args, vec![vec![Call("TokenMake"), Done(made(until_ms))]]);
        assert_eq!((output.code, output.out, output.err.as_str()), (Some(0), out, err), "{args:?}");
        assert_eq!(asked, [asked_for], "{args:?}");
    }

    // A controller that knows how says the line to type.
    let mut made_how = made(until_ms);
    made_how["command"] = json!("perilog init node --controller ctl --pin 5f0c");
    let (output, _) = Place::new().ask(&["token", "create", "n[0-1]"], vec![vec![Call("TokenMake"), Done(made_how)]]);
    assert!(
        output.out.contains("\n  n1# perilog init node --controller ctl --pin 5f0c --token _x-9\n"),
        "{}",
        output.out
    );

    // Used; over; good for ever, as far as this test lives.
    let far_ms = 4_102_444_799_000;
    let token = |host: &str, until_ms: u64, used_ms: Value| {
        json!({"host": host, "made_ms": 1_795_341_600_000_u64, "until_ms": until_ms, "by": 7,
                           "used_ms": used_ms})
    };
    let all = || {
        json!({"tokens": [token("n0", far_ms, json!(1_795_341_660_000_u64)), token("n1", 1, Value::Null),
                                   token("n2", far_ms, Value::Null)]})
    };
    let rows = "MADE                  NODE  BY     STATE\n\
                2026-11-22T10:00:00Z  n0    uid 7  used 2026-11-22T10:01:00Z\n\
                2026-11-22T10:00:00Z  n1    uid 7  expired\n\
                2026-11-22T10:00:00Z  n2    uid 7  good until 2099-12-31T23:59:59Z\n";
    for (args, reply, out) in [
        (&["token", "list"][..], all(), rows.to_owned()),
        (&["token", "list", "-q"], all(), "n2\n".to_owned()),
        (&["token", "list", "--json"], all(), format!("{}\n", all())),
        (&["token", "list"], json!({"tokens": []}), "there are no tokens\n".to_owned()),
    ] {
        let (output, asked) = Place::new().ask(args, vec![vec![Call("Tokens"), Done(reply)]]);
        assert_eq!((output.code, output.out), (Some(0), out), "{args:?}");
        assert_eq!(asked, [json!({})], "{args:?}");
    }

    for (args, taken, out) in [(&[][..], 1, "1 token revoked\n"), (&[], 0, "0 tokens revoked\n"), (&["-q"], 2, "2\n")] {
        let args = [&["token", "revoke", "n[0-1]"], args].concat();
        let (output, asked) = Place::new().ask(&args, vec![vec![Call("TokenTakeBack"), Done(json!({"taken": taken}))]]);
        assert_eq!((output.code, output.out.as_str()), (Some(0), out), "{args:?}");
        assert_eq!(asked, [json!({"nodes": "n[0-1]"})]);
    }
}

#[test]
fn a_token_that_cannot_be_made_says_what_to_do() {
    let off = "enrolment is off: set [enroll] listen in controller.toml, and restart the controller";
    for (error, code, err) in [
        (
            Error("io.perilog.Controller.Refused", json!({"code": "unavailable", "text": off})),
            10,
            format!("perilog: {off}\n"),
        ),
        (
            Error("io.perilog.Controller.PermissionDenied", json!({})),
            8,
            "perilog: not permitted: only root and the group that the controller's configuration names may do that\n"
                .to_owned(),
        ),
    ] {
        let (output, _) = Place::new().ask(&["token", "create", "n0"], vec![vec![Call("TokenMake"), error]]);
        assert_eq!((output.code, output.out.as_str(), output.err), (Some(code), "", err));
    }
    // Wrong usage is refused without asking the controller.
    for args in
        [&["create"][..], &["create", "n[0-"], &["create", "n0", "--for", "soon"], &["revoke"], &["list", "n0"], &[]]
    {
        let output = CliOutput::of(Place::new().command(&[&["token"], args].concat()).output().unwrap());
        assert_eq!((output.code, output.out.as_str()), (Some(2), ""), "{args:?}: {}", output.err);
    }
    let nobody = CliOutput::of(Place::new().command(&["token", "list"]).output().unwrap());
    assert_eq!((nobody.code, nobody.err.contains("no controller at")), (Some(7), true), "{}", nobody.err);
}
