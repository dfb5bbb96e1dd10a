//! Tests of `init controller`: above all of `plan`, by tables of the state of a host and the steps or conflicts
//! expected for it.

use perilog_host::clock;

use super::inspect::{authority, certificate};
use super::lines::pin;
use super::*;
use crate::verb::ca::files;
use crate::verb::ca::read::certificates;

const RUNS: units::State = units::State { enabled: true, active: true };
const DAY_MS: u64 = 86_400_000;

fn wanted() -> Wanted {
    let names = vec![ca::name("ctl").unwrap()];
    Wanted { cluster: Some("c".to_owned()), names, ca: "/root/perilog-ca".into(), nodes: None, munge: false }
}

fn dropin() -> OfController {
    OfController { cluster: Some("c".to_owned()), munge_hosts: None }
}

fn tls(dir: &str) -> Option<TlsFiles> {
    Some(files_in(Path::new(dir)))
}

fn good(names: &[&str]) -> Files {
    Files::Good { names: names.iter().map(|name| (*name).to_owned()).collect(), until_ms: 0 }
}

/// Returns the state of a host with the package and nothing else.
fn fresh() -> There {
    There {
        systemd: true,
        installed: true,
        unmunge: true,
        dropin: Dropin::None,
        config: Ok(Config { cluster: "c".to_owned(), tls: tls("/etc/perilog/tls"), enrols: Some(5117), hosts: None }),
        authority: Files::None,
        certificate: Files::None,
        service: Some(units::State { enabled: false, active: false }),
        socket: Some(units::State { enabled: false, active: false }),
        known: BTreeMap::new(),
    }
}

/// Returns the state of a host after `init controller`.
fn done() -> There {
    There {
        dropin: Dropin::Ours(dropin().text()),
        authority: good(&[]),
        certificate: good(&["ctl"]),
        service: Some(RUNS),
        socket: Some(RUNS),
        ..fresh()
    }
}

#[test]
fn a_cluster_manager_starts_the_units_of_two_hosts() {
    let mut there = There { service: fresh().service, socket: fresh().socket, ..done() };
    if let Ok(config) = &mut there.config {
        config.hosts = Some("ctl[0-1]".parse().unwrap());
    }
    let plan = plan("ctl0", &wanted(), &dropin(), &there).unwrap();
    assert!(plan.is_empty(), "{:?}", plan.texts());
    assert!(plan.texts().contains(&"= the cluster manager starts perilog-controller.service ([failover])".to_owned()));
}

/// Nodes that dialled ctl0 were lost when the controller moved to ctl1.
#[test]
fn nodes_dial_a_name_that_moves() {
    let of = |hosts: Option<&str>, certificate: Files| {
        let mut there = There { certificate, ..fresh() };
        if let Ok(config) = &mut there.config {
            config.hosts = hosts.map(|hosts| hosts.parse().unwrap());
        }
        dialled(ca::name("ctl0").unwrap(), &there).map(|name| name.text())
    };
    let two = Some("ctl[0-1]");
    assert_eq!(of(None, good(&["ctl", "ctl0"])).as_deref(), Ok("ctl0"), "one host");
    assert_eq!(of(two, good(&["ctl", "ctl0", "ctl1"])).as_deref(), Ok("ctl"));
    assert_eq!(of(two, good(&["ctl0.hpc", "ctl1", "10.77.0.200", "ctl.hpc"])).as_deref(), Ok("ctl.hpc"));
    assert_eq!(of(two, Files::Bad("b".to_owned())).as_deref(), Ok("ctl0"), "the plan reports that");
    let refusal = of(two, good(&["ctl0", "ctl1"])).unwrap_err();
    assert!(refusal.contains("is for ctl0, ctl1, and [failover] has the hosts ctl[0-1]"), "{refusal}");
    assert!(refusal.contains("Type --name NAME"), "{refusal}");
    let refusal = of(two, Files::None).unwrap_err();
    assert!(refusal.starts_with("there is no certificate") && refusal.contains("--name NAME"), "{refusal}");
}

#[test]
fn what_is_there_is_no_step() {
    let authority = "+ make an authority in /root/perilog-ca: anyone who has its key can impersonate the controller";
    let issue = "+ issue the controller's certificate for ctl to /etc/perilog/tls";
    let summary = "/etc/perilog/controller.d/init.toml: cluster c, nodes enrol at port 5117";
    let (write, written) = (format!("+ write {summary}"), format!("= {summary}"));
    let names = "perilog-controller.socket, perilog-controller.service";
    let (start, restart) = (format!("+ enable and start {names}"), format!("+ enable and restart {names}"));
    let (runs, certificate) =
        (format!("= {names} are enabled and run"), "= /etc/perilog/tls/cert.pem: for ctl, until 1970-01-01");
    let tokens = "+ make one-time tokens for n[0,2]";
    let known: BTreeMap<String, &'static str> = [("n1".to_owned(), "online"), ("n9".to_owned(), "online")].into();
    let with_nodes = Wanted { nodes: Some("n[0-2]".parse().unwrap()), ..wanted() };
    let cases: [(&str, Wanted, There, Vec<&str>); 7] = [
        ("fresh", wanted(), fresh(), vec![authority, issue, &write, &start]),
        ("again", wanted(), done(), vec![certificate, &written, &runs]),
        (
            "the site's authority",
            wanted(),
            There { authority: good(&[]), ..fresh() },
            vec!["= /root/perilog-ca: an authority", issue, &write, &start],
        ),
        (
            "the site's certificate",
            wanted(),
            There { certificate: good(&["ctl", "ctl.cluster"]), ..fresh() },
            vec!["= /etc/perilog/tls/cert.pem: for ctl, ctl.cluster, until 1970-01-01", &write, &start],
        ),
        (
            "killed before the start",
            wanted(),
            There { service: fresh().service, ..done() },
            vec![certificate, &written, &start],
        ),
        (
            "tokens for those without",
            with_nodes.clone(),
            There { known: known.clone(), ..done() },
            vec![certificate, &written, &runs, "= n1 online", tokens],
        ),
        (
            "a drop-in of ours that says something else",
            wanted(),
            There { dropin: Dropin::Ours("x".to_owned()), ..done() },
            vec![
                certificate,
                "+ write /etc/perilog/controller.d/init.toml anew: cluster c, nodes enrol at port 5117",
                &restart,
            ],
        ),
    ];
    for (name, wanted, there, expect) in cases {
        assert_eq!(plan("ctl", &wanted, &dropin(), &there).unwrap().texts(), expect, "{name}");
    }
    assert!(plan("ctl", &wanted(), &dropin(), &done()).unwrap().is_empty());
    // munge needs no token.
    let munge = Wanted { munge: true, ..with_nodes };
    let dropin = OfController { munge_hosts: Some("n[0-2]".to_owned()), ..dropin() };
    let words = plan("ctl", &munge, &dropin, &fresh()).unwrap().texts();
    assert!(words.iter().any(|word| word.ends_with("port 5117, n[0-2] by munge")), "{words:?}");
    assert!(words.iter().all(|word| !word.contains("token")), "{words:?}");
}

#[test]
fn each_conflict_is_reported_with_its_remedy() {
    let of = |cluster: &str, tls: Option<TlsFiles>| {
        Ok(Config { cluster: cluster.to_owned(), tls, enrols: Some(5117), hosts: None })
    };
    let elsewhere = TlsFiles { key: "/pki/ctl.key".into(), ..tls("/pki").unwrap() };
    for (there, part) in [
        (There { systemd: false, ..fresh() }, "systemd does not run here"),
        (There { installed: false, ..fresh() }, "install the package perilog-controller"),
        (There { dropin: Dropin::Foreign, ..fresh() }, "move its lines to /etc/perilog/controller.d/site.toml"),
        (There { config: Err("x".to_owned()), ..fresh() }, "the configuration is wrong: x"),
        (There { config: of("other", tls("/etc/perilog/tls")), ..fresh() }, "cluster is other in the configuration"),
        (There { config: of("c", None), ..fresh() }, "[tls] enabled is false"),
        (There { config: of("c", Some(elsewhere)), ..fresh() }, "other files than ca.pem"),
        (There { certificate: Files::Part("/t/ca.pem".into()), ..fresh() }, "/t/ca.pem exists, but not all"),
        (There { certificate: Files::Bad("b".to_owned()), ..fresh() }, "cannot be used: b"),
        (There { certificate: good(&["mgmt"]), ..fresh() }, "is for mgmt, not for ctl"),
        (There { authority: Files::Part("/c/ca.pem".into()), ..fresh() }, "/c/ca.pem exists, but not both"),
        (There { authority: Files::Bad("a".to_owned()), ..fresh() }, "the authority cannot be used: a"),
    ] {
        let conflicts = plan("ctl", &wanted(), &dropin(), &there).unwrap_err();
        assert!(conflicts.len() == 1 && conflicts[0].contains(part), "{part}: {conflicts:?}");
    }
    let munge = Wanted { munge: true, nodes: Some("n0".parse().unwrap()), ..wanted() };
    let conflicts = plan("ctl", &munge, &dropin(), &There { unmunge: false, ..fresh() }).unwrap_err();
    assert!(conflicts[0].contains("install munge"), "{conflicts:?}");
    let nameless = There { config: Err("missing key `cluster`".to_owned()), ..fresh() };
    let conflicts = plan("ctl", &Wanted { cluster: None, ..wanted() }, &OfController::default(), &nameless);
    assert!(conflicts.unwrap_err()[0].ends_with("missing key `cluster` (the cluster's name: --cluster NAME)"));
}

#[test]
fn a_drop_in_is_read_back_and_keeps_odd_names() {
    let dropin = OfController { cluster: Some("a \"b\"".to_owned()), munge_hosts: Some("n[0-3]".to_owned()) };
    assert_eq!(OfController::of(&dropin.text()), dropin);
    assert_eq!(OfController::of(&OfController::default().text()), OfController::default());
    assert_eq!(OfController::of("= no TOML"), OfController::default());
}

/// A second `init controller --munge` for other nodes keeps the nodes that munge enrolled before.
#[test]
fn munge_enrols_the_nodes_of_all_lines() {
    let mut dropin = dropin();
    for (nodes, all) in [("n[0-1]", "n[0-1]"), ("n[1-3]", "n[0-3]"), ("n0", "n[0-3]"), ("m0", "n[0-3],m0")] {
        dropin.enrol_by_munge(&nodes.parse().unwrap());
        assert_eq!(dropin.munge_hosts.as_deref(), Some(all), "{nodes}");
    }
}

#[test]
fn files_are_good_partial_bad_or_missing() {
    let dir = tempfile::tempdir().unwrap();
    let tls = files_in(&dir.path().join("tls"));
    assert_eq!((certificate(&tls), authority(dir.path())), (Files::None, Files::None));
    ca::make(dir.path()).unwrap();
    assert_eq!(authority(dir.path()), good(&[]));
    ca::controller(dir.path(), &wanted().names, &dir.path().join("tls")).unwrap();
    let Files::Good { names, until_ms } = certificate(&tls) else { panic!("{:?}", certificate(&tls)) };
    assert!(names == ["ctl"] && until_ms > clock::wall_ms() + 1824 * DAY_MS);
    let shown = certificates(&tls.ca, &files::read(&tls.ca).unwrap()).unwrap();
    assert_eq!(pin(&tls).unwrap().to_string(), shown[0].fingerprint.replace(':', "").to_lowercase());
    std::fs::remove_file(&tls.key).unwrap();
    assert_eq!(certificate(&tls), Files::Part(tls.ca.clone()));
    std::fs::write(&tls.key, "x").unwrap();
    assert!(matches!(certificate(&tls), Files::Bad(_)));
}

#[test]
fn lines_have_a_pin_and_each_nodes_own_token() {
    let dir = tempfile::tempdir().unwrap();
    ca::make(dir.path()).unwrap();
    ca::controller(dir.path(), &wanted().names, &dir.path().join("tls")).unwrap();
    let tls = files_in(&dir.path().join("tls"));
    let pin = pin(&tls).unwrap();
    let config = Config { cluster: "c".to_owned(), tls: Some(tls), enrols: Some(6000), hosts: None };
    let with = Wanted { nodes: Some("n[0-1]".parse().unwrap()), ..wanted() };
    let tokens = vec![("n0".to_owned(), "t0".to_owned()), ("n1".to_owned(), "t1".to_owned())];
    let quiet = |wanted: &Wanted, tokens: Vec<(String, String)>| {
        let [_, _, quiet] = crate::out::tests::render(&lines("ctl", wanted, &config, tokens, false).unwrap(), 0);
        quiet
    };
    let line = format!("perilog init node --controller ctl --pin {pin} --enroll ctl:6000");
    assert_eq!(quiet(&with, tokens), format!("n0 {line} --token t0\nn1 {line} --token t1\n"));
    assert_eq!(quiet(&wanted(), Vec::new()), format!("NODE {line} --token TOKEN\n"));
    let munge = Wanted { munge: true, ..with };
    assert_eq!(quiet(&munge, Vec::new()), format!("n0 {line} --munge\nn1 {line} --munge\n"));
}
