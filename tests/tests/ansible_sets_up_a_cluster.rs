//! The Ansible role (`packaging/ansible`): a real ansible-playbook sets up a controller and a node. It runs on the host
//! that it sets up, because a bed has no ssh. A second run changes nothing, and a changed variable reloads the daemon.
//! Of two hosts of a controller it starts none. A configuration with a typo is refused, and changes nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{Bed, Node, Output, book};

const SOON: Duration = Duration::from_secs(90);
/// Time limit of a play: on a busy machine, Ansible takes a second for each of its tasks.
const PLAY: Duration = Duration::from_secs(300);
const PLAYBOOK: &str = "---\n- hosts: all\n  gather_facts: false\n  roles:\n    - perilog\n";
const NO_PACKAGES: &str = "perilog_packages: {node: [], controller: []}\nperilog_keys: /root/keys\n";
const CONTROLLER: &str = "perilog_parts: [controller]\nperilog_cluster: bed\n";
const NODE: &str = "perilog_controllers: ['ctl:5115']\nperilog_resource_manager: slurm\nperilog_scripts:\n  - \
                    {script: drop-caches, action: epilog, name: 80-drop-caches}\n";
const HELLO: &str = "perilog_own_scripts:\n  - {src: /root/hello, action: prolog, name: 10-hello}\n";

/// Applies the Ansible role to a node, with these variables (YAML); returns the output of ansible-playbook.
fn play(node: &Node, variables: &str) -> Result<Output> {
    node.write_file("/root/play.yml", PLAYBOOK)?;
    node.write_file("/root/variables.yml", format!("{NO_PACKAGES}{variables}"))?;
    let environment = "LC_ALL=C.UTF-8 ANSIBLE_NOCOLOR=1 ANSIBLE_ROLES_PATH=/usr/share/perilog/ansible";
    let arguments = "-c local -e ansible_python_interpreter=/usr/bin/python3 -e @/root/variables.yml /root/play.yml";
    let command = format!("{environment} ansible-playbook -i {}, {arguments}", node.name());
    node.run_within(PLAY, &["sh", "-c", &command])
}

/// Applies the Ansible role to a node, with these variables (YAML); returns the number of Ansible's tasks that changed
/// something.
fn changed(node: &Node, variables: &str) -> Result<u32> {
    let text = play(node, variables)?.ok().with_context(|| node.diagnosis())?;
    let recap = text.lines().rfind(|line| line.contains(" failed=0 ")).with_context(|| text.clone())?;
    let changed = recap.split_whitespace().find_map(|word| word.strip_prefix("changed="));
    changed.context("changed=")?.parse().context(text.clone())
}

fn pid(node: &Node, unit: &str) -> Result<String> {
    node.systemctl(&["show", "--value", "--property=MainPID", unit])
}

/// Makes the hosts' keys and certificates as docs/administration.md does, where the Ansible of each host expects them.
fn keys(bed: &Bed) -> Result<()> {
    let (ctl, n0) = (bed.node("ctl")?, bed.node("n0")?);
    ctl.sh("perilog ca init --dir /root/ca
        perilog ca issue --dir /root/ca --role controller ctl --out /root/keys
        perilog ca issue --dir /root/ca --role node n0 --out /root/keys")?;
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        let path = format!("/root/keys/n0/{file}");
        n0.write_with_mode(&path, ctl.read_file(&path)?, 0o600)?;
    }
    Ok(())
}

#[test]
fn linters_have_nothing_to_say() -> Result<()> {
    let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/ansible");
    let home = tempfile::tempdir()?;
    let lint = ["ansible-lint", "--offline", "--nocolor", "--profile", "production", "perilog", "site.yml"];
    for command in [&lint[..], &["yamllint", "--strict", "."]] {
        let output = Command::new(command[0]).args(&command[1..]).current_dir(&role).env("HOME", home.path()).output();
        let output = output.with_context(|| format!("{}: apt-get install ansible-lint", command[0]))?;
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{command:?}: {text}");
    }
    Ok(())
}

#[test]
fn twice_is_once_and_a_typo_changes_nothing() -> Result<()> {
    let bed = book::machines(&["ctl", "n0"])?;
    let (ctl, n0) = (bed.node("ctl")?, bed.node("n0")?);
    keys(&bed)?;
    // The configuration files, as the packages leave them.
    ctl.write_file("/etc/perilog/controller.toml", include_str!("../../packaging/controller.toml"))?;
    n0.write_file("/etc/perilog/agent.toml", include_str!("../../packaging/agent.toml"))?;
    n0.write_script("/root/hello", "#!/bin/sh\necho \"hello, job $PERILOG_JOB\"\n")?;
    let unnamed = play(ctl, "perilog_parts: [controller]\n")?;
    ensure!(!unnamed.success() && unnamed.stdout.contains("a controller needs perilog_cluster"), "{unnamed}");

    ensure!(changed(ctl, CONTROLLER)? > 0 && changed(n0, &format!("{NODE}{HELLO}"))? > 0, "nothing changed");
    bed.wait_until("the node is online", SOON, || Ok(ctl.run(&["perilog", "nodes"])?.stdout.contains("online")))?;
    ctl.run(&["perilog", "run", "prolog", "--job", "j", "--nodes", "n0"])?.ok()?;
    bed.wait_until("its script has spoken", SOON, || {
        Ok(ctl.run(&["perilog", "logs", "j"])?.stdout.contains("hello, job j"))
    })?;
    let stat = "stat -c '%a %U %N' /etc/perilog/tls/key.pem /etc/perilog/epilog.d/80-drop-caches \
                /etc/perilog/agent.d/slurm.toml";
    let links = "600 root '/etc/perilog/tls/key.pem'
777 root '/etc/perilog/epilog.d/80-drop-caches' -> '/usr/share/perilog/scripts/drop-caches'
777 root '/etc/perilog/agent.d/slurm.toml' -> '/usr/share/perilog/agent.d/slurm.toml'";
    assert_eq!(n0.sh(stat)?, links);
    for unit in ["perilog-controller.socket", "perilog-controller.service"] {
        ctl.systemctl(&["is-enabled", unit])?;
    }
    n0.systemctl(&["is-enabled", "perilog-agent.service"])?;

    let before = (pid(ctl, "perilog-controller")?, pid(n0, "perilog-agent")?);
    let again = (changed(ctl, CONTROLLER)?, changed(n0, &format!("{NODE}{HELLO}"))?);
    assert_eq!(again, (0, 0), "a second run changes nothing");
    let gone = HELLO.replace('}', ", state: absent}");
    let changes = changed(n0, &format!("{NODE}{gone}perilog_agent_toml: |\n  max-tasks = 9\n"))?;
    assert_eq!(changes, 3, "the file, the script, the reload");
    ensure!(!n0.run(&["test", "-e", "/etc/perilog/prolog.d/10-hello"])?.success(), "the script is there");
    assert_eq!((pid(ctl, "perilog-controller")?, pid(n0, "perilog-agent")?), before, "something was restarted");
    let reloaded = || Ok(n0.sh("journalctl --no-pager -o cat -u perilog-agent")?.contains("max-tasks"));
    bed.wait_until("the agent has read it", SOON, reloaded)?;

    let typo = play(n0, &format!("{NODE}perilog_agent_toml: |\n  max-task = 9\n"))?;
    ensure!(!typo.success() && typo.stdout.contains("did you mean `max-tasks`?"), "{typo}");
    ensure!(n0.read_file("/etc/perilog/agent.d/ansible.toml")?.contains("max-tasks = 9"), "the typo is there");
    Ok(())
}

/// A cluster manager lets one of two hosts run the controller: the role leaves the units as they are. A change of the
/// configuration restarts the controller where it runs, and starts none where it does not.
#[test]
fn of_two_hosts_the_role_starts_none() -> Result<()> {
    let bed = book::machines(&["ctl", "n0"])?;
    let ctl = bed.node("ctl")?;
    keys(&bed)?;
    ctl.write_file("/etc/perilog/controller.toml", include_str!("../../packaging/controller.toml"))?;
    let two_hosts = format!("{CONTROLLER}perilog_failover: true\n");
    let change = |retention: &str| format!("{two_hosts}perilog_controller_toml: |\n  retention = \"{retention}\"\n");
    let is = |verb: &str, unit: &str| Ok::<_, anyhow::Error>(ctl.run(&["systemctl", verb, "--quiet", unit])?.success());

    ensure!(changed(ctl, &two_hosts)? > 0, "nothing changed");
    ensure!(changed(ctl, &change("1d"))? == 1, "the file alone");
    for unit in ["perilog-controller.socket", "perilog-controller.service"] {
        ensure!(!is("is-enabled", unit)? && !is("is-active", unit)?, "{unit} is enabled or runs");
    }
    // As the cluster manager starts it.
    ctl.systemctl(&["start", "perilog-controller.service"])?;
    let before = pid(ctl, "perilog-controller")?;
    assert_eq!(changed(ctl, &change("1d"))?, 0, "a second run changes nothing");
    assert_eq!(pid(ctl, "perilog-controller")?, before, "it was restarted for nothing");
    ensure!(changed(ctl, &change("2d"))? == 2, "the file, the restart");
    ensure!(pid(ctl, "perilog-controller")? != before, "the controller has the old configuration");
    ensure!(!is("is-active", "perilog-controller.socket")?, "the socket is active");
    Ok(())
}
