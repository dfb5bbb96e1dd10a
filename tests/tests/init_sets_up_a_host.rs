//! `perilog init` sets up a controller and two nodes, until a prolog's first line is printed. A second `init` and a dry
//! run change nothing, and neither does an `init` with a conflict or a wrong token. `undo` leaves each host as it was,
//! except for the authority, the store and files that an administrator has changed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{Bed, Node, Output, book};

const ENOUGH: Duration = Duration::from_secs(120);
/// agent.toml as the package installs it.
const AGENT: &str = include_str!("../../packaging/agent.toml");
/// controller.toml as the package installs it.
const CONTROLLER: &str = include_str!("../../packaging/controller.toml");
const HELLO: &str = "#!/bin/sh\necho \"hello, job $PERILOG_JOB on rank $PERILOG_RANK\"\n";

/// Boots machines on which the product's packages were just installed: the agent is enabled and has no controller.
fn machines() -> Result<Bed> {
    let bed = book::machines(&["ctl", "n0", "n1"])?;
    bed.node("ctl")?.write_file("/etc/perilog/controller.toml", CONTROLLER)?;
    for name in ["n0", "n1"] {
        let node = bed.node(name)?;
        node.write_file("/etc/perilog/agent.toml", AGENT)?;
        node.sh("mkdir -p /etc/perilog/prolog.d /etc/perilog/epilog.d /etc/perilog/housekeeping.d")?;
        node.systemctl(&["enable", "--now", "perilog-agent.service"])?;
    }
    Ok(bed)
}

/// Returns the state of all files and links on the node that init may touch. The value of a path is its mode, owner and
/// target; the value of `sha256:PATH` is the digest of a file's content.
fn tree(node: &Node) -> Result<BTreeMap<String, String>> {
    let listed =
        node.sh("find /etc /root /var/lib/perilog-agent /run/perilog-init.* -path '/root/.*' -prune -o ! -type d \
           -printf '%p %m %U %l\\n' 2>/dev/null | sort || true\n\
         find /etc/perilog /etc/systemd /root/perilog-ca -type f -exec sha256sum {} + 2>/dev/null | awk \
         '{print \"sha256:\" $2, $1}' || true")?;
    let line = |line: &str| line.split_once(' ').map(|(path, rest)| (path.to_owned(), rest.to_owned()));
    Ok(listed.lines().filter_map(line).collect())
}

fn init(node: &Node, arguments: &str) -> Result<Output> {
    node.run_within(ENOUGH, &["bash", "-c", &format!("exec perilog init {arguments}")])
}

/// Returns the `perilog init node` commands that `init controller` has printed, by host.
fn lines(printed: &str) -> BTreeMap<String, String> {
    let line = |line: &str| line.trim().split_once("# ").map(|(host, line)| (host.to_owned(), line.to_owned()));
    printed.lines().filter_map(line).filter(|(_, line)| line.starts_with("perilog init node ")).collect()
}

fn is_unchanged(node: &Node, before: &BTreeMap<String, String>, what: &str) -> Result<()> {
    let now = tree(node)?;
    ensure!(now == *before, "{what} changed {}:\n{before:#?}\n{now:#?}", node.name());
    Ok(())
}

#[test]
fn three_hosts_from_nothing_to_a_line_of_a_prolog_and_back() -> Result<()> {
    let bed = machines()?;
    let (ctl, n0, n1) = (bed.node("ctl")?, bed.node("n0")?, bed.node("n1")?);
    let before: Vec<_> = [ctl, n0, n1].into_iter().map(tree).collect::<Result<_>>()?;

    // A dry run shows the plan and changes nothing.
    let set_up = "controller --cluster tiny --nodes n[0-1]";
    let shown = init(ctl, &format!("{set_up} --dry-run"))?.ok()?;
    for part in ["make an authority in /root/perilog-ca", "for ctl to /etc/perilog/tls", "init.toml: cluster tiny"] {
        ensure!(shown.contains(part), "no {part:?} in {shown}");
    }
    is_unchanged(ctl, &before[0], "a dry run")?;

    let output = init(ctl, set_up)?;
    let printed = output.ok()?;
    println!("{printed}");
    let typed = lines(&printed);
    ensure!(typed.len() == 2, "{printed}");
    ensure!(printed.contains("keep /root/perilog-ca/ca-key.pem"), "{printed}");
    let modes = ctl.sh("stat -c '%a %U %n' /root/perilog-ca /root/perilog-ca/ca-key.pem /etc/perilog/tls/key.pem")?;
    let expected = "700 root /root/perilog-ca\n600 root /root/perilog-ca/ca-key.pem\n640 root /etc/perilog/tls/key.pem";
    assert_eq!(modes, expected);

    let line = |host: &str| typed.get(host).map(|line| line.replace("perilog init ", "")).context("a line for it");
    // A dry run on the node reaches the controller, and uses no token.
    init(n0, &format!("{} --dry-run", line("n0")?))?.ok()?;
    is_unchanged(n0, &before[1], "a dry run")?;
    for node in [n0, n1] {
        let printed = init(node, &line(node.name())?)?.ok()?;
        println!("{printed}");
        ensure!(printed.contains(&format!("{} is online at ctl:5115", node.name())), "{printed}");
        node.write_script("/etc/perilog/prolog.d/10-hello", HELLO)?;
    }
    let ran = ctl.sh("perilog run prolog --job first --nodes 'n[0-1]' --timeout 1m && perilog logs first")?;
    ensure!(ran.contains("hello, job first on rank 0") && ran.contains("hello, job first on rank 1"), "{ran}");
    // A good enrolment is one line of the log, with the address as the nodes have it, and no refusal.
    let log = ctl.sh("journalctl --no-pager -o cat -u perilog-controller")?;
    ensure!(log.contains(&format!("enrolled n0 ({}:", n0.address())), "{log}");
    ensure!(!log.contains("::ffff:") && !log.contains("refused"), "{log}");
    // New hardware under an old name: the token comes with the line to type, which is init's own.
    let again = ctl.sh("perilog token create n1; perilog -q token revoke n1")?;
    let own = typed.get("n1").and_then(|line| line.rsplit_once(' ')).context("a line for n1")?.0;
    ensure!(again.contains(&format!("  n1# {own} ")), "no {own:?} in {again}");
    let key = n0.sh("stat -c '%a' /var/lib/perilog-agent /var/lib/perilog-agent/tls/key.pem")?;
    assert_eq!(key, "700\n600");
    let token = line("n0")?.rsplit_once(' ').map(|(_, token)| token.to_owned()).context("a token")?;
    let kept = n0.sh(&format!("grep -rl -e {token} /etc /run/perilog /var/lib/perilog-agent || echo nowhere"))?;
    assert_eq!(kept, "nowhere", "the token is kept");

    // A second `init` changes nothing, even with a used token, and restarts no daemon.
    let started = |node: &Node, unit: &str| node.systemctl(&["show", "--value", "--property=MainPID", unit]);
    let pids = (started(ctl, "perilog-controller")?, started(n0, "perilog-agent")?);
    let between = (tree(ctl)?, tree(n0)?);
    let again = init(ctl, set_up)?.ok()?;
    ensure!(again.contains("nothing to do") && lines(&again).is_empty(), "{again}");
    let again = init(n0, &line("n0")?)?.ok()?;
    ensure!(again.contains("nothing to do") && again.contains("n0 is online"), "{again}");
    assert_eq!(pids, (started(ctl, "perilog-controller")?, started(n0, "perilog-agent")?));
    is_unchanged(ctl, &between.0, "the same again")?;
    is_unchanged(n0, &between.1, "the same again")?;

    // The certificate is on the disk: a boot needs no token.
    n0.reboot()?;
    let is_online = || {
        let nodes = ctl.sh("perilog nodes n0")?;
        Ok(nodes.contains("n0") && nodes.contains("online"))
    };
    bed.wait_until("n0 is back", ENOUGH, is_online)?;

    // Undo. A dry run of it changes nothing; the administrator's own files stay.
    let between = tree(n0)?;
    let shown = init(n0, "undo --dry-run")?.ok()?;
    ensure!(shown.contains("remove /etc/perilog/agent.d/init.toml"), "{shown}");
    is_unchanged(n0, &between, "a dry run of undo")?;
    for (node, before) in [n0, n1].into_iter().zip(&before[1..]) {
        println!("{}", init(node, "undo")?.ok()?);
        node.sh("rm /etc/perilog/prolog.d/10-hello")?;
        is_unchanged(node, before, "undo")?;
        assert_eq!(node.systemctl(&["is-active", "perilog-agent"])?, "active", "its package has started it");
    }
    let reported = init(ctl, "undo")?.ok()?;
    println!("{reported}");
    for part in ["stays: the authority in /root/perilog-ca", "stays: /var/lib/perilog"] {
        ensure!(reported.contains(part), "no {part:?} in {reported}");
    }
    let left: Vec<String> = tree(ctl)?.into_keys().filter(|path| !before[0].contains_key(path)).collect();
    ensure!(!left.is_empty() && left.iter().all(|path| path.contains("/root/perilog-ca/")), "{left:?}");
    let state = ctl.run(&["systemctl", "is-enabled", "perilog-controller.service", "perilog-controller.socket"])?;
    assert_eq!(state.stdout.trim(), "disabled\ndisabled");
    ensure!(init(ctl, "undo")?.ok()?.contains("init has made nothing"), "twice");
    Ok(())
}

#[test]
fn a_conflict_or_a_wrong_token_changes_nothing() -> Result<()> {
    let bed = machines()?;
    let (ctl, n0) = (bed.node("ctl")?, bed.node("n0")?);
    let refused = |node: &Node, arguments: &str, code: i32, part: &str| -> Result<()> {
        let before = tree(node)?;
        let output = init(node, arguments)?;
        ensure!(output.code() == Some(code) && output.stderr.contains(part), "{code} {part:?}: {output}");
        is_unchanged(node, &before, arguments)
    };
    refused(ctl, "controller", 2, "missing key `cluster`")?;
    ctl.write_file("/etc/perilog/controller.d/site.toml", "cluster = \"other\"\n")?;
    refused(ctl, "controller --cluster tiny", 2, "cluster is other in the configuration, not tiny")?;
    ctl.write_file("/etc/perilog/controller.d/site.toml", "clutser = \"x\"\n")?;
    refused(
        ctl,
        "controller --cluster tiny",
        2,
        "site.toml:1:1: clutser: unknown key `clutser`; did you mean `cluster`?",
    )?;
    ctl.sh("rm /etc/perilog/controller.d/site.toml")?;
    ctl.write_file("/etc/perilog/controller.d/init.toml", "cluster = \"tiny\"\n")?;
    refused(ctl, "controller --cluster tiny", 2, "init.toml exists, but is not as init would have written it")?;
    ctl.sh("rm /etc/perilog/controller.d/init.toml; mkdir -p /etc/perilog/tls; echo x >/etc/perilog/tls/ca.pem")?;
    refused(ctl, "controller --cluster tiny", 2, "/etc/perilog/tls/ca.pem exists, but not all")?;
    ctl.sh("rm -r /etc/perilog/tls")?;

    let printed = init(ctl, "controller --cluster tiny --nodes n[0-1]")?.ok()?;
    let typed = lines(&printed);
    let line = |host: &str| typed.get(host).map(|line| line.replace("perilog init ", "")).context("a line for it");
    // Refused: no token; another host's token; an invented token; another authority's pin; no pin; an address without a
    // controller.
    let words = line("n0")?;
    let (without, token) = words.rsplit_once(" --token ").context("a token")?;
    refused(n0, without, 2, "perilog token create n0")?;
    refused(n0, &line("n1")?, 2, "the token is not for n0")?;
    refused(
        n0,
        &format!("{without} --token abc"),
        2,
        "the token is unknown, or was revoked; for another token, type on the controller's host: perilog token create \
         n0",
    )?;
    let (controller, pin) = without.split_once(" --pin ").context("a pin")?;
    let other = pin.chars().rev().collect::<String>();
    refused(n0, &format!("{controller} --pin {other} --token {token}"), 2, &format!("pin; it has {pin}"))?;
    refused(n0, &format!("{controller} --token {token}"), 2, "the controller's authority is not known; use --pin")?;
    refused(n0, &format!("node --controller n1 --pin {pin} --token {token}"), 2, "cannot connect to n1:5117")?;
    // The token is still unused, and may come by standard input.
    let by_stdin = format!("perilog init {without} --token - <<<{token}");
    ensure!(n0.sh(&by_stdin)?.contains("n0 is online"), "with the good token");

    // A controller that is away: the agent goes on trying, and init says so when its time is over.
    ctl.systemctl(&["stop", "perilog-controller.socket", "perilog-controller.service"])?;
    n0.systemctl(&["restart", "perilog-agent"])?;
    refused(n0, &format!("{without} --wait 1s"), 124, "the controller has not accepted it within 1s")?;

    // A file that an administrator has changed since stays, and is named.
    n0.sh("echo '# mine' >>/etc/perilog/agent.d/init.toml")?;
    let reported = init(n0, "undo")?.ok()?;
    ensure!(reported.contains("stays: /etc/perilog/agent.d/init.toml, which has changed"), "{reported}");
    ensure!(n0.read_file("/etc/perilog/agent.d/init.toml")?.ends_with("# mine\n"), "it is not as it was");
    Ok(())
}

#[test]
fn munge_needs_no_token_and_the_site_s_authority_signs() -> Result<()> {
    let bed = machines()?;
    let (ctl, n0) = (bed.node("ctl")?, bed.node("n0")?);
    for node in [ctl, n0] {
        node.systemctl(&["start", "munge"])?;
    }
    ctl.sh("perilog ca init --dir /root/site --name 'the site'")?;
    let printed = init(ctl, "controller --cluster tiny --ca /root/site --nodes n[0-1] --munge")?.ok()?;
    ensure!(printed.contains("/root/site: an authority") && !printed.contains("make an authority"), "{printed}");
    ensure!(!printed.contains("--token"), "{printed}");
    let line = printed.lines().find_map(|line| line.trim().strip_prefix("perilog init ")).context("a line")?;
    let output = init(n0, line)?.ok()?;
    ensure!(output.contains("by munge") && output.contains("n0 is online"), "{output}");
    let reported = init(ctl, "undo --authority")?.ok()?;
    ensure!(ctl.sh("ls /root/site")?.contains("ca-key.pem"), "init has not made it: {reported}");
    Ok(())
}
