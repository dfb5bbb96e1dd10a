use super::*;

fn parse(text: &str) -> Result<Config, String> {
    perilog_host::config::parse("controller.toml", text).map_err(|error| error.to_string())
}

#[test]
fn a_cluster_is_enough_and_the_rest_has_defaults() {
    let config = parse("cluster = 'tiny'").unwrap();
    assert_eq!(config.listen.to_string(), "[::]:5115");
    assert_eq!(&*config.store, Path::new("/var/lib/perilog/controller.db"));
    assert_eq!(config.tls.files().unwrap().key, Path::new("/etc/perilog/tls/key.pem"));
    let settings = config.settings();
    assert_eq!((settings.start_grace_ms, settings.redial_per_second), (60_000, 2_000));
    assert_eq!(settings.cluster, ClusterId::from_name("tiny"));
    assert_eq!(parse(&config.to_toml()), Ok(config));
}

#[test]
fn every_key_is_read() {
    let text = "cluster = 'tiny'\nlisten = '127.0.0.1:0'\nstore = '/srv/c.db'\nlog = 'debug'\nstart-grace = \
                '5s'\nunreachable-grace = 7
        not-after = '1m'\nretention = '1d'\nkeep-attempts = 3\ntls = { enabled = false, crl = '/c' }
        edge = { group = 'flux', drains = true }
        api = { socket = '/s', group = 'wheel', read = 'anyone' }\naction.prolog.timeout = '90s'\naction.epilog = {}";
    let config = parse(text).unwrap();
    let settings = config.settings();
    assert_eq!((settings.unreachable_grace_ms, settings.redial_per_second, settings.keep_attempts), (7_000, 5_000, 3));
    assert_eq!(settings.timeouts, BTreeMap::from([(ActionName::new("prolog").unwrap(), 90_000)]));
    assert_eq!(config.tls.files(), None);
    assert_eq!((config.edge.group.as_deref(), settings.drain_hook), (Some("flux"), true));
    assert_eq!((config.api.group.as_deref(), config.api.read), (Some("wheel"), Read::Anyone));
    assert_eq!(parse(&config.to_toml()), Ok(config));
}

/// The check warns if the page shows names of jobs to more users than `[api] read` permits.
#[test]
fn a_page_that_shows_more_than_the_api_is_pointed_out() {
    let complaint = |listen: &str, page: &str, read: &str| -> Vec<String> {
        let text = format!("cluster = 'a'\n[api]\nread = '{read}'\n[metrics]\n{listen}{page}");
        let warnings = warnings(&parse(&text).unwrap());
        warnings.into_iter().filter(|warning| warning.starts_with("metrics.")).collect()
    };
    let (here, all, page) = ("listen = '127.0.0.1:5116'\n", "listen = '[::]:5116'\n", "page = true");
    assert!(complaint(here, "", "group").is_empty() && complaint(all, "", "group").is_empty(), "figures alone");
    assert!(complaint(here, page, "anyone").is_empty());
    for (listen, read, expect) in [
        ("", "anyone", "metrics.page has no effect while metrics.listen is not set"),
        (here, "group", "also those whom api.read = \"group\" refuses"),
        (all, "anyone", "other hosts can reach [::]:5116"),
        (all, "group", "other hosts can reach [::]:5116"),
    ] {
        let complaint = complaint(listen, page, read);
        assert!(matches!(&complaint[..], [one] if one.contains(expect)), "{listen}{read}: {complaint:?}");
    }
}

/// The file with `[failover]` may be another than the file with the store.
#[test]
fn an_authority_that_would_not_move_is_refused() {
    let two = "cluster = 'c'\n[failover]\nhosts = 'ctl[0-1]'\n";
    assert!(parse(&format!("{two}[enroll]\nlisten = '[::]:5117'\n")).is_ok());
    let elsewhere = format!("{two}[enroll]\ndirectory = '/etc/perilog/enroll'\n");
    assert!(parse(&elsewhere).is_ok(), "no node enrols");
    let error = parse(&format!("{elsewhere}listen = '[::]:5117'\n")).unwrap_err();
    assert!(error.contains("[enroll] directory is /etc/perilog/enroll, which is not on"), "{error}");
    let error = parse(&format!("{two}mount = '/srv'\n")).unwrap_err();
    assert!(error.contains("store is /var/lib/perilog/controller.db, which is not on"), "{error}");
}

#[test]
fn what_is_wrong_is_pointed_at() {
    for (text, expect) in [
        ("", "controller.toml: missing key `cluster`"),
        (
            "cluster = 'a b'",
            "controller.toml:1:11: cluster: malformed cluster name at character 2: expected [A-Za-z0-9._-]",
        ),
        ("cluster = 'a'\nlisten = '5115'", "controller.toml:2:10: listen: "),
        ("cluster = 'a'\nstore = 'c.db'", "controller.toml:2:9: store: expected an absolute path"),
        ("cluster = 'a'\nstart-grace = 'infinity'", "controller.toml:2:15: start-grace: expected a finite duration"),
        ("cluster = 'a'\nretention = '5x'", "controller.toml:2:13: retention: malformed duration"),
        ("cluster = 'a'\nstart_grace = '5s'", "did you mean `start-grace`?"),
        ("cluster = 'a'\n[action.Prolog]\ntimeout = '1s'", "malformed action name"),
        ("cluster = 'a'\nlog = 'loud'", "controller.toml:2:7: log: "),
        ("cluster = 'a'\n[api]\nread = 'all'", "controller.toml:3:8: api.read: "),
        // Without the list of hosts the controller would sign for any name with the peer's address.
        ("cluster = 'a'\n[enroll]\nmunge = true", "enroll: `munge` needs `munge-hosts`, the nodes"),
        ("cluster = 'a'\n[enroll]\nmunge = true\nmunge-hosts = ''", "munge-hosts: expected at least one host"),
        ("cluster = 'a'\n[enroll]\nmunge-hosts = 'n1,10.0.0.1'", "a resolver takes 10.0.0.1 for an IP address"),
        ("cluster = 'a'\n[enroll]\nmunge-hosts = 'n1.0xA.'", "for an IP address"),
        ("cluster = 'a'\n[enroll]\nmunge-hosts = 'n:1'", "malformed host name"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expect), "{text:?}: {error}");
    }
}

/// The example contains every key, with the default if the key has one.
#[test]
fn the_example_is_the_default() {
    let example = include_str!("../../controller.toml.example");
    let config = parse(example).unwrap();
    assert_eq!(config, parse("cluster = 'tiny'").unwrap());
    let uncommented: String =
        example.lines().map(|line| line.strip_prefix("#! ").unwrap_or(line)).flat_map(|line| [line, "\n"]).collect();
    let all = parse(&uncommented).unwrap().to_toml();
    for key in ["crl", "group", "[action.prolog]", "timeout"] {
        assert!(all.contains(key), "the example does not name {key}");
    }
    let known: Vec<&str> =
        all.lines().filter_map(|line| line.split(" = ").next()).filter(|key| !key.is_empty()).collect();
    for key in known {
        assert!(uncommented.contains(key), "the example does not name {key}");
    }
}

/// Regression test: when an operator removed the revocation list of an enrolment authority that was in use, the next
/// reload accepted revoked hosts again.
#[test]
fn an_enrolment_authority_without_its_list_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let made = authority::new("site", 0, 4_000_000_000_000).unwrap();
    std::fs::write(path("site.pem"), &made.cert).unwrap();
    std::fs::write(path("site-key.pem"), &made.key).unwrap();
    std::fs::set_permissions(path("site-key.pem"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let enroll = path("enroll");
    std::fs::create_dir(&enroll).unwrap();
    let (dir, enroll) = (dir.path().display(), enroll.as_path());
    let config = parse(&format!(
        "cluster = 'tiny'\ntls = {{ ca = '{dir}/site.pem', cert = '{dir}/site.pem', key = '{dir}/site-key.pem' }}
         enroll = {{ listen = '[::]:5117', directory = '{}' }}",
        enroll.display()
    ))
    .unwrap();
    let of =
        |config: &Config| (config.server_tls().map(|tls| tls.is_some()), config.enroll_tls().map(|tls| tls.is_some()));
    assert!(matches!(of(&config), (Ok(true), Ok(false))), "no host was ever enrolled: {:?}", of(&config));

    let made = authority::new("enrolment", 0, 4_000_000_000_000).unwrap();
    let issuer =
        authority::Issuer::from_ca_cert_pem(&made.cert, authority::KeyPair::from_pem(&made.key).unwrap()).unwrap();
    let list = authority::revocations(&issuer, 1, &[], 0, 4_000_000_000_000).unwrap();
    std::fs::write(enroll.join(CA_CERT), &made.cert).unwrap();
    std::fs::write(enroll.join(CRL), &list).unwrap();
    assert!(matches!(of(&config), (Ok(true), Ok(true))), "{:?}", of(&config));

    std::fs::remove_file(enroll.join(CRL)).unwrap();
    let complaint = |outcome: Result<bool, TlsError>| outcome.map_err(|error| error.to_string()).unwrap_err();
    let (agents, enrolment) = of(&config);
    for text in [complaint(agents), complaint(enrolment)] {
        assert!(
            text.contains("enroll/crl.pem: there is no such revocation list") && text.contains("restore the list"),
            "{text}"
        );
    }
    // The file exists, but is no revocation list.
    std::fs::write(enroll.join(CRL), "none").unwrap();
    assert!(matches!(of(&config), (Err(_), Err(_))));
    // A directory that cannot be inspected is an error, not an absent authority.
    std::fs::remove_dir_all(enroll).unwrap();
    std::fs::write(enroll, "no directory").unwrap();
    assert!(matches!(of(&config), (Err(TlsError::Read { .. }), Err(TlsError::Read { .. }))), "{:?}", of(&config));
}

/// The drop-ins that the guides for Slurm and Flux recommend are valid configurations.
#[test]
fn what_a_guide_says_of_a_resource_manager_is_understood() {
    for (name, guide) in
        [("slurm", include_str!("../../../docs/slurm.md")), ("flux", include_str!("../../../docs/flux.md"))]
    {
        let plain: String = guide.lines().flat_map(|line| [line.trim_start(), "\n"]).collect();
        let begin = format!("```toml\n# /etc/perilog/controller.d/{name}.toml\n");
        let (_, rest) = plain.split_once(&begin).unwrap();
        let (block, _) = rest.split_once("```").unwrap();
        let config = parse(&format!("cluster = 'tiny'\n{block}")).unwrap();
        assert_eq!(config.api.group.as_deref(), Some(name));
        assert_eq!(config.drain.command.unwrap().words(), [format!("/usr/libexec/perilog/{name}/drain")]);
    }
}
