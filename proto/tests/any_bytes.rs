//! Property tests of the protocol: any bytes decode to a message or an error, and every encoded message fits a frame.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use perilog_core::message::{FromAgent, Held, HeldState, Hello, Phase, ToAgent};
use perilog_core::milestone::MAX_NAMES;
use perilog_core::outcome::{Failure, Outcome};
use perilog_core::task::{Check, Process, Reboot, Step, Tail};
use perilog_core::{HostList, IdSet, MilestoneName};
use perilog_proto::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn messages_come_back_as_they_were(to in common::any::to_agent(), from in common::any::from_agent()) {
        prop_assert_eq!(decode_to_agent(&encode_to_agent(&to)), Ok(Decoded::Known(to)));
        prop_assert_eq!(decode_from_agent(&encode_from_agent(&from)), Ok(Decoded::Known(from)));
    }

    #[test]
    fn a_fan_says_what_single_starts_say(mut start in common::any::start(), rank: u32) {
        let fan = StartFan::new(&start);
        start.task.rank.0 = rank;
        prop_assert_eq!(fan.for_rank(start.task.rank, &start.boot, start.commit),
                        encode_to_agent(&ToAgent::Start(start)));
    }

    #[test]
    fn a_fan_knows_whose_it_is(start in common::any::start(), other in common::any::start(), what in 0..9_u32) {
        let fan = StartFan::new(&start);
        let mut more = start.clone();
        match what {
            0 => (more.task.rank, more.boot, more.commit) = (other.task.rank, other.boot, other.commit),
            1 => more.task.action = other.task.action,
            2 => more.ranks = other.ranks,
            3 => more.hosts = other.hosts,
            4 => more.env = other.env,
            5 => more.timeout_ms = other.timeout_ms,
            6 => more.attempt = other.attempt,
            7 => more.after = other.after,
            _ => more.not_after_ms = other.not_after_ms,
        }
        prop_assert!(what != 0 || fan.is_for(&more));
        let same = fan.for_rank(more.task.rank, &more.boot,
                                more.commit) == encode_to_agent(&ToAgent::Start(more.clone()));
        prop_assert!(same || !fan.is_for(&more));
    }

    #[test]
    fn any_bytes_are_read_or_refused(number in 0..14u16, body: Vec<u8>) {
        let frame = [&number.to_be_bytes()[..], &body].concat();
        for frame in [&frame[..], &body] {
            let _ = decode_to_agent(frame);
            let _ = decode_from_agent(frame);
            let _ = negotiate(frame);
        }
    }

    /// Decoders most often fail on input that is almost right, so this test changes bytes of real messages and cuts the
    /// messages.
    #[test]
    fn damaged_messages_are_read_or_refused(
        to in common::any::to_agent(), from in common::any::from_agent(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut frame in [encode_to_agent(&to).to_vec(), encode_from_agent(&from).to_vec()] {
            for (at, byte) in &edits {
                let at = at.index(frame.len());
                frame[at] = *byte;
            }
            let _ = decode_to_agent(&frame);
            let _ = decode_from_agent(&frame);
            frame.truncate(cut.index(frame.len()));
            let _ = decode_to_agent(&frame);
            let _ = decode_from_agent(&frame);
        }
    }

    #[test]
    fn fields_of_a_later_version_are_skipped(from in common::any::from_agent(), later in 100..1000u32, value: u64) {
        let mut frame = encode_from_agent(&from).to_vec();
        prost::encoding::uint64::encode(later, &value, &mut frame);
        prost::encoding::string::encode(later + 1, &"later".to_owned(), &mut frame);
        prop_assert_eq!(decode_from_agent(&frame), Ok(Decoded::Known(from)));
    }
}

#[test]
fn what_a_later_version_adds_is_unknown_and_no_error() {
    assert_eq!(decode_to_agent(&[0, 99]), Ok(Decoded::Unknown(99)));
    assert_eq!(decode_from_agent(&[255, 255, 1, 2, 3]), Ok(Decoded::Unknown(65535)));
    assert_eq!(decode_to_agent(&[0, 0]), Ok(Decoded::Unknown(0)));
    // Ask { question: 5, ask: { 9: {} } }: a question of a kind to come.
    assert_eq!(decode_to_agent(&[0, 10, 8, 5, 18, 2, 74, 0]), Ok(Decoded::Unknown(10)));
    // Finished with an outcome of kind 30: never taken for any that we know.
    let task = [0x0a, 0x14, 0x0a, 0x10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0x10, 7];
    let frame = [&[0, 5][..], &task[..], &[0x12, 5, 0x0a, 3, 0xf2, 1, 0]].concat();
    assert_eq!(decode_from_agent(&frame), Ok(Decoded::Unknown(5)));
}

#[test]
fn errors_name_message_and_field() {
    let reported = |frame: &[u8]| decode_to_agent(frame).unwrap_err().to_string();
    assert_eq!(reported(&[]), "malformed frame: 0 bytes, at least 2 are needed");
    assert_eq!(reported(&vec![0; MAX_MESSAGE + 1]), "malformed frame: 1048577 bytes, at most 1048576 are taken");
    assert_eq!(reported(&[0, 7]), "malformed Ack: task: missing");
    assert_eq!(reported(&[0, 7, 0x0a, 3, 0x0a, 1, 9]), "malformed Ack: task.action: 1 bytes, a UUID has 16");
    let ok = encode_to_agent(&ToAgent::Start(common::samples::start()));
    let text = b"fuZZybuNNy";
    let at = ok.windows(text.len()).position(|w| w == text).unwrap();
    let mut bad = ok.to_vec();
    bad[at + 2] = b'/';
    assert_eq!(
        reported(&bad),
        "malformed Start: common.key.job: malformed job id \"fu/ZybuNNy\" at character 3: \
         expected [A-Za-z0-9._-], not starting with `.` or `-`"
    );
}

#[test]
fn a_page_of_more_tasks_than_an_agent_sends_is_refused() {
    let FromAgent::Hello(hello) = common::samples::from_agent().swap_remove(0).1 else { unreachable!() };
    let of = |count| {
        let tasks = vec![hello.tasks[0].clone(); count];
        decode_from_agent(&encode_from_agent(&FromAgent::Hello(Hello { tasks, ..hello.clone() })))
    };
    assert!(of(MAX_PAGE).is_ok());
    assert_eq!(of(MAX_PAGE + 1).unwrap_err().to_string(), "malformed Hello: tasks: 513 tasks, a page has at most 512");
}

#[test]
fn a_hello_of_more_actions_than_a_site_has_is_refused() {
    let FromAgent::Hello(hello) = common::samples::from_agent().swap_remove(0).1 else { unreachable!() };
    let of = |count: u8| {
        let frame = encode_from_agent(&FromAgent::Hello(Hello { actions: None, ..hello.clone() }));
        let names: Vec<u8> = (0..count).flat_map(|n| [0x0a, 2, b'a' + n / 26, b'a' + n % 26]).collect();
        // Field 8, of so many bytes, as a varint of two.
        let length = [(names.len() & 0x7f) as u8 | 0x80, (names.len() >> 7) as u8];
        decode_from_agent(&[&frame[..], &[0x42], &length, &names].concat())
    };
    let Ok(Decoded::Known(FromAgent::Hello(most))) = of(64) else { panic!() };
    assert_eq!(most.actions.map(|names| names.len()), Some(64));
    assert_eq!(of(65).unwrap_err().to_string(), "malformed Hello: actions: 65 actions, at most 64 are taken");
}

/// Returns a list of hosts that folds to about `bytes` bytes of text.
fn hosts(bytes: usize) -> HostList {
    let names = (0..bytes / 9)
        .map(|i| format!("{}{:06}x", char::from(b'a' + u8::try_from(i % 26).unwrap()), i * 7919 % 1_000_000));
    HostList::from_names(names).unwrap()
}

#[test]
fn the_largest_start_fits_and_what_is_larger_is_named_before() {
    let mut start = common::samples::start();
    start.ranks = (0..40_000).map(|i| i * 2).collect();
    start.hosts = hosts(690_000);
    start.env = (0..4096).map(|i| (format!("V{i:04}"), "x".repeat(11))).collect();
    assert_eq!(check_start(&start.ranks, &start.hosts, &start.env), Ok(()));
    let frame = encode_to_agent(&ToAgent::Start(start.clone()));
    assert!(frame.len() > MAX_MESSAGE / 2 && frame.len() <= MAX_MESSAGE, "{}", frame.len());
    assert_eq!(decode_to_agent(&frame), Ok(Decoded::Known(ToAgent::Start(start.clone()))));

    let reported = |start: &perilog_core::task::Start| {
        check_start(&start.ranks, &start.hosts, &start.env).unwrap_err().to_string()
    };
    // No script runs without its ranks and hosts: the node refuses, and says why.
    let refused = |start: &perilog_core::task::Start| {
        let frame = encode_to_agent(&ToAgent::Start(start.clone()));
        assert!(frame.len() <= MAX_MESSAGE);
        let Ok(Decoded::Known(ToAgent::Start(cut))) = decode_to_agent(&frame) else { panic!() };
        perilog_core::environment::admit(&cut.env, &[]).unwrap_err()
    };
    let most = format!("bytes in the list of ranks and the list of hosts, at most {MAX_LAYOUT_TEXT} are taken");
    let huge = perilog_core::task::Start { hosts: hosts(1_500_000), ..start.clone() };
    assert!(
        reported(&huge).ends_with(&most) && refused(&huge).contains(&most),
        "{} {}",
        reported(&huge),
        refused(&huge)
    );
    let huge = perilog_core::task::Start { ranks: (0..200_000).map(|i| i * 2).collect::<IdSet>(), ..start.clone() };
    assert!(
        reported(&huge).ends_with(&most) && refused(&huge).contains(&most),
        "{} {}",
        reported(&huge),
        refused(&huge)
    );
    let mut huge = start.clone();
    huge.env.insert("LARGE".to_owned(), "x".repeat(2 * MAX_MESSAGE));
    assert!(reported(&huge).contains("bytes of environment"));
    let Ok(Decoded::Known(ToAgent::Start(cut))) = decode_to_agent(&encode_to_agent(&ToAgent::Start(huge))) else {
        panic!()
    };
    // Still more than a node takes: the node refuses the Start instead of running it with half an environment.
    assert!(perilog_core::environment::admit(&cut.env, &[]).is_err());
}

/// Regression test: although a frame has room for these two layouts, the encoder left their ranks and hosts empty. The
/// first layout has 65,536 hosts, of whose names only pairs can share brackets. The second has every second rank of
/// 131,072.
#[test]
fn the_largest_machine_that_is_planned_for_fits() {
    let names =
        (0..65_536).map(|n| format!("x{}c{}s{}b{}n{}", 1000 + n / 256, n / 32 % 8, n / 4 % 8, n / 2 % 2, n % 2));
    let named = HostList::from_names(names).unwrap();
    let numbered = HostList::from_names((0..65_536).map(|n| format!("n{n:05}"))).unwrap();
    let second: IdSet = (0..65_536).map(|n| 2 * n).collect();
    assert_eq!((named.to_string().len(), second.to_string().len()), (589_823, 403_196));
    let env = (0..4096).map(|i| (format!("V{i:04}"), "x".repeat(11))).collect();
    let milestones = (10..10 + MAX_NAMES).map(|i| MilestoneName::new(&format!("{i}").repeat(32)).unwrap()).collect();
    let start = perilog_core::task::Start { env, milestones, ..common::samples::start() };
    for (ranks, hosts) in [(IdSet::from(0..=65_535), named), (second, numbered)] {
        assert_eq!(check_start(&ranks, &hosts, &start.env), Ok(()));
        let whole = ToAgent::Start(perilog_core::task::Start { ranks, hosts, ..start.clone() });
        let frame = encode_to_agent(&whole);
        assert!(frame.len() <= MAX_MESSAGE, "{}", frame.len());
        assert_eq!(decode_to_agent(&frame), Ok(Decoded::Known(whole)));
    }
}

#[test]
fn the_largest_end_fits_and_says_what_it_lost() {
    let long = "\u{1f980}".repeat(20_000);
    let many = 300;
    let mut ended = common::samples::ended(Outcome::Failed { why: Failure::Exec(long.clone()) });
    let step = Step { script: long.clone(), digest: long.clone(), ..ended.steps[0].clone() };
    ended.steps = vec![step; many];
    ended.checks = vec![Check { check: long.clone(), message: long.clone() }; many];
    ended.milestones = vec![long.clone(); many];
    ended.lingering = vec![Process { pid: u32::MAX, command: long.clone() }; many];
    ended.tails = vec![Tail { script: long.clone(), text: "x".repeat(4096) }; many];
    (ended.forensics, ended.note, ended.user_message) = (Some(long.clone()), Some(long.clone()), Some(long));
    let frame = encode_from_agent(&FromAgent::Finished { task: common::samples::task(), ended: Box::new(ended) });
    assert!(frame.len() <= MAX_MESSAGE, "{}", frame.len());
    let Ok(Decoded::Known(FromAgent::Finished { ended, .. })) = decode_from_agent(&frame) else { panic!() };
    assert_eq!((ended.steps.len(), ended.tails.len()), (256, 256));
    assert_eq!(ended.tails.iter().map(|t| t.text.len()).sum::<usize>(), 64 * 1024);
    assert!(ended.note.unwrap().ends_with("texts were cut to fit into a message"));
}

#[test]
fn the_largest_page_of_hello_fits_and_keeps_every_task() {
    let FromAgent::Hello(mut hello) = common::samples::from_agent().swap_remove(0).1 else { unreachable!() };
    let long = "x".repeat(10_000);
    let processes = vec![Process { pid: u32::MAX, command: long.clone() }; 300];
    let live = Held {
        state: HeldState::Live { phase: Phase::Lingering { processes }, age_ms: u64::MAX },
        ..hello.tasks[0].clone()
    };
    hello.tasks = vec![live; MAX_PAGE];
    let tombstone =
        HeldState::Tombstone { outcome: Outcome::Refused { why: long }, past_ms: u64::MAX, reboot: Reboot::None };
    hello.tasks.iter_mut().skip(MAX_PAGE / 2).for_each(|held| held.state = tombstone.clone());
    let frame = encode_from_agent(&FromAgent::Hello(hello.clone()));
    assert!(frame.len() <= MAX_MESSAGE, "{}", frame.len());
    let Ok(Decoded::Known(FromAgent::Hello(read))) = decode_from_agent(&frame) else { panic!() };
    assert_eq!(read.tasks.len(), MAX_PAGE);
    assert!(read.tasks.iter().zip(&hello.tasks).all(|(a, b)| a.task == b.task && a.job == b.job));
}

#[test]
fn other_large_messages_fit() {
    let task = common::samples::task();
    assert!(encode_to_agent(&ToAgent::Forget { tasks: vec![task; 100_000] }).len() <= MAX_MESSAGE);
    assert!(encode_to_agent(&ToAgent::TurnedAway { why: "x".repeat(MAX_MESSAGE) }).len() <= MAX_MESSAGE);
    assert!(
        encode_from_agent(&FromAgent::Answer { question: 1, text: "x".repeat(MAX_MESSAGE), last: false }).len()
            <= MAX_MESSAGE
    );
    let whole = ToAgent::Forget { tasks: vec![task; MAX_FORGET] };
    assert_eq!(decode_to_agent(&encode_to_agent(&whole)), Ok(Decoded::Known(whole)));
}
