use super::*;
use perilog_core::task::{Lingering, OnTimeout, Run};

const EXAMPLE: &str = include_str!("../../agent.toml.example");

/// Returns agent.toml.example with all commented keys switched on, without the lines that begin with one of `without`.
/// A caller leaves out one of two keys that exclude each other, or that appear twice.
fn in_force(without: &[&str]) -> String {
    let lines = EXAMPLE.lines().map(|line| line.strip_prefix("#! ").unwrap_or(line));
    lines.filter(|line| !without.iter().any(|key| line.starts_with(key))).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_example_is_the_default_and_names_every_key() {
    assert_eq!(Config::parse("example", EXAMPLE).unwrap(), Config::default());
    assert!(Config::parse("example", &in_force(&["env-allow = []"])).is_err(), "directories and command");
    let mut named = Config::parse("example", &in_force(&["env-allow = []", "command ="])).unwrap();
    let commanded = Config::parse("example", &in_force(&["env-allow = []", "directories ="])).unwrap();
    // The example contains every key of the schema: the printed configuration has no other key.
    let all = in_force(&[]);
    for config in [&named, &commanded] {
        let printed = config.print().unwrap();
        for key in printed.lines().filter_map(|line| line.split_once(" = ").map(|(key, _)| key)) {
            assert!(
                all.contains(&format!("\n{key} = ")) || all.contains(&format!("{{ {key} = ")),
                "{key} is not in the example"
            );
        }
        assert_eq!(&Config::parse("printed", &printed).unwrap(), config);
    }
    // Except for those marked "Example", the action's values are the defaults.
    let prolog = named.action.remove(&ActionName::new("prolog").unwrap()).unwrap();
    let mut default = Action::default();
    default.complete(&ActionName::new("prolog").unwrap());
    assert!(prolog.script.values().all(|script| script.tolerable) && prolog.env.len() == 1);
    let plain = Action { env: default.env.clone(), script: default.script.clone(), cpu_weight: None, ..prolog };
    assert_eq!(plain, default);
}

#[test]
fn an_action_becomes_a_plan() {
    let text = r#"
        serialize = "host"
        env-allow = ["FLUX_JOB_ID"]
        [action.epilog]
        timeout = "5m"
        on-timeout = "kill"
        lingering = "keep"
        memory-max = "2G"
        umask = "077"
        [action.epilog.script."10-x"]
        timeout = "infinity"
        tolerable = true
        [action.health]
        command = ["/bin/true", "-x"]
    "#;
    let policy = Config::parse("t", text).unwrap().policy();
    assert!(policy.serialize_host && policy.env_allow == ["FLUX_JOB_ID"]);
    let plan = &policy.actions[&ActionName::new("epilog").unwrap()];
    assert_eq!(plan.run, Run::Directories(vec!["/etc/perilog/epilog.d".to_owned()]));
    assert_eq!((plan.timeout_ms, plan.on_timeout, plan.lingering), (Some(300_000), OnTimeout::Kill, Lingering::Keep));
    assert_eq!((plan.memory_max, plan.umask, plan.script_timeout_ms), (Some(2 << 30), 0o077, None));
    assert!(plan.scripts["10-x"].tolerable && plan.scripts["10-x"].timeout_ms > Some(1_000_000_000));
    let health = &policy.actions[&ActionName::new("health").unwrap()];
    assert_eq!(health.run, Run::Command(vec!["/bin/true".to_owned(), "-x".to_owned()]));
    assert!(!policy.actions.contains_key(&ActionName::new("prolog").unwrap()), "no action is there by magic");
}

#[test]
fn a_user_who_may_not_even_read_cannot_connect() {
    assert_eq!(Config::default().local.socket_mode(), 0o600);
    assert_eq!(Config::parse("t", "[local]\nstatus = \"anyone\"\n").unwrap().local.socket_mode(), 0o666);
}

#[test]
fn what_is_wrong_is_shown_where_it_is() {
    for (text, position, part) in [
        ("time-out = 1\n[action.prolog]\n", "t:1:1", "unknown key"),
        ("[action.prolog]\ntime-out = \"5s\"\n", "t:2:1", "did you mean `timeout`"),
        ("[action.prolog]\ntimeout = \"5x\"\n", "t:2:11", "5x"),
        ("[action.prolog]\numask = 22\n", "t:2:9", "\"0022\""),
        ("[action.Prolog]\n", "t:1", "action name"),
        ("[action.prolog]\nmemory-max = \"1.5G\"\n", "t:2:14", "16G"),
        ("[action.prolog]\noom-score-adjust = 2000\n", "t:2:20", "-1000 to 1000"),
        ("[action.prolog]\ndirectories = [\"etc\"]\n", "t:2:15", "begins with `/`"),
        ("[action.prolog]\ndirectories = []\n", "t:1", "at least one"),
        ("[action.prolog]\ncommand = [\"true\"]\n", "t:1", "absolute path of a program"),
        ("[action.prolog]\ncommand = [\"/x\"]\ndirectories = [\"/y\"]\n", "t:1", "exclude each other"),
        ("[action.prolog.env]\nPERILOG_CONTROL = \"x\"\n", "t:2", "names that perilog sets itself"),
        ("env-allow = [\"FLUX_*\"]\n", "t:1:13", "not a pattern"),
        ("env-allow = [\"LD_PRELOAD\"]\n", "t:1:13", "LD_*, BASH_ENV"),
        ("env-allow = [\"SLURM_JOB_ID\", \"BASH_ENV\"]\n", "t:1:13", "LD_*, BASH_ENV"),
        ("controller = [\"mgmt\"]\n", "t:1:14", "host:port"),
        ("max-tasks = 0\n", "t:1:13", "1 to 400"),
        ("serialize = \"node\"\n", "t:1:13", "node"),
        ("host = \"n 0\"\n", "t:1:8", "host name"),
        ("[local]\nstatus = true\n", "t:2:10", ""),
    ] {
        let error = Config::parse("t", text).expect_err(text).to_string();
        assert!(error.contains(position) && error.contains(part), "{text}\n{error}");
    }
}
