//! Tests of followers: actions that the edge sends right behind another action, without waiting for the first answer.

use super::*;

/// A follower is the action that the edge sends right behind a due action, without waiting for the first answer. It
/// must be the action that the first answer makes due.
#[test]
fn a_follower_is_what_the_answer_makes_due() {
    type Change = fn(&mut View);
    let over: Change = |view| {
        take(view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
        take(view, 1005.0, "epilog-start", ours());
        take(view, 1006.0, "release", json!({"ranks": "all", "final": true}));
    };
    let known: Change = |view| knows(view, with(vec![action("prolog", Some(Verdict::Ok), false)]));
    let before: Change = |view| {
        let before = Attempt::of_alloc(ALLOC - 1.0).unwrap();
        knows(view, EdgeAttempt { attempt: before, complete: true, hold: Default::default(), ..attempt() });
    };
    let cleaned: Change = |view| {
        let other = EdgeAttempt { job: JobId::new("fother").unwrap(), hold: Default::default(), ..attempt() };
        knows(view, other);
    };
    let staged: Change = |view| view.site = external::rabbit().site;
    let stages: Change = |view| view.jobs.get_mut(&ID).unwrap().externals = [ActionName::new("stage").unwrap()].into();
    #[rustfmt::skip]
    let table: [(&str, &[Change], &str, Option<&str>); 7] = [
        ("new", &[], "add", Some("run prolog")),
        // Without the answer the controller might begin the prolog on the nodes of the attempt before.
        ("allocated again", &[before], "add", None),
        ("a host is cleaned up after another job", &[cleaned], "add", None),
        ("a service comes before the scripts", &[staged, stages], "add", None),
        ("known", &[|view| knows(view, attempt())], "run prolog", None),
        ("over", &[over, known], "run epilog", Some("finish the part")),
        ("over, and perilog never had a report of it", &[over], "add", None),
    ];
    for (name, changes, first, then) in table {
        let mut view = view();
        changes.iter().for_each(|change| change(&mut view));
        let action = plan(&view, NOW_MS).actions.into_iter().next().unwrap();
        let follower = follower(&view, &action);
        assert_eq!(
            (action_text(&action).as_str(), follower.as_ref().map(action_text).as_deref()),
            (first, then),
            "{name}"
        );
        view.did(&action);
        if let Some(follower) = follower {
            assert_eq!(plan(&view, NOW_MS).actions, [follower], "{name}");
        }
    }
}
