//! What the drain hook is told of, when, and how it is got rid of.

use super::by_hand::{confirm, hooked};
use super::release::{add, bench, finish};
use super::tolerance::tell;
use super::*;
use crate::job::Terms;

/// A drain hook was added to the configuration: nobody told it of who was drained already.
#[test]
fn a_hook_that_comes_later_is_told_of_the_drains_that_stand() {
    for by_restart in [false, true] {
        let (mut b, _) = bench(2, |_| {});
        b.ask(Request::Drain { hosts: "n[0-1]".parse().unwrap(), reason: "bad memory".into() }).0.unwrap();
        b.ask(Request::Undrain { hosts: "n1".parse().unwrap(), forget: false }).0.unwrap();
        let untold = |b: &Bench| b.store.drains.iter().filter(|drain| !drain.confirmed).count();
        assert_eq!((b.store.drains.len(), untold(&b)), (1, 0));
        b.settings.drain_hook = true;
        if by_restart {
            b = b.restart();
        } else {
            assert_eq!(b.batch(vec![Input::Settings(b.settings.clone())]), [Effect::OutboxGrew]);
        }
        assert_eq!(untold(&b), 1);
        confirm(&mut b, "n0");
        // It knows of it from now on, whatever comes and goes.
        let mut b = b.restart();
        assert_eq!((untold(&b), b.store.drains[0].told), (0, true));
        b.batch(vec![Input::Settings(settings())]);
        b.batch(vec![Input::Settings(b.settings.clone())]);
        assert_eq!(untold(&b), 0);
    }
}

/// Found by a review: a hook that fails was seen only where a rank waited for it.
#[test]
fn a_drain_that_the_hook_does_not_carry_out_is_shown_with_its_age_and_why() {
    let (mut b, _) = bench(3, hooked);
    let shown = |b: &mut Bench| -> Vec<(String, String, String, u64)> {
        let Ok(Reply::Ps { rows, .. }) = b.ask(Request::Ps { older_than_ms: 0, held: false }).0 else { panic!() };
        let of = |row: &crate::controller::view::PsRow| (row.action.to_string(), row.hosts.to_string());
        assert!(rows.iter().all(|row| row.job.is_none() && row.state == "telling"));
        rows.iter().map(|row| (of(row).0, of(row).1, row.why.clone(), row.age_ms / 1_000)).collect()
    };
    let line = |action: &str, hosts: &str, why: &str, age| (action.to_owned(), hosts.to_owned(), why.to_owned(), age);
    let fails = |b: &mut Bench, lifted, since_ms| {
        let what = Hooked::Drain { host: HostName::new("n0").unwrap(), since_ms, lifted };
        b.ask(Request::HookFailed { what, why: "exit 4: no such node".into() }).0.unwrap();
    };
    b.ask(Request::Drain { hosts: "n[0-2]".parse().unwrap(), reason: "dimm".into() }).0.unwrap();
    let since_ms = b.m.drains["n0"].since_ms;
    b.pass(5_000);
    let (waits, failed) = (
        "the drain hook has not carried it out yet (dimm)",
        "the drain hook failed, and is tried again: exit 4: no such node (dimm)",
    );
    assert_eq!(shown(&mut b), [line("drain", "n[0-2]", waits, 5)]);
    fails(&mut b, false, since_ms);
    // Of another drain, and of the opposite: not this one's.
    fails(&mut b, false, since_ms + 1);
    fails(&mut b, true, since_ms);
    let mut rows = shown(&mut b);
    rows.sort();
    assert_eq!(rows, [line("drain", "n0", failed, 5), line("drain", "n[1-2]", waits, 5)]);
    confirm(&mut b, "n1");
    confirm(&mut b, "n2");
    assert_eq!(shown(&mut b), [line("drain", "n0", failed, 5)]);
    // Lifted: another thing, of which nothing is known yet; it is as old as what the hook has against it.
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false }).0.unwrap();
    assert_eq!(shown(&mut b), [line("undrain", "n0", waits, 0)]);
    fails(&mut b, true, since_ms);
    b.pass(7_000);
    fails(&mut b, true, since_ms);
    assert_eq!(shown(&mut b), [line("undrain", "n0", failed, 7)]);
    b.ask(Request::DrainDone { host: HostName::new("n0").unwrap(), since_ms, lifted: true }).0.unwrap();
    fails(&mut b, true, since_ms);
    assert_eq!((shown(&mut b), b.m.drain_failed.len()), (vec![], 0));
    // Drained anew, and then there is no hook any more.
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into() }).0.unwrap();
    let since_ms = b.m.drains["n0"].since_ms;
    fails(&mut b, false, since_ms);
    assert_eq!(b.m.drain_failed.len(), 1);
    b.batch(vec![Input::Settings(settings())]);
    assert_eq!((shown(&mut b), b.m.drain_failed.len()), (vec![], 0));
}

/// Of a name that nobody knows the hook will never carry anything out.
#[test]
fn a_drain_that_the_hook_will_not_lift_is_dropped_by_hand() {
    let (mut b, _) = bench(1, |settings| settings.drain_hook = true);
    let undrain = |forget| Request::Undrain { hosts: "typo".parse().unwrap(), forget };
    b.ask(Request::Drain { hosts: "typo".parse().unwrap(), reason: "dimm".into() }).0.unwrap();
    b.ask(undrain(false)).0.unwrap();
    let again = b.ask(undrain(false)).0;
    assert!(matches!(&again, Err(Refusal::Conflict(text)) if text.contains("--forget")), "{again:?}");
    b.ask(undrain(true)).0.unwrap();
    assert_eq!(b.store.drains, []);
    let again = b.ask(undrain(true)).0;
    assert!(matches!(&again, Err(Refusal::Conflict(text)) if text == "typo is not drained"), "{again:?}");
}

/// Somebody lifted a drain in the resource manager alone: nobody here has heard of that, and what goes wrong there next is told again.
#[test]
fn what_else_is_wrong_with_a_drained_host_is_told_and_waited_for() {
    let (mut b, n) = bench(2, hooked);
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into() }).0.unwrap();
    confirm(&mut b, "n0");
    b.ask(add("j", "n[0-1]", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    tell(&mut b, n[1], task("epilog", "j", 1), ended(Outcome::Ok));
    let effects = tell(&mut b, n[0], task("epilog", "j", 0), ended(exit(2)));
    assert!(effects.contains(&Effect::OutboxGrew), "{effects:?}");
    let mut b = b.restart();
    let drain = &b.store.drains[0];
    let reason = "epilog: failed (exit 2) after 5ms (job j attempt 0)".to_owned();
    let newest = Again { at_ms: drain.newest().at_ms, reason, by: None };
    assert_eq!((drain.reason.as_str(), drain.newest(), drain.confirmed), ("dimm", newest, false));
    assert!(drain.newest().at_ms > drain.since_ms);
    assert_eq!(b.store.attempts[0].released.ranks.to_string(), "1");
    confirm(&mut b, "n0");
    assert!(b.store.attempts[0].complete);
    // The same again is no news; an operator's word is, whatever it says.
    let again = |b: &mut Bench, reason: &str| {
        let request = Request::Drain { hosts: "n0".parse().unwrap(), reason: reason.into() };
        assert_eq!(b.ask(request).0, Ok(Reply::Reached { tasks: 0 }));
        let drain = &b.store.drains[0];
        (drain.reason.clone(), drain.newest().reason, drain.confirmed)
    };
    assert_eq!(again(&mut b, "fan"), ("dimm".to_owned(), "fan".to_owned(), false));
    confirm(&mut b, "n0");
    assert_eq!(again(&mut b, "fan"), ("dimm".to_owned(), "fan".to_owned(), false));
    // Lifted, and wrong once more: that is another drain.
    b.ask(Request::Undrain { hosts: "n0".parse().unwrap(), forget: false }).0.unwrap();
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "disk".into() }).0.unwrap();
    assert_eq!((b.store.drains[0].reason.as_str(), &b.store.drains[0].again), ("disk", &None));
}

/// No hook: the list here is the drain, and nothing is waited for.
#[test]
fn what_else_is_wrong_is_kept_where_no_hook_is() {
    let (mut b, n) = bench(1, |_| {});
    b.ask(Request::Drain { hosts: "n0".parse().unwrap(), reason: "dimm".into() }).0.unwrap();
    b.ask(add("j", "n0", Terms::default())).0.unwrap();
    b.ask(finish("j", None)).0.unwrap();
    tell(&mut b, n[0], task("epilog", "j", 0), ended(exit(2)));
    let drain = &b.store.drains[0];
    assert_eq!((drain.reason.as_str(), drain.confirmed), ("dimm", true));
    assert!(drain.again.as_ref().is_some_and(|again| again.reason.starts_with("epilog: failed")));
    assert!(b.store.attempts[0].complete);
}
