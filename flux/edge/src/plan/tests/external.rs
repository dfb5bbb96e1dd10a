//! External actions before and after the job, and failures that are found while it runs.

use super::*;

fn external(at: Reference) -> External {
    External {
        when: "/attributes/system/dw".to_owned(),
        at,
        resources: [perilog_core::ResourceName::new("rabbit").unwrap()].into(),
        nodes: false,
        lease_ms: 60_000,
    }
}

fn name(name: &str) -> ActionName {
    ActionName::new(name).unwrap()
}

/// Returns a view with a job that has the external actions `stage` before it and `copy` after it.
pub(super) fn rabbit() -> View {
    let mut view = view();
    view.site.externals =
        [("stage", Reference::Prolog), ("copy", Reference::Epilog)].map(|(of, at)| (name(of), external(at))).into();
    let jobspec = json!({"attributes": {"system": {"dw": "#DW jobdw"}}});
    view.jobs.get_mut(&ID).unwrap().externals = view.site.externals_of(&jobspec);
    view
}

fn short_of_room(verdict: Verdict) -> EdgeAction {
    let resource = perilog_core::ResourceName::new("rabbit").unwrap();
    let bad_resources = [(resource, "tolerable: quota: none is left".to_owned())].into();
    EdgeAction { bad_resources, ..action("stage", Some(verdict), false) }
}

fn ran(view: &mut View) {
    take(view, 1002.0, "prolog-finish", json!({"description": "perilog", "status": 0}));
    take(view, 1003.0, "start", json!({}));
}

fn over(view: &mut View) {
    ran(view);
    take(view, 1005.0, "epilog-start", ours());
    take(view, 1006.0, "release", json!({"ranks": "all", "final": true}));
}

#[test]
fn a_prolog_waits_for_a_service() {
    let ok = |of: &str| action(of, Some(Verdict::Ok), false);
    let open = |of: &str| action(of, None, false);
    let bad = |of: &str| action(of, Some(Verdict::Failed), true);
    let lost = action("stage", Some(Verdict::Lost), false);
    let cancelled = action("stage", Some(Verdict::Cancelled), false);
    #[rustfmt::skip]
    let table: [(&str, bool, Vec<EdgeAction>, &[&str]); 15] = [
        ("nothing has begun", false, vec![], &["start stage"]),
        ("cancelled before it began", true, vec![], &["finish prolog 256"]),
        ("the service has been asked", false, vec![open("stage")], &["run prolog"]),
        ("the service has been asked, and the job was cancelled", true, vec![open("stage")], &["cancel stage"]),
        ("scripts are done", false, vec![open("stage"), ok("prolog")], &[]),
        ("the service is done", false, vec![ok("stage"), open("prolog")], &[]),
        ("both are done", false, vec![ok("stage"), ok("prolog")], &["finish prolog 0"]),
        // Scripts end as they do.
        ("the service failed", false, vec![bad("stage"), open("prolog")], &[]),
        ("the service failed before the scripts", false, vec![bad("stage")], &["exception stage 0"]),
        ("the service failed, scripts are done", false, vec![bad("stage"), ok("prolog")], &["exception stage 0"]),
        ("no service had reported", false, vec![lost, ok("prolog")], &["exception stage 0"]),
        ("scripts failed", false, vec![open("stage"), bad("prolog")], &["cancel stage"]),
        ("scripts failed, the service was cancelled", false, vec![cancelled, bad("prolog")], &["exception prolog 0"]),
        ("a resource is missing, which the job is forgiven", false, vec![short_of_room(Verdict::Ok), ok("prolog")],
         &["exception tolerated stage 1"]),
        ("a node is bad, which the job is forgiven", false,
         vec![action("stage", Some(Verdict::Ok), true), ok("prolog")], &["exception tolerated stage 1"]),
    ];
    for (what, is_fatal, actions, expect) in table {
        let mut view = rabbit();
        if is_fatal {
            fatal(&mut view);
        }
        knows(&mut view, with(actions));
        assert_eq!(due(&view), expect, "{what}");
    }
    let mut other = rabbit();
    other.jobs.get_mut(&ID).unwrap().externals.clear();
    knows(&mut other, attempt());
    assert_eq!(due(&other), ["run prolog"], "a job that asks for nothing");
}

#[test]
fn an_exception_names_the_resources_that_failed() {
    let mut view = rabbit();
    knows(&mut view, with(vec![short_of_room(Verdict::Failed), action("prolog", Some(Verdict::Ok), false)]));
    let Some(Action::Post { context, .. }) = plan(&view, NOW_MS).actions.pop() else { panic!("no exception") };
    assert_eq!(context["note"], "stage failed: rabbit: tolerable: quota: none is left");
    assert_eq!((&context["type"], &context["action"]), (&json!("stage"), &json!("stage")));
    assert_eq!(context["resources"], json!({"rabbit": "tolerable: quota: none is left"}));
}

/// `Sync` names the job's resources, as `JobAdd` does.
#[test]
fn the_job_is_added_with_its_resources() {
    let view = rabbit();
    let reported = &sync::pages(&view, &json!({"name": "flux", "instance": "system"}))[0];
    assert_eq!(reported["attempts"][0]["resources"], json!(["rabbit"]));
}

#[test]
fn what_follows_the_job_is_begun_before_its_epilog() {
    let ok = |of: &str| action(of, Some(Verdict::Ok), false);
    let open = |of: &str| action(of, None, false);
    let before = || vec![ok("stage"), ok("prolog")];
    let and = |more: &[EdgeAction]| [before(), more.to_vec()].concat();
    let held = |more: &[EdgeAction]| with(and(more));
    let handed_over = |more: &[EdgeAction]| EdgeAttempt { hold: Default::default(), ..held(more) };
    let done =
        |more: &[EdgeAction]| EdgeAttempt { complete: true, released: "0-1".parse().unwrap(), ..handed_over(more) };
    let (copied, lost) = (ok("copy"), action("copy", Some(Verdict::Lost), false));
    #[rustfmt::skip]
    let table: [(&str, EdgeAttempt, &[&str]); 6] = [
        ("tasks are gone", held(&[]), &["start copy"]),
        ("the service has been asked", held(&[open("copy")]), &["run epilog"]),
        ("scripts run", held(&[open("copy"), open("epilog")]), &["finish the part"]),
        ("scripts are done", handed_over(&[open("copy"), ok("epilog")]), &[]),
        ("all is done", done(&[copied, ok("epilog")]), &["finish epilog 0"]),
        ("the service never reported", done(&[lost, ok("epilog")]), &["exception epilog 2"]),
    ];
    for (what, attempt, expect) in table {
        let mut view = rabbit();
        over(&mut view);
        knows(&mut view, attempt);
        assert_eq!(due(&view), expect, "{what}");
    }
}

/// After a restart of rank 0, tasks from before may live on a node whose broker has not joined anew. The external
/// action `copy` then does not start; the edge drains the node first.
#[test]
fn no_service_copies_beside_old_tasks_after_a_restart_of_rank_0() {
    let mut view = rabbit();
    over(&mut view);
    knows(&mut view, with(vec![action("stage", Some(Verdict::Ok), false), action("prolog", Some(Verdict::Ok), false)]));
    view.starttime = 1500.0;
    view.jobs.get_mut(&ID).unwrap().before = true;
    assert_eq!(due(&view), ["start copy"], "all brokers are there");
    view.online = "0,2-3".parse().unwrap();
    assert_eq!(due(&view), ["drain n1"]);
}

/// An operator runs a check while the job runs, and the check fails on a node. The edge notifies the job's user by one
/// exception, which is not fatal; if perilog drains the node, only after the drain.
#[test]
fn a_node_that_goes_bad_while_the_job_runs_is_reported_once() {
    let found = |verdict, bad| with(vec![action("prolog", Some(Verdict::Ok), false), action("check", verdict, bad)]);
    for (what, change, attempt, expect) in [
        ("it runs", ran as fn(&mut View), found(None, false), &[][..]),
        ("nothing is wrong", ran, found(Some(Verdict::Ok), false), &[]),
        ("a node is bad", ran, found(Some(Verdict::Ok), true), &["exception tolerated check 1"]),
        (
            "a node is bad, beyond what the job is forgiven",
            ran,
            found(Some(Verdict::Lost), true),
            &["exception tolerated check 1"],
        ),
        ("the job is in its prolog", nothing, found(Some(Verdict::Ok), true), &["finish prolog 0"]),
    ] {
        let mut view = view();
        change(&mut view);
        knows(&mut view, attempt);
        assert_eq!(due(&view), expect, "{what}");
        if let Some(Action::Post { context, .. }) = plan(&view, NOW_MS).actions.first() {
            assert_eq!((&context["type"], &context["hosts"]), (&json!("node-failure"), &json!("n1")));
            view.did(&plan(&view, NOW_MS).actions.remove(0));
            assert_eq!(due(&view), Vec::<String>::new(), "{what}");
        }
    }
    let mut view = view();
    ran(&mut view);
    knows(&mut view, found(Some(Verdict::Ok), true));
    view.drains.insert(host("n1"), drain("n1"));
    assert_eq!(due(&view), ["drain n1"], "first the drain");
}
