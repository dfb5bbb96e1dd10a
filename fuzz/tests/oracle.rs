//! Lists of hosts and ids, as another program reads them: ClusterShell (`oracle/clustershell.py` made its answers).
//! Flux's own answers are beside the parser (`core/src/hostlist/flux.txt`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use perilog_core::{HostList, IdSet};

const ANSWERS: &str = include_str!("../oracle/clustershell.txt");

/// Returns the text and ClusterShell's answer of each line of a kind; `None`: it refuses the text.
fn lines(kind: &str) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    ANSWERS.lines().filter_map(move |line| {
        let (text, answer) = line.strip_prefix(kind)?.strip_prefix('\t')?.split_once('\t')?;
        Some((text, Some(answer).filter(|answer| *answer != "!")))
    })
}

/// Returns `true` if the text has a range whose ends differ in padding, such as `[099-0102]`, which ClusterShell
/// refuses and Flux reads. ClusterShell takes digits before the bracket for a part of the ids: of `n0[99-102]`, too.
fn has_uneven_range(text: &str) -> bool {
    let joined = text.contains("0[");
    text.split(['[', ']', ',']).filter_map(|item| item.split_once('-')).any(|(begin, end)| {
        let padded = |id: &str| id.len() > 1 && id.starts_with('0');
        begin.len() != end.len() && (joined || padded(begin) || padded(end))
    })
}

#[test]
fn hosts_are_those_of_clustershell() {
    let (mut same, mut refused) = (0, 0);
    for (text, answer) in lines("hosts") {
        match (text.parse::<HostList>(), answer) {
            (Ok(list), Some(names)) => {
                assert_eq!(list.iter().collect::<Vec<_>>().join(","), names, "{text}");
                same += 1;
            }
            (_, None) => {
                assert!(has_uneven_range(text), "only ClusterShell refuses {text}");
                refused += 1;
            }
            (Err(error), Some(_)) => panic!("only perilog refuses {text}: {error}"),
        }
    }
    assert!(same > 1000 && refused > 10, "{same} the same, {refused} refused");
}

/// RFC 22 asks for ascending ids; ClusterShell takes any order.
#[test]
fn ids_are_those_of_clustershell() {
    let (mut same, mut unordered) = (0, 0);
    for (text, answer) in lines("ids") {
        let ids = |item: &str| {
            let (begin, end) = item.split_once('-').unwrap_or((item, item));
            (begin.parse::<u32>().unwrap(), end.parse::<u32>().unwrap(), item.contains('-'))
        };
        let items: Vec<_> = text.split(',').map(ids).collect();
        // RFC 22 knows no range of one id, such as `7-7`.
        let is_ordered = items.windows(2).all(|two| two[0].1 < two[1].0)
            && items.iter().all(|(begin, end, range)| begin < end || !range);
        match text.parse::<IdSet>() {
            Ok(set) => {
                assert!(is_ordered, "{text}");
                assert_eq!(Some(set.to_string().as_str()), answer, "{text}");
                same += 1;
            }
            Err(error) => {
                assert!(!is_ordered, "{text}: {error}");
                unordered += 1;
            }
        }
    }
    assert!(same > 500 && unordered > 100, "{same} the same, {unordered} unordered");
}
