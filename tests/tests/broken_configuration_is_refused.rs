//! A daemon refuses a broken configuration file: the message names the line, the key and the expected value. The exit
//! status is `usage`, and no daemon starts.

use anyhow::Result;
use perilog_tests::{Bed, Cluster, Layer};

struct Case {
    daemon: &'static str,
    text: &'static str,
    expected: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        daemon: "agent",
        text: "[action.prolog]\ntime-out = \"5m\"\n",
        expected: &["agent.toml:2", "time-out", "timeout"],
    },
    Case {
        daemon: "agent",
        text: "[action.prolog]\ntimeout = \"5 m\"\n",
        expected: &["agent.toml:2", "timeout", "5 m"],
    },
    Case { daemon: "agent", text: "host = 7\n", expected: &["agent.toml:1", "host", "string"] },
    Case { daemon: "agent", text: "[action.Prolog]\n", expected: &["agent.toml:1", "Prolog", "[a-z][a-z0-9-]"] },
    Case { daemon: "agent", text: "env-allow = [\"A-B\"]\n", expected: &["agent.toml:1", "env-allow", "A-B"] },
    Case { daemon: "agent", text: "host = \"n0\n", expected: &["agent.toml:1"] },
    Case {
        daemon: "controller",
        text: "cluster = \"c\"\nlisten = \"nowhere\"\n",
        expected: &["controller.toml:2", "listen"],
    },
    Case {
        daemon: "controller",
        text: "cluster = \"c\"\nstart-grace = -1\n",
        expected: &["controller.toml:2", "start-grace"],
    },
    Case { daemon: "controller", text: "listen = \"[::]:5115\"\n", expected: &["controller.toml", "cluster"] },
];

#[test]
fn a_bad_key_is_named_with_its_place_and_nothing_starts() -> Result<()> {
    let bed = Bed::builder().node("n0").layer(Layer::find()?).boot()?;
    let node = bed.node("n0")?;
    for case in CASES {
        node.write_file(&format!("/etc/perilog/{}.toml", case.daemon), case.text)?;
        let daemon = format!("perilog-{}", case.daemon);
        for arguments in [&["--check-config"][..], &[]] {
            let output = node.run(&[&[daemon.as_str()], arguments].concat())?;
            assert_eq!(output.code(), Some(2), "{:?}: {output}", case.text);
            for word in case.expected {
                assert!(output.stderr.contains(word), "{:?} lacks {word:?}: {output}", case.text);
            }
        }
    }
    assert_eq!(node.run(&["pgrep", "perilog"])?.code(), Some(1), "something runs");
    assert!(!node.run(&["test", "-e", "/var/lib/perilog/controller.db"])?.success(), "a store was made");
    Ok(())
}

#[test]
fn a_file_that_others_can_write_is_refused() -> Result<()> {
    let bed = Bed::builder().node("n0").layer(Layer::find()?).boot()?;
    let node = bed.node("n0")?;
    node.write_with_mode("/etc/perilog/agent.toml", "host = \"n0\"\n", 0o666)?;
    let output = node.run(&["perilog-agent", "--check-config"])?;
    assert_eq!(output.code(), Some(2), "{output}");
    assert!(output.stderr.contains("/etc/perilog/agent.toml") && output.stderr.contains("666"), "{output}");
    Ok(())
}

/// Regression test: `systemctl reload` succeeded despite a typo in the new configuration. Only the journal said that
/// the old configuration was still in force.
#[test]
fn a_reload_of_a_typo_fails_and_status_says_so() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-quick", "exit 0").boot()?;
    let (controller, node) = (cluster.controller()?, cluster.node(0)?);
    for (host, daemon, text) in
        [(controller, "controller", "start_grace = \"5s\"\n"), (node, "agent", "[action.prolog]\ntime-out = \"5m\"\n")]
    {
        let (unit, typo) = (format!("perilog-{daemon}"), format!("/etc/perilog/{daemon}.d/typo.toml"));
        host.write_file(&typo, text)?;
        assert!(!host.run(&["systemctl", "reload", &unit])?.success(), "{daemon}: a reload of a typo succeeds");
        let journal = host.run(&["journalctl", "--unit", &unit, "--output", "cat"])?;
        assert!(journal.stdout.contains("did you mean"), "{daemon}: {journal}");
        assert_eq!(host.systemctl(&["is-active", &unit])?.trim(), "active");
        let line = host.systemctl(&["show", "--property", "StatusText", &unit])?;
        assert!(line.contains("the earlier configuration stays in force") && line.contains(&typo), "{daemon}: {line}");
        if daemon == "controller" {
            let status = cluster.perilog(&["status"])?;
            assert!(status.stdout.contains("note") && status.stdout.contains(&typo), "{status}");
        }
        host.sh(&format!("rm {typo}"))?;
        host.systemctl(&["reload", &unit])?;
    }
    assert!(!cluster.perilog(&["status"])?.stdout.contains("note"), "a note outlives the mistake");
    assert!(cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?.success());
    Ok(())
}
