//! A daemon refuses a broken configuration file: the message names the line, the key and the expected value. The exit
//! status is `usage`, and no daemon starts.

use anyhow::Result;
use perilog_tests::{Bed, Layer};

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
