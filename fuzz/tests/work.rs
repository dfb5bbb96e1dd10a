//! The work of each parser grows as its input does: inputs of the worst shapes that are known, at one, two and four
//! times a length. The processor's time of the largest is compared with that of the smallest, within one run. So no
//! bound is a time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fmt::Write as _;

use perilog_agent::config::Config as Agent;
use perilog_controller::config::Config as Controller;
use perilog_core::controller::io::Request;
use perilog_core::eventlog::parse_log;
use perilog_core::{HostList, IdSet, JobId, ResourceSet, Span, Targets};
use perilog_flux::broker::wire::Message;
use perilog_flux::config::Config as Edge;
use perilog_host::fuzz as host;
use perilog_proto::{decode_from_agent, decode_to_agent, negotiate};
use perilog_terms::{Site, Terms};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of the smallest input of a shape.
const LENGTH: usize = 8 * 1024;
/// The most by which the time may grow from an input to one that is four times as long: 4 is linear, 16 quadratic.
const MOST: f64 = 9.0;
/// Seconds that count as nothing: what a processor does beside.
const NOISE: f64 = 0.003;
/// Number of measurements, of which the best counts, before a shape is said to be worse than linear.
const TRIES: usize = 6;

/// A parser, and a shape of inputs of a given length.
type Shape = (&'static str, fn(&[u8]), fn(usize) -> String);

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn repeated(part: &str, length: usize) -> String {
    part.repeat(length / part.len() + 1)
}

/// Returns `each(0)`, `each(1)` and so on between `before` and `after`, up to this length.
fn counted(before: &str, each: impl Fn(usize) -> String, after: &str, length: usize) -> String {
    let mut all = before.to_owned();
    for at in 0.. {
        if all.len() >= length {
            break;
        }
        all.push_str(&each(at));
    }
    all + after
}

fn r_of(lite: &str, hosts: usize) -> String {
    let lite = lite.trim_end_matches(',');
    format!(r#"{{"version":1,"execution":{{"R_lite":[{lite}],"nodelist":["n[1-{hosts}]"]}}}}"#)
}

fn hosts(bytes: &[u8]) {
    let _ = (text(bytes).parse::<HostList>(), HostList::count(text(bytes)), text(bytes).parse::<Targets>());
    let _ = text(bytes).parse::<HostList>().map(|list| list.to_string());
}

fn ids(bytes: &[u8]) {
    let _ = text(bytes).parse::<IdSet>().map(|set| set.to_string());
}

fn r(bytes: &[u8]) {
    let _ = ResourceSet::from_json(text(bytes)).map(|r| r.to_json());
}

fn events(bytes: &[u8]) {
    let _ = parse_log(text(bytes)).map(|events| events.iter().for_each(|event| drop(event.encode_line())));
}

fn terms(bytes: &[u8]) {
    let terms = Terms::read_or_none(text(bytes)).0;
    let _ = Site::read(r#"{"tolerate-needs-instance":true}"#).unwrap().check(&terms, text(bytes));
    let _ = Site::read(text(bytes));
}

fn configurations(bytes: &[u8]) {
    let _ = Agent::parse("x", text(bytes)).map_err(|error| error.to_string());
    let _ = perilog_host::config::parse::<Controller>("x", text(bytes)).map_err(|error| error.to_string());
    let _ = perilog_host::config::parse::<Edge>("x", text(bytes)).map_err(|error| error.to_string());
}

fn requests(bytes: &[u8]) {
    let _ = host::request::<Request>(bytes);
    let _ = (host::question(bytes), host::answer(bytes));
    if let Ok(parameters) = serde_json::from_slice(bytes) {
        let _ = perilog_agent::fuzz::parameters("Exec", parameters);
    }
}

fn messages(bytes: &[u8]) {
    for number in 1..=12_u16 {
        let frame = [&number.to_be_bytes()[..], bytes].concat();
        let _ = (decode_from_agent(&frame), decode_to_agent(&frame), negotiate(&frame));
    }
}

fn frames(bytes: &[u8]) {
    let _ = (host::frames(bytes, 1), host::frames(bytes, 4096));
}

fn broker(bytes: &[u8]) {
    let frames: Vec<u8> = bytes.iter().flat_map(|byte| [1, *byte]).collect();
    let head = [&0xffee_0012_u32.to_ne_bytes()[..], &u32::try_from(frames.len()).unwrap().to_be_bytes()].concat();
    let whole = [head, frames].concat();
    let mut buffer = bytes::BytesMut::new();
    for piece in whole.chunks(16) {
        buffer.extend_from_slice(piece);
        if !matches!(Message::decode(&mut buffer), Ok(None)) {
            break;
        }
    }
}

fn unmunged(bytes: &[u8]) {
    let _ = host::is_unmunged(bytes);
}

fn records(bytes: &[u8]) {
    let _ = perilog_agent::fuzz::steps(bytes);
}

fn words(bytes: &[u8]) {
    let _ = (Span::parse(text(bytes)), text(bytes).parse::<JobId>());
    let _ = perilog_host::authority::Requested::read(text(bytes));
}

const SHAPES: [Shape; 45] = [
    ("names", hosts, |n| repeated("n,", n)),
    ("names with numbers", hosts, |n| counted("", |at| format!("n{at},"), "", n)),
    ("names that share no brackets", hosts, |n| counted("", |at| format!("{}{at},", at % 7), "", n)),
    ("one name", hosts, |n| repeated("n", n)),
    ("one long number", hosts, |n| format!("n[{}]", repeated("9", n))),
    ("zeros", hosts, |n| format!("n[{}]", repeated("0,", n).trim_end_matches(','))),
    ("ids in brackets", hosts, |n| counted("n[0", |at| format!(",{at}"), "]", n)),
    ("brackets", hosts, |n| repeated("n[1-9],", n)),
    ("open brackets", hosts, |n| repeated("[", n)),
    ("commas", hosts, |n| repeated(",", n)),
    ("ids", ids, |n| counted("0", |at| format!(",{}", at * 2 + 2), "", n)),
    ("ids downwards", ids, |n| counted("9999999", |at| format!(",{}", 9_999_998 - at * 2), "", n)),
    ("ranges of ids", ids, |n| counted("0", |at| format!(",{}-{}", at * 9 + 2, at * 9 + 5), "", n)),
    ("the same id", ids, |n| repeated("1,", n) + "1"),
    ("a rank each", r, |n| {
        let lite = counted("", |at| format!(r#"{{"rank":"{at}","children":{{"core":"{at}"}}}},"#), "", n);
        r_of(&lite, lite.matches("rank").count())
    }),
    ("a rank each, then all ranks of many kinds", r, |n| {
        let lite = counted("", |at| format!(r#"{{"rank":"{at}","children":{{"core":"{at}"}}}},"#), "", n);
        let all = lite.matches("rank").count();
        let kinds =
            counted("", |at| format!(r#"{{"rank":"0-{}","children":{{"k{}":"0"}}}},"#, all - 1, at % 60), "", n);
        r_of(&(lite + &kinds), all)
    }),
    ("windows of ranks", r, |n| {
        let lite = counted("", |at| format!(r#"{{"rank":"{at}-{}","children":{{"core":"{at}"}}}},"#, at + 50), "", n);
        r_of(&lite, lite.matches("rank").count() + 50)
    }),
    ("kinds of one rank", r, |n| {
        let lite = counted("", |at| format!(r#"{{"rank":"0","children":{{"k{at}":"0"}}}},"#), "", n);
        r_of(&lite, 1)
    }),
    ("properties", r, |n| {
        let properties = counted("\"a\":\"0\"", |at| format!(",\"p{at}\":\"0\""), "", n);
        let lite = r#"{"rank":"0","children":{"core":"0"}}"#;
        format!(r#"{{"version":1,"execution":{{"R_lite":[{lite}],"nodelist":["n"],"properties":{{{properties}}}}}}}"#)
    }),
    ("open lists of JSON", r, |n| repeated("[", n)),
    ("events", events, |n| repeated("{\"timestamp\":1.5,\"name\":\"a\"}\n", n)),
    ("an event of many members", events, |n| {
        counted("{\"timestamp\":1.5,\"name\":\"a\",\"context\":{\"a\":1", |at| format!(",\"m{at}\":1"), "}}\n", n)
    }),
    ("a line without an end", events, |n| repeated("{\"", n)),
    ("terms", terms, |n| counted("{\"keep\":1", |_| ",\"keep\":1".to_owned(), "}", n)),
    ("checks of terms", terms, |n| counted("{\"tolerate-check\":{\"a\":1", |at| format!(",\"c{at}\":1"), "}}", n)),
    ("nested objects", terms, |n| repeated("{\"a\":", n)),
    ("escapes", terms, |n| format!("{{\"keep\":\"{}\"}}", repeated("\\u0041", n))),
    ("nested resources", terms, |n| {
        let one = "{\"type\":\"slot\",\"count\":1,\"with\":[";
        format!("{{\"resources\":[{}{}]}}", repeated(one, n), repeated("]}", n / one.len() * 2))
    }),
    ("many resources", terms, |n| {
        let one = "{\"type\":\"slot\",\"count\":1,\"with\":[{\"type\":\"node\",\"count\":1}]}";
        format!("{{\"tolerate\":1,\"resources\":[{}{one}],\"tasks\":[]}}", repeated(&format!("{one},"), n))
    }),
    ("signs of equality", configurations, |n| repeated("=", n)),
    ("lines that are wrong", configurations, |n| repeated("=\n", n)),
    ("unknown keys", configurations, |n| counted("", |at| format!("k{at} = 1\n"), "", n)),
    ("unknown tables", configurations, |n| counted("", |at| format!("[t{at}]\n"), "", n)),
    ("a table of many dots", configurations, |n| format!("[{}a]", repeated("a.", n))),
    ("actions", configurations, |n| counted("", |at| format!("[action.a{at}]\n"), "", n)),
    ("actions with a wrong value", configurations, |n| counted("", |at| format!("[action.a{at}]\nx = 1\n"), "", n)),
    ("empty lines, then an error", configurations, |n| repeated("\n", n) + "="),
    ("open lists of TOML", configurations, |n| format!("a = {}", repeated("[", n))),
    ("a long text", configurations, |n| format!("host = \"{}\"", repeated("\u{e4}", n))),
    ("a request of many variables", requests, |n| {
        let before = r#"{"method":"a.Run","job":"1","action":"a","parameters":{"job":"1","action":"a","env":{"A":"""#;
        counted(before, |at| format!(",\"V{at}\":\"x\""), "}}}", n)
    }),
    ("a request of escapes", requests, |n| format!("{{\"method\":\"{}\",\"parameters\":{{}}}}", repeated("\\n", n))),
    ("bytes of a message", messages, |n| repeated("\n\0\n\u{2}\u{8}\u{1}", n)),
    ("tiny frames", frames, |n| repeated("\0\0\0\u{1}a", n)),
    ("routes", broker, |n| repeated("r", n)),
    ("lines of unmunge", unmunged, |n| repeated("UID: 0\nSTATUS: 0\n", n) + "\n"),
];

/// Shapes of [`SHAPES`]' kind that have no place for a closure of their own.
const MORE: [Shape; 4] = [
    ("records", records, |n| repeated("{\"step\":\"cancelled\"}\n", n)),
    ("one record", records, |n| format!("{}\n", repeated("[", n))),
    ("digits", words, |n| repeated("1", n)),
    ("a request for a certificate", words, |n| {
        let mut pem = "-----BEGIN CERTIFICATE REQUEST-----\n".to_owned();
        let _ = write!(pem, "{}", repeated("MIIB\n", n));
        pem + "-----END CERTIFICATE REQUEST-----\n"
    }),
];

/// Returns the seconds of this thread's processor time that the parser takes for an input.
fn seconds(parser: fn(&[u8]), input: &str) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let before = now();
    parser(input.as_bytes());
    now() - before
}

#[test]
fn work_grows_as_the_input_does() {
    let mut worse = Vec::new();
    for (name, parser, shape) in SHAPES.into_iter().chain(MORE) {
        let inputs = [1, 2, 4].map(|times| shape(LENGTH * times));
        assert!(inputs[2].len() > 3 * inputs[0].len(), "{name}");
        let mut best = [f64::MAX; 3];
        let grows_more = |best: &[f64; 3]| best[2] > MOST * best[0] + NOISE;
        for _ in 0..TRIES {
            for (best, input) in best.iter_mut().zip(&inputs) {
                *best = best.min(seconds(parser, input));
            }
            if !grows_more(&best) {
                break;
            }
        }
        if grows_more(&best) {
            worse.push(format!("{name}: {best:.4?} s"));
        }
    }
    assert!(worse.is_empty(), "worse than linear:\n{}", worse.join("\n"));
}

/// The measurement itself: what is quadratic is seen.
#[test]
fn quadratic_work_is_seen() {
    let pairs: fn(&[u8]) = |bytes| {
        let equal = bytes.iter().map(|one| bytes.iter().filter(|other| *other == one).count());
        std::hint::black_box(equal.sum::<usize>());
    };
    let times =
        [4096, 16_384].map(|length| (0..3).map(|_| seconds(pairs, &"a".repeat(length))).fold(f64::MAX, f64::min));
    assert!(times[1] > MOST * times[0], "{times:?}");
}
