//! Tests of `init node`: above all of `plan`, by tables of the state of a host and the steps or conflicts expected for
//! it.

use super::*;

const RUNS: units::State = units::State { enabled: true, active: true };

fn wanted() -> Wanted {
    Wanted {
        controller: "ctl:5115".to_owned(),
        enroll: "ctl:5117".to_owned(),
        proof: Some(Proof::Token(Token("t".to_owned()))),
        munge: false,
    }
}

fn dropin() -> String {
    OfNode { host: None, controller: "ctl:5115", enrols: Some(("ctl:5117", Path::new(DIRECTORY))), munge: false }.text()
}

fn config() -> Config {
    Config {
        host: None,
        controllers: vec!["ctl:5115".to_owned()],
        enrols: vec!["ctl:5117".to_owned()],
        tls: Some(files_in(Path::new(DIRECTORY))),
        has_actions: true,
    }
}

/// Returns the state of a node with the package, whose agent runs and has no controller.
fn fresh() -> There {
    There {
        systemd: true,
        installed: true,
        munge: true,
        host: "n0".to_owned(),
        dropin: Dropin::None,
        unit: Dropin::None,
        config: Ok(config()),
        brought: None,
        certificate: None,
        ca: None,
        authority: Ok(("PEM".to_owned(), "with the pin ab".to_owned())),
        service: Some(RUNS),
        online: false,
    }
}

fn done() -> There {
    There {
        dropin: Dropin::Ours(dropin()),
        unit: Dropin::Ours(UNIT_TEXT.to_owned()),
        certificate: Some(0),
        ca: Some("PEM".to_owned()),
        online: true,
        ..fresh()
    }
}

#[test]
fn what_is_there_is_no_step() {
    let authority = "/var/lib/perilog-agent/tls/ca.pem: the authority with the pin ab";
    let unit = format!("{UNIT_DROPIN}: the agent may keep its certificate");
    let ours = "/etc/perilog/agent.d/init.toml: controller ctl:5115";
    let certificate = "= /var/lib/perilog-agent/tls/cert.pem: a certificate for n0, until 1970-01-01";
    let restart = "+ enable and restart perilog-agent.service (scripts keep running)";
    let (start, wait) = ("+ enable and start perilog-agent.service", "+ wait until n0 is online at ctl:5115");
    let runs = "= perilog-agent.service is enabled and runs";
    let get = |by: &str| format!("+ get a certificate for n0 from ctl:5117 {by}, into {DIRECTORY}");
    let plus = |text: &str| format!("+ write {text}");
    let is = |text: &str| format!("= {text}");
    let stopped = Some(units::State { enabled: false, active: false });
    let brought = Config { tls: Some(files_in(Path::new("/etc/perilog/tls"))), enrols: Vec::new(), ..config() };
    let cases: [(&str, Wanted, There, Vec<String>); 6] = [
        (
            "fresh",
            wanted(),
            fresh(),
            vec![plus(authority), get("with the token"), plus(&unit), plus(ours), restart.into(), wait.into()],
        ),
        (
            "by munge, and not started by its package",
            Wanted { proof: Some(Proof::Munge), ..wanted() },
            There { service: stopped, ..fresh() },
            vec![plus(authority), get("by munge"), plus(&unit), plus(ours), start.into(), wait.into()],
        ),
        (
            "again, with the token that was used",
            wanted(),
            done(),
            vec![
                is(authority),
                certificate.into(),
                is(&unit),
                is(ours),
                runs.into(),
                "= n0 is online at ctl:5115".into(),
            ],
        ),
        (
            "again, and the controller is away",
            Wanted { proof: None, ..wanted() },
            There { online: false, ..done() },
            vec![is(authority), certificate.into(), is(&unit), is(ours), runs.into(), wait.into()],
        ),
        (
            "killed after the certificate",
            wanted(),
            There { dropin: Dropin::None, unit: Dropin::None, online: false, ..done() },
            vec![is(authority), certificate.into(), plus(&unit), plus(ours), restart.into(), wait.into()],
        ),
        (
            "certificates that were brought",
            Wanted { proof: None, ..wanted() },
            There { brought: Some(0), config: Ok(brought), ..fresh() },
            vec![
                "= a certificate for n0, installed by an administrator and valid until 1970-01-01".into(),
                plus(ours),
                restart.into(),
                wait.into(),
            ],
        ),
    ];
    for (name, wanted, there, expect) in cases {
        assert_eq!(plan(&wanted, &dropin(), &there).unwrap().texts(), expect, "{name}");
    }
    assert!(plan(&wanted(), &dropin(), &done()).unwrap().is_empty());
}

#[test]
fn each_conflict_is_reported_with_its_remedy() {
    let of = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        There { config: Ok(config), ..fresh() }
    };
    for (wanted, there, part) in [
        (wanted(), There { systemd: false, ..fresh() }, "systemd does not run here"),
        (wanted(), There { installed: false, ..fresh() }, "install the package perilog-agent"),
        (wanted(), There { config: Err("x".to_owned()), ..fresh() }, "the configuration is wrong: x"),
        (wanted(), There { dropin: Dropin::Foreign, ..fresh() }, "move its lines to /etc/perilog/agent.d/site.toml"),
        (
            wanted(),
            There { unit: Dropin::Foreign, ..fresh() },
            "perilog-init.conf exists, but is not as init would \
                                                                have written it",
        ),
        (wanted(), There { authority: Err("why".to_owned()), ..fresh() }, "why"),
        (
            wanted(),
            There { ca: Some("other".to_owned()), ..fresh() },
            "is the certificate of another authority than the one with the pin",
        ),
        (Wanted { proof: None, ..wanted() }, fresh(), "perilog token create n0"),
        (Wanted { proof: Some(Proof::Munge), ..wanted() }, There { munge: false, ..fresh() }, "install munge"),
        (
            Wanted { proof: None, ..wanted() },
            There {
                brought: Some(0),
                authority: Err("ca.pem is another authority".to_owned()),
                ..of(|config| (config.tls, config.enrols) = (Some(files_in(Path::new("/etc/perilog/tls"))), Vec::new()))
            },
            "ca.pem is another authority",
        ),
        (wanted(), of(|config| config.controllers.push("b:1".to_owned())), "controller is [\"ctl:5115\", \"b:1\"]"),
        (wanted(), of(|config| config.enrols.clear()), "[enroll] controller is []"),
        (wanted(), of(|config| config.tls = None), "[tls] enabled is false"),
        (wanted(), of(|config| config.tls = Some(files_in(Path::new("/pki")))), "[tls] cert is /pki/cert.pem"),
    ] {
        let conflicts = plan(&wanted, &dropin(), &there).unwrap_err();
        assert!(conflicts.len() == 1 && conflicts[0].contains(part), "{part}: {conflicts:?}");
    }
}

/// Regression test: on a node whose certificates an administrator had installed, `init` ignored `--pin` in silence. It
/// must refuse these certificates if the pin is that of another authority.
#[test]
fn a_pin_holds_for_certificates_that_were_brought() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        crate::verb::ca::make(&dir.path().join(name)).unwrap();
        files_in(&dir.path().join(name))
    };
    let (ours, other) = (of("ours"), of("other"));
    let pin = |tls: &TlsFiles| {
        let pem = fs::read_to_string(&tls.ca).unwrap();
        let all = crate::verb::ca::read::certificates(&tls.ca, &pem).unwrap();
        all[0].fingerprint.clone()
    };
    let named = |options: &[&str]| {
        let line = ["x", "--controller", "ctl"].iter().chain(options);
        let line = <Line as clap::Parser>::try_parse_from(line).unwrap_or_else(|error| panic!("{error}"));
        trusted(&line.args, Some(&ours)).is_ok()
    };
    assert!(named(&[]) && named(&["--pin", &pin(&ours)]) && named(&["--ca", ours.ca.to_str().unwrap()]));
    assert!(!named(&["--pin", &pin(&other)]) && !named(&["--ca", other.ca.to_str().unwrap()]));
}

#[test]
fn addresses_have_a_port() {
    for (text, expect) in [
        ("ctl", Ok("ctl:5115 ctl:5117")),
        ("ctl:6000", Ok("ctl:6000 ctl:5117")),
        ("10.0.0.1", Ok("10.0.0.1:5115 10.0.0.1:5117")),
        ("::1", Ok("[::1]:5115 [::1]:5117")),
        ("[::1]", Ok("[::1]:5115 [::1]:5117")),
        ("[::1]:6000", Ok("[::1]:6000 [::1]:5117")),
        ("ctl:", Err("is no port")),
        ("ctl:x", Err("is no port")),
        (":5115", Err("expected HOST")),
        ("", Err("expected HOST")),
    ] {
        let address = controller(text).map(|address| format!("{} {}", address.at(address.port), address.at(ENROLS)));
        match (address, expect) {
            (Ok(address), Ok(expect)) => assert_eq!(address, expect, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (address, expect) => panic!("{text}: {address:?}, and not {expect:?}"),
        }
    }
}
