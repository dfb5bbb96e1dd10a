//! The product as packages: installed with apt on bare nodes, enrolled, run, upgraded from an earlier commit under
//! running scripts, removed under a running script, purged; on the active host of two the disk stays.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::book::{self, Page};
use perilog_tests::{AT_GATE, Cluster, Node, Release, Stopwatch};

const SOON: Duration = Duration::from_secs(90);
const TASK: &str = "perilog-task-*";
const SECURITY: &str = include_str!("../../docs/security.md");

/// Returns the `[enroll]` configuration that docs/security.md shows for a node image without a key, and the token's
/// path in it.
fn of_an_image() -> Result<(&'static str, &'static str)> {
    let mut blocks = SECURITY.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.contains("[enroll]\n") && block.contains("\ntoken = "));
    let block = block.context("docs/security.md shows how a node enrols")?;
    let token = block.lines().find_map(|line| line.strip_prefix("token = \"")?.strip_suffix('"'));
    Ok((block, token.context("where the token is")?))
}

fn cluster(nodes: usize) -> Result<Cluster> {
    let builder = Cluster::builder(nodes).script("prolog", "10-gate", AT_GATE).script("epilog", "10-gate", AT_GATE);
    let cluster = builder.bare().build()?;
    cluster.bed().boot()?;
    Ok(cluster)
}

fn start_controller(node: &Node) -> Result<()> {
    node.systemctl(&["enable", "--now", "perilog-controller.socket", "perilog-controller.service"]).map(drop)
}

fn state(node: &Node, unit: &str) -> Result<String> {
    let show = |property: &str| node.systemctl(&["show", "--value", "--property", property, unit]);
    Ok(format!("{} {}", show("UnitFileState")?, show("ActiveState")?))
}

fn version(node: &Node, package: &str) -> Result<String> {
    node.sh(&format!("dpkg-query -W -f '${{Version}}' {package}"))
}

/// Returns the units of a node's tasks whose scripts still run.
fn running(node: &Node) -> Result<Vec<String>> {
    let units = node.systemctl(&["list-units", "--plain", "--no-legend", "--state=activating", TASK])?;
    Ok(units.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect())
}

#[test]
fn a_cluster_of_packages_runs_a_job() -> Result<()> {
    let cluster = cluster(2)?;
    let controller = cluster.controller()?;
    controller.install(Release::Current, &["perilog", "perilog-controller"])?;
    let down = "disabled inactive";
    ensure!(
        state(controller, "perilog-controller.service")? == down,
        "it has no name for its cluster, for all dpkg knows"
    );
    // Files that guides tell administrators to install, at their paths.
    for file in [
        "administration.md",
        "troubleshooting.md",
        "slurm.md",
        "flux.md",
        "examples/slurm/prolog",
        "examples/flux/housekeeping",
        "examples/flux/drain",
        "examples/flux/wait",
        "examples/monitoring/perilog.rules.yml",
    ] {
        controller.sh(&format!("test -s /usr/share/doc/perilog/{file}"))?;
    }
    // Programs that guides tell administrators to configure.
    for file in
        ["slurm/prolog", "slurm/orphaned", "slurm/slurmctld-epilog", "slurm/drain", "flux/housekeeping", "flux/wait"]
    {
        controller.sh(&format!("test -x /usr/libexec/perilog/{file}"))?;
    }
    // Interfaces and the schema, for programs that call the daemons.
    for file in
        ["varlink/io.perilog.Controller.varlink", "varlink/io.perilog.Agent.varlink", "schema/perilog.schema.json"]
    {
        controller.sh(&format!("test -s /usr/share/perilog/{file}"))?;
    }
    controller.sh("test -s /usr/share/perilog/ansible/perilog/tasks/main.yml")?;
    controller.sh("/usr/bin/python3 -c 'import perilog; perilog.Controller()'")?;
    controller.write_file("/etc/perilog/controller.d/enroll.toml", "[enroll]\nlisten = \"[::]:5117\"\n")?;
    start_controller(controller)?;
    // n1 has no key, so n1 enrols.
    let (n1, (image, token)) = (cluster.node(1)?, of_an_image()?);
    n1.sh("rm /etc/perilog/tls/cert.pem /etc/perilog/tls/key.pem")?;
    n1.write_file("/etc/perilog/agent.d/enroll.toml", image)?;
    let secret = cluster.perilog(&["--quiet", "token", "create", "n1", "--for", "10m"])?.ok()?;
    n1.write_with_mode(token, secret, 0o600)?;
    for node in cluster.nodes() {
        node.install(Release::Current, &["perilog-agent"])?;
        ensure!(
            node.sh("dpkg-query -W -f '${Recommends}' perilog-agent")?.starts_with("perilog (= "),
            "no CLI beside it"
        );
        assert_eq!(state(node, "perilog-agent.service")?, "enabled active");
        // Files that guides tell administrators to link.
        let linked = "cd /usr/share/perilog && test -s agent.d/slurm.toml && test -s agent.d/flux.toml";
        node.sh(&format!("{linked} && for name in mounts gpu nhc clean-tmp; do test -x scripts/$name; done"))?;
        // A fresh configuration has a prolog and an epilog without scripts, and refuses neither.
        let fresh = "mkdir /root/fresh && cp /etc/perilog/agent.toml /root/fresh && perilog-agent --config \
                     /root/fresh/agent.toml";
        let checked = node.sh(&format!("{fresh} --check-config 2>&1"))?;
        assert_eq!(checked, "/root/fresh/agent.toml: ok");
        // On shutdown, no unit stops before the agent.
        assert_eq!(state(node, "perilog-shutdown.service")?, "static active");
    }
    cluster.wait_online()?;

    let mut run = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("j", &[0, 1])?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    cluster.assert_exact("j", &["prolog"])?;

    // The controller is not root; systemd passed the necessary capabilities to the controller.
    let pid = controller.systemctl(&["show", "--value", "--property=MainPID", "perilog-controller"])?;
    assert_eq!(controller.sh(&format!("ps -o user= -p {pid}"))?, "perilog");
    let owned = controller.sh(
        "stat -c '%U:%G %a %n' /var/lib/perilog /var/lib/perilog/controller.db /etc/perilog/tls/key.pem /run/perilog",
    )?;
    let expected = "perilog:perilog 700 /var/lib/perilog\nperilog:perilog 600 /var/lib/perilog/controller.db\n\
                    root:perilog 640 /etc/perilog/tls/key.pem\nroot:root 755 /run/perilog";
    assert_eq!(owned, expected);
    for (node, unit) in [(controller, "perilog-controller"), (cluster.node(0)?, "perilog-agent")] {
        let status = node.systemctl(&["show", "--value", "--property=StatusText", unit])?;
        ensure!(!status.is_empty(), "{unit} has no status line");
    }

    // An upgrade to the same version restarts only the agent, and keeps an edited configuration file. (Only here do
    // this package's own upgrade scripts run: an upgrade from an earlier commit runs the earlier scripts.)
    let node = cluster.node(0)?;
    cluster.close_gates()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "k", "--nodes", "n0"])?;
    cluster.wait_begun("k", &[0])?;
    let units = running(node)?;
    assert_eq!(units.len(), 1, "{units:?}");
    node.sh("echo '# edited' >> /etc/perilog/agent.toml")?;
    let before = node.systemctl(&["show", "--value", "--property=MainPID", "perilog-agent"])?;
    node.apt(&[
        "install",
        "--reinstall",
        "-o",
        "Dpkg::Options::=--force-confold",
        &node.hand_over(Release::Current, "perilog-agent", "deb")?,
    ])?
    .ok()?;
    ensure!(node.read_file("/etc/perilog/agent.toml")?.ends_with("# edited\n"), "it was replaced");
    ensure!(
        node.systemctl(&["show", "--value", "--property=MainPID", "perilog-agent"])? != before,
        "the old agent runs on"
    );
    assert_eq!(running(node)?, units, "scripts go on");
    cluster.wait_online()?;
    cluster.open_gates()?;
    cluster.wait_end(&mut run)?;
    cluster.assert_exact("k", &["epilog"])?;

    // An action that `--help` uses as an example exists here, without a script.
    let ran = cluster.perilog(&["run", "housekeeping", "--job", "h", "--nodes", "n[0-1]"])?.ok()?;
    ensure!(ran.contains("n[0-1]: ok (no script ran)"), "{ran}");

    controller.systemctl(&["enable", "--now", "perilog-backup.timer"])?;
    ensure!(controller.systemctl(&["list-timers"])?.contains("perilog-backup.timer"), "no daily copy is due");

    // A purge removes the store, but keeps the authority that enrolled n1. Regression test: without the authority, all
    // enrolled nodes were locked out.
    let output = controller.apt(&["purge", "perilog-controller"])?.ok()?;
    ensure!(output.contains("/var/lib/perilog/enroll is kept"), "it does not say what it left: {output}");
    assert_eq!(controller.sh("ls /var/lib/perilog")?, "enroll");
    controller.install(Release::Current, &["perilog-controller"])?;
    start_controller(controller)?;
    // Nodes accept a new store only after an operator's take-over.
    cluster.perilog(&["controller", "recover", "--take-over"])?.ok()?;
    cluster.wait_online()
}

#[test]
fn an_upgrade_under_prologs_and_epilogs_loses_nothing() -> Result<()> {
    let cluster = cluster(2)?;
    let (controller, n0, n1) = (cluster.controller()?, cluster.node(0)?, cluster.node(1)?);
    controller.install(Release::Earlier, &["perilog", "perilog-controller"])?;
    start_controller(controller)?;
    for node in cluster.nodes() {
        node.install(Release::Earlier, &["perilog-agent"])?;
        node.systemctl(&["enable", "--now", "perilog-agent.service"])?;
    }
    cluster.wait_online()?;
    let earlier = version(n1, "perilog-agent")?;
    ensure!(earlier != env!("CARGO_PKG_VERSION"), "the earlier packages have this version (xtask/src/dist/earlier.rs)");
    let tables = || controller.sh("sqlite3 -readonly /var/lib/perilog/controller.db 'PRAGMA user_version'");
    assert_eq!(tables()?, "1");

    let mut prolog = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n[0-1]"])?;
    let mut epilog = cluster.start_perilog(&["run", "epilog", "--job", "k", "--nodes", "n[0-1]"])?;
    for job in ["j", "k"] {
        cluster.wait_begun(job, &[0, 1])?;
    }
    let units = running(n0)?;
    assert_eq!(units.len(), 2, "{units:?}");

    // First a new agent with an old controller, then a new controller with an old agent.
    n0.install(Release::Current, &["perilog-agent"])?;
    cluster.wait_online()?;
    controller.install(Release::Current, &["perilog", "perilog-controller"])?;
    cluster.wait_online()?;
    ensure!(tables()? != "1", "the store has the tables that it had");
    assert_eq!(state(controller, "perilog-controller.service")?, "enabled active");
    assert_eq!(
        (version(controller, "perilog-controller")?, version(n1, "perilog-agent")?),
        (env!("CARGO_PKG_VERSION").into(), earlier)
    );
    assert_eq!(running(n0)?, units, "scripts go on");
    for job in ["j", "k"] {
        ensure!(cluster.runs(job)?.iter().all(|(_, run)| run.ended.is_none()), "a script of {job} was ended");
    }
    cluster.open_gate(1)?;
    for job in ["j", "k"] {
        cluster.wait_scripts_ended(job, &[1])?;
    }
    n1.install(Release::Current, &["perilog-agent"])?;
    cluster.open_gate(0)?;
    cluster.wait_end(&mut prolog)?;
    cluster.wait_end(&mut epilog)?;
    cluster.assert_exact("j", &["prolog"])?;
    cluster.assert_exact("k", &["epilog"])?;

    // Now all packages are new.
    cluster.close_gates()?;
    let mut again = cluster.start_perilog(&["run", "prolog", "--job", "l", "--nodes", "n[0-1]"])?;
    cluster.wait_begun("l", &[0, 1])?;
    cluster.open_gates()?;
    cluster.wait_end(&mut again)?;
    cluster.assert_exact("l", &["prolog"])
}

#[test]
fn removal_leaves_scripts_alone_and_purge_leaves_nothing() -> Result<()> {
    let cluster = cluster(1)?;
    let (controller, node) = (cluster.controller()?, cluster.node(0)?);
    controller.install(Release::Current, &["perilog", "perilog-controller"])?;
    start_controller(controller)?;
    node.install(Release::Current, &["perilog-agent"])?;
    cluster.wait_online()?;
    let mut run = cluster.start_perilog(&["run", "epilog", "--job", "j", "--nodes", "n0"])?;
    cluster.wait_begun("j", &[0])?;
    let units = running(node)?;
    let unit = units.first().context("a unit that runs")?;

    let output = node.apt(&["remove", "perilog-agent"])?.ok()?;
    ensure!(
        output.contains("go on without it") && output.contains(unit.as_str()),
        "it does not say what goes on: {output}"
    );
    ensure!(!node.run(&["test", "-e", "/usr/sbin/perilog-agent"])?.success(), "it is there");
    assert_eq!(running(node)?, units);
    // `perilog` tells a node by the agent's socket, which must be gone.
    ensure!(!node.run(&["test", "-e", "/run/perilog/agent.sock"])?.success(), "its socket is there");
    let output = node.apt(&["purge", "perilog-agent"])?.ok()?;
    for left in ["/run/perilog is left", "the node's key is kept, in /etc/perilog/tls"] {
        ensure!(output.contains(left), "it does not say that {left}: {output}");
    }
    ensure!(cluster.runs("j")?.iter().all(|(_, run)| run.ended.is_none()), "the script was ended");
    cluster.open_gates()?;
    cluster.wait_scripts_ended("j", &[0])?;

    // A new agent reports the ends that came while no agent ran.
    node.install(Release::Current, &["perilog-agent"])?;
    cluster.wait_end(&mut run)?;
    cluster.assert_exact("j", &["epilog"])?;

    node.sh("rm -r /etc/perilog/agent.d /etc/perilog/tls /etc/perilog/prolog.d /etc/perilog/epilog.d")?;
    node.apt(&["purge", "perilog-agent"])?.ok()?;
    controller.sh("rm -r /etc/perilog/controller.d /etc/perilog/tls")?;
    controller.apt(&["purge", "perilog-controller", "perilog"])?.ok()?;
    for node in [node, controller] {
        // The bed's own drop-ins count as the site's, and the bed's empty /var/lib/perilog hides the machine's. Flux
        // has a plugin of the same name. Tests of the runner may run on this machine meanwhile.
        let left = node.sh(
            "find /etc /usr /var/lib -path '*perilog*' ! -path '/etc/systemd/*' ! -path /var/lib/perilog ! -path \
             '/usr/*lib*/flux/*' ! -path '/var/lib/perilog-runner-test-*'",
        )?;
        ensure!(left.is_empty(), "{} has still\n{left}", node.name());
        let run = node.sh("ls -d /run/perilog* 2>/dev/null || true")?;
        ensure!(!run.lines().any(|path| path == "/run/perilog"), "{}: /run/perilog is there", node.name());
    }
    ensure!(!controller.run(&["test", "-e", "/var/lib/perilog"])?.success(), "the store is there");
    cluster.bed().wait_until("no unit of ours is loaded", SOON, || {
        let units = node.systemctl(&["list-units", "--all", "--plain", "--no-legend", "perilog-agent*"])?;
        Ok(units.is_empty())
    })
}

/// The package perilog-flux: the plugin and the rc1 script are at the paths that Flux's configuration names. The edge
/// is installed with a configuration and does not start by itself. A purge removes all of the package.
#[test]
fn the_package_for_flux_comes_and_goes() -> Result<()> {
    let bed = book::bare_machines(&["n0"])?;
    let node = bed.node("n0")?;
    // An empty /etc/perilog of the bed hides the machine's.
    let ours = || node.sh("find /etc /usr -path '*perilog*' ! -path '/etc/systemd/*' ! -path /etc/perilog");
    let before = ours()?;
    node.install(Release::Current, &["perilog-flux"])?;
    node.sh("test -s /usr/lib/perilog/perilog-hold.so && test -x /etc/flux/rc1.d/10-perilog")?;
    assert_eq!(state(node, "perilog-flux.service")?, "disabled inactive", "Flux has no plugin yet");
    // Flux and the controller make the sockets, so the configuration is correct without them.
    let checked = node.sh("perilog-flux --check-config 2>&1")?;
    ensure!(checked.contains("/etc/perilog/edge.toml: ok"), "{checked}");
    // Outside of a Flux instance the script has nothing to do.
    node.sh("/etc/flux/rc1.d/10-perilog")?;
    // Rank 0 does not start again without the plugin's file. So the purge shows the line that loads the file.
    let line = "plugins = [ { load = \"/usr/lib/perilog/perilog-hold.so\" } ]";
    node.write_file("/etc/flux/system/conf.d/site.toml", format!("[job-manager]\n{line}\n"))?;
    let output = node.apt(&["purge", "perilog-flux"])?.ok()?;
    ensure!(output.contains(&format!("/etc/flux/system/conf.d/site.toml:2:{line}")), "no line is named: {output}");
    ensure!(output.contains("flux jobtap remove perilog-hold.so"), "what to type is not said: {output}");
    let left = ours()?;
    ensure!(left == before, "it had\n{before}\nand has still\n{left}");
    Ok(())
}

/// Runs an administrator's commands: installs packages on bare machines, sets a cluster up with `perilog init`, and
/// runs a script of the site. Then undoes the setup and purges the packages.
#[test]
fn init_sets_up_a_cluster_of_packages() -> Result<()> {
    let bed = book::bare_machines(&["ctl", "n0", "n1"])?;
    let (ctl, nodes) = (bed.node("ctl")?, [bed.node("n0")?, bed.node("n1")?]);
    let watch = Stopwatch::start();
    let mut typed = 0;
    let output = ctl.install(Release::Current, &["perilog", "perilog-controller"])?;
    ensure!(output.contains("to set the controller up: perilog init controller --cluster NAME"), "{output}");
    for node in nodes {
        let output = node.install(Release::Current, &["perilog", "perilog-agent"])?;
        ensure!(output.contains("type the line that `perilog init controller` prints for it"), "{output}");
    }
    typed += 1 + nodes.len();
    let installed = watch.elapsed();
    let lines = ctl.sh("perilog --quiet init controller --cluster tiny --nodes 'n[0-1]'")?;
    typed += 1;
    for (node, line) in nodes.iter().zip(lines.lines()) {
        node.sh(line.strip_prefix(&format!("{} ", node.name())).context("each node's line, in order")?)?;
        typed += 1;
        node.write_script("/etc/perilog/prolog.d/10-hello", "#!/bin/sh\necho \"hello, job $PERILOG_JOB\"\n")?;
        typed += 1;
    }
    ctl.sh("perilog run prolog --job first --nodes 'n[0-1]'")?;
    let output = ctl.sh("perilog logs first")?;
    typed += 2;
    assert_eq!(output.matches("hello, job first").count(), 2, "{output}");
    println!("{typed} commands on 3 hosts, {:?}, of which packages {installed:?}", watch.elapsed());
    for node in nodes.into_iter().chain([ctl]) {
        node.sh("perilog init undo")?;
        node.apt(&["purge", "perilog", "perilog-agent", "perilog-controller"])?.ok()?;
        let left = node.sh(
            "find /etc /usr /var/lib /root/perilog-ca -path '*perilog*' -type f ! -path '*/boot-id.conf' ! -path \
             '/usr/*lib*/flux/*' ! -path '/var/lib/perilog-runner-test-*' || true",
        )?;
        let stays = ["/etc/perilog/prolog.d/10-hello", "/var/lib/perilog/enroll/", "/root/perilog-ca/"];
        let odd: Vec<&str> = left.lines().filter(|path| !stays.iter().any(|stays| path.starts_with(stays))).collect();
        ensure!(odd.is_empty(), "{} has still {odd:?}", node.name());
    }
    Ok(())
}

/// Purges the controller from the active host of two, with the disk of both on the store's directory: everything on the
/// disk stays, and apt shows that. On the passive host the directory goes.
#[test]
fn a_purge_leaves_the_disk_of_two_hosts() -> Result<()> {
    let bed = book::bare_machines(&["ctl0", "ctl1"])?;
    let [active, passive] = [bed.node("ctl0")?, bed.node("ctl1")?];
    let packages = ["perilog", "perilog-controller"];
    for host in [active, passive] {
        host.install(Release::Current, &packages)?;
    }
    active.sh("mkdir -p /var/lib/perilog && mount -t tmpfs shared /var/lib/perilog")?;
    active.sh(
        "mkdir /var/lib/perilog/enroll && touch /var/lib/perilog/controller.db /var/lib/perilog/enroll/ca-key.pem",
    )?;
    for host in [active, passive] {
        let output = host.apt(&[&["purge"][..], &packages].concat())?.ok()?;
        let says = output.contains("/var/lib/perilog is a file system of its own, and is left as it is");
        ensure!(says == (host.name() == active.name()), "{}: {output}", host.name());
    }
    let left = active.sh("cd /var/lib/perilog && find . -type f | sort")?;
    assert_eq!(left, "./controller.db\n./enroll/ca-key.pem");
    ensure!(!passive.run(&["test", "-e", "/var/lib/perilog"])?.success(), "the passive host has its directory still");
    Ok(())
}

/// Types the quick start of the book on a bare machine, from the packages to the purge.
#[test]
fn the_quick_start() -> Result<()> {
    let bed = book::bare_machines(&["n0"])?;
    let node = bed.node("n0")?;
    let packages = ["perilog", "perilog-agent", "perilog-controller"];
    let stand_in = |name: &str| match name {
        "install the packages" => node.install(Release::Current, &packages).map(drop),
        "purge the packages" => node.apt(&[&["purge"][..], &packages].concat())?.ok().map(drop),
        _ => book::unknown(name),
    };
    let done = Page::open("quickstart.md")?.run(&bed, Some("n0"), stand_in)?;
    ensure!(done.commands > 10 && done.skipped == 0, "{done:?}");
    // Flux has a plugin of the same name.
    let left = node.sh(
        "find /etc /usr /var/lib /run/perilog -path '*perilog*' ! -path '/etc/systemd/*' ! -path '/usr/*lib*/flux/*' \
         ! -path '/var/lib/perilog-runner-test-*' 2>/dev/null || true",
    )?;
    ensure!(left.is_empty(), "it has still\n{left}");
    Ok(())
}
