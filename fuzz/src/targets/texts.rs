//! Short texts: lists of hosts and ranks, durations, ids.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::str::FromStr;

use perilog_core::{
    ActionName, Attempt, BootId, CheckName, Fluid, HostList, HostName, IdSet, InvocationId, JobId, MachineId,
    MilestoneName, ResourceName, Span, Targets, Tolerance,
};

use super::{Input, one_line};

pub(super) fn hostlist(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    // A count expands nothing, so it has no exception of memory.
    let (count, peak) = crate::memory::peak(|| HostList::count(text));
    assert!(peak <= 64 * text.len() + 64 * 1024, "{peak} bytes of memory to count");
    match input.parse(|| text.parse::<HostList>()) {
        Ok(list) => {
            assert_eq!(count, Ok(list.len() as u64));
            check_list(&list);
        }
        Err(error) => one_line(&error.to_string()),
    }
}

/// Checks a list of hosts: it is within its bounds, and its text parses as the same.
pub(super) fn check_list(list: &HostList) {
    assert!(list.len() <= HostList::MAX_HOSTS);
    // The largest lists would take most of the time.
    if list.len() < 2000 {
        assert!(list.iter().all(|name| (1..=HostList::MAX_NAME).contains(&name.len())));
        let text = list.to_string();
        assert_eq!(text.parse::<HostList>().as_ref(), Ok(list), "{text}");
        assert_eq!(HostList::from_names(list.iter()).as_ref(), Ok(list));
    }
}

pub(super) fn idset(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    let (before, after) = text.split_once(';').unwrap_or((text, ""));
    let sets = input.parse(|| (before.parse::<IdSet>(), after.parse::<IdSet>()));
    for error in [&sets.0, &sets.1].into_iter().filter_map(|set| set.as_ref().err()) {
        one_line(&error.to_string());
    }
    let (Ok(one), Ok(two)) = sets else { return };
    for text in [one.to_string(), one.to_brackets()] {
        assert_eq!(text.parse::<IdSet>().as_ref(), Ok(&one), "{text}");
    }
    let (union, common, less) = (one.union(&two), one.intersection(&two), one.difference(&two));
    assert_eq!(union.len() + common.len(), one.len() + two.len());
    assert_eq!(less.len() + common.len(), one.len());
    assert!(common.is_subset(&one) && common.is_subset(&two) && less.is_disjoint(&two) && one.is_subset(&union));
    if union.len() < 500 {
        let ids = |set: &IdSet| set.iter().collect::<BTreeSet<u32>>();
        let (one, two) = (ids(&one), ids(&two));
        assert_eq!(ids(&union), &one | &two);
        assert_eq!(ids(&common), &one & &two);
        assert_eq!(ids(&less), &one - &two);
    }
}

pub(super) fn targets(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    match input.parse(|| text.parse::<Targets>()) {
        Ok(targets) => {
            if let Targets::Hosts(hosts) = &targets {
                check_list(hosts);
            }
            let hosts: HostList = "n[0-9],a,b".parse().expect("a good list");
            match targets.resolve(&hosts) {
                Ok(ranks) => assert!(ranks.last().is_none_or(|last| last < 12)),
                Err(error) => one_line(&error.to_string()),
            }
        }
        Err(error) => one_line(&error.to_string()),
    }
}

pub(super) fn duration(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    match input.parse(|| Span::parse(text)) {
        Ok(span) => assert_eq!(Span::parse(&span.to_exact()), Ok(span)),
        Err(error) => one_line(&error.to_string()),
    }
}

pub(super) fn ids(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    let mut number = 0;
    input.parse(|| {
        number += same::<JobId>(text);
        number += same::<ActionName>(text);
        number += same::<HostName>(text);
        number += same::<CheckName>(text);
        number += same::<MilestoneName>(text);
        number += same::<ResourceName>(text);
        number += same::<BootId>(text);
        number += same::<MachineId>(text);
        number += same::<InvocationId>(text);
        number += same::<Attempt>(text);
        number += same::<Tolerance>(text);
    });
    if let Ok(id) = text.parse::<Fluid>() {
        for form in [id.to_string(), id.to_sign(), id.to_dothex()] {
            assert_eq!(form.parse::<Fluid>().ok(), Some(id), "{form}");
        }
    }
}

/// Parses the text as a `T`, and the text of that again. Returns 1 if it is a `T`.
fn same<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) -> u32 {
    match text.parse::<T>() {
        Ok(id) => {
            assert!(id.to_string().parse::<T>().ok().as_ref() == Some(&id), "{id:?}");
            1
        }
        Err(error) => {
            one_line(&error.to_string());
            0
        }
    }
}

/// The variables of a hook that have a form: `JOB LF ATTEMPT LF UID LF NODE LF LIST`.
pub(super) fn slurm(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    let mut words = text.split('\n');
    let mut word = || words.next().unwrap_or_default();
    let _ = (word().parse::<JobId>(), word().parse::<Attempt>(), word().parse::<u32>());
    let (node, list) = (word(), word());
    if HostList::count(list).is_ok_and(|count| count < 5000)
        && let Ok(list) = list.parse::<HostList>()
    {
        assert_eq!(list.contains(node), list.iter().any(|name| name == node));
        check_list(&list);
    }
}
