//! The scripts of `scripts/`, which a site can begin with. Each is linked into the directory of an action, as its first
//! lines say, and tried on a real node: where the node is well, and where it is not.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{Cluster, Node, Output, wait_until};

/// Time limit of `perilog try`: the node takes up to half a minute to kill remaining processes, and a script gives a
/// dead file system ten seconds.
const TRIAL: Duration = Duration::from_secs(150);
const SOON: Duration = Duration::from_secs(60);
/// Uid of a user without an account.
const USER: &str = "1500";

/// Makes a cluster of one node, whose actions have these environment variables: (action, lines `NAME = value` of TOML).
fn cluster(actions: &[(&str, &str)]) -> Result<Cluster> {
    let mut agent = String::new();
    for (action, variables) in actions {
        write!(agent, "[action.{action}]\n[action.{action}.env]\n{variables}\n")?;
    }
    let cluster = Cluster::builder(1).agent(&agent).boot()?;
    for (action, _) in actions {
        cluster.node(0)?.sh(&format!("mkdir -p /etc/perilog/{action}.d"))?;
    }
    Ok(cluster)
}

/// Links a script into the directory of `action`, and runs `perilog try` on that directory as for a job of `user`;
/// returns the output.
fn tried(node: &Node, script: &str, action: &str, user: Option<&str>) -> Result<Output> {
    let directory = format!("/etc/perilog/{action}.d");
    node.sh(&format!("ln -sfT /usr/share/perilog/scripts/{script} {directory}/10-{script}"))?;
    let command = ["perilog", "try", &directory, "--action", action];
    let user = user.map_or_else(Vec::new, |user| vec!["--user", user]);
    node.run_within(TRIAL, &[&command[..], &user].concat())
}

/// Starts a unit whose process runs under the ids that `ids` (options of setpriv(1)) name; returns when the process has
/// these ids.
fn start(node: &Node, unit: &str, ids: &str, command: &str) -> Result<()> {
    let run = "systemd-run --quiet --property=Type=exec";
    node.sh(&format!("{run} --unit={unit} /usr/bin/setpriv --clear-groups {ids} {command}"))?;
    wait_until(&format!("{unit} is no setpriv"), SOON, || {
        let pid = node.systemctl(&["show", "--value", "--property=MainPID", unit])?;
        Ok(node.read_file(&format!("/proc/{pid}/comm"))?.trim() != "setpriv")
    })
}

fn ensure_ok(output: &Output, part: &str) -> Result<()> {
    ensure!(output.success() && output.stdout.contains(part), "no {part:?}: {output}");
    Ok(())
}

/// Asserts that the trial ended as tolerable, with exactly these failed checks.
fn ensure_tolerable(output: &Output, checks: &[&str]) -> Result<()> {
    let found: Vec<&str> = output.stdout.lines().filter(|line| line.starts_with("check ")).collect();
    ensure!(found == checks && output.code() == Some(1), "not {checks:?}: {output}");
    ensure!(output.stdout.lines().any(|line| line.starts_with("tolerable after ")), "{output}");
    Ok(())
}

fn ensure_failed(output: &Output, part: &str) -> Result<()> {
    let failed = output.stdout.lines().any(|line| line.starts_with("failed (exit 1) after "));
    ensure!(failed && output.stdout.contains(part) && output.code() == Some(1), "no {part:?}: {output}");
    Ok(())
}

/// Returns the number of living processes with this real uid on the node.
fn processes(node: &Node, uid: &str) -> Result<usize> {
    let listed = node.sh(&format!("ps -U {uid} -o stat= | grep -vc ^Z || true"))?;
    listed.parse().with_context(|| listed.clone())
}

#[test]
fn shellcheck_has_nothing_to_say() -> Result<()> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
    let names = std::fs::read_dir(scripts)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    ensure!(names.len() >= 7, "{names:?}");
    // shellcheck must ignore this machine's configuration of it.
    let text = Command::new("shellcheck").args(["--norc", "--shell=sh"]).args(&names).output();
    let text = text.context("shellcheck: apt-get install shellcheck")?;
    ensure!(
        text.status.success(),
        "{}{}",
        String::from_utf8_lossy(&text.stdout),
        String::from_utf8_lossy(&text.stderr)
    );
    Ok(())
}

#[test]
fn a_missing_a_sealed_and_a_dead_file_system_are_named() -> Result<()> {
    let well = "MOUNTS = \"/ /tmp:rw /dev/shm:rw\"";
    let bad = "MOUNTS = \"/ /run/gone /run/sealed:rw /run/sealed /run/dead\"";
    let cluster = cluster(&[("prolog", well), ("bad", bad), ("fstab", "X = \"\"")])?;
    let node = cluster.node(0)?;
    ensure_ok(&tried(node, "mounts", "prolog", None)?, "10-mounts  ok")?;
    ensure!(node.sh("find /tmp /dev/shm -name '.perilog.*'")?.is_empty(), "a file was left");
    node.sh("mkdir /run/sealed && mount -t tmpfs -o ro tmpfs /run/sealed")?;
    // A file system whose server never answers.
    let dead = "import ctypes, os, time
fd = os.open('/dev/fuse', os.O_RDWR)
options = f'fd={fd},rootmode=40000,user_id=0,group_id=0'.encode()
assert ctypes.CDLL(None).mount(b'dead', b'/run/dead', b'fuse', 0, options) == 0
open('/run/mounted', 'w').close()
time.sleep(1e6)
";
    node.write_file("/root/dead.py", dead)?;
    node.sh("mkdir /run/dead && systemd-run --quiet --unit=dead /usr/bin/python3 /root/dead.py")?;
    cluster.bed().wait_until("it is mounted", SOON, || Ok(node.run(&["test", "-e", "/run/mounted"])?.success()))?;
    ensure_tolerable(
        &tried(node, "mounts", "bad", None)?,
        &[
            "check mount-run-gone: \"/run/gone is not mounted\"",
            "check mount-run-sealed: \"/run/sealed cannot be written within 10 s\"",
            "check mount-run-dead: \"/run/dead does not answer within 10 s\"",
        ],
    )?;
    node.systemctl(&["stop", "dead"])?;
    let fstab = "# x /run/comment auto defaults 0 0\nx /run/gone ext4 defaults 0 0\nx /run/later nfs rw,noauto 0 0\nx \
                 none swap sw 0 0\n";
    node.write_file("/etc/fstab", fstab)?;
    ensure_tolerable(&tried(node, "mounts", "fstab", None)?, &["check mount-run-gone: \"/run/gone is not mounted\""])?;
    // In a job: the verdict is the job's, and the node is drained, with the check.
    node.sh("rm /etc/perilog/prolog.d/10-mounts && ln -s /usr/share/perilog/scripts/mounts \
             /etc/perilog/prolog.d/30-mounts && umount /dev/shm")?;
    let run = cluster.perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    ensure!(!run.success(), "{run}");
    let drains = cluster.perilog(&["drain"])?.ok()?;
    ensure!(drains.contains("mount-dev-shm: /dev/shm is not mounted"), "{drains}");
    Ok(())
}

/// Runs the script `gpu` with stand-ins that print what nvidia-smi and rocm-smi print.
#[test]
fn gpus_are_counted_and_their_errors_named() -> Result<()> {
    let cluster = cluster(&[("some", "X = \"\""), ("four", "GPUS = \"4\"")])?;
    let node = cluster.node(0)?;
    let play = |program: &str, body: &str| node.write_script(&format!("/usr/local/bin/{program}"), body);
    ensure_ok(&tried(node, "gpu", "some", None)?, "no GPU tools here: nothing to do")?;
    ensure_tolerable(
        &tried(node, "gpu", "four", None)?,
        &["check gpu: \"neither nvidia-smi nor rocm-smi is installed, and this node has 4 GPUs\""],
    )?;
    play(
        "rocm-smi",
        "#!/bin/sh\nfor i in 0 1 2 3; do echo \"GPU[$i] : Device Name: X\"; echo \"GPU[$i] : Device ID: 0x740f\"; \
         done\n",
    )?;
    ensure_ok(&tried(node, "gpu", "four", None)?, "4 GPUs are well")?;
    let nvidia = |lines: &str| {
        play(
            "nvidia-smi",
            &format!(
                "#!/bin/sh\n[ \"$2\" = --format=csv,noheader,nounits ] || exit 2\n\
             case $1 in --query-gpu=*) ;; *) exit 0 ;; esac\n{lines}\n"
            ),
        )
    };
    nvidia("printf '0, 0\\n1, [N/A]\\n2, 0\\n3, 0\\n'")?;
    ensure_ok(&tried(node, "gpu", "four", None)?, "4 GPUs are well")?;
    for (lines, part) in [
        ("printf '0, 0\\n1, 3\\n2, 0\\n3, 12\\n'", "memory errors that were not corrected (GPU 1: 3, GPU 3: 12)"),
        ("printf '0, 0\\n1, 0\\n3, 0\\n'", "3 of 4 GPUs seen"),
        ("echo 'No devices were found'", "no GPU is seen"),
        ("echo 'Unable to determine the device handle' >&2; exit 15", "nvidia-smi ends with 15 (137: not within 60 s)"),
    ] {
        nvidia(lines)?;
        ensure_tolerable(&tried(node, "gpu", "four", None)?, &[&format!("check gpu: \"{part}\"")])?;
    }
    Ok(())
}

/// Runs the script `gpu` with a stand-in of nvidia-smi for one GPU that answers the further questions of the script.
#[test]
fn rows_to_replace_and_processes_left_on_a_gpu_are_named() -> Result<()> {
    let cluster = cluster(&[("alone", "X = \"\""), ("shared", "SHARED = \"yes\"")])?;
    let node = cluster.node(0)?;
    let nvidia = |rows: &str, apps: &str| {
        let body = format!(
            "#!/bin/sh\ncase $1 in\n--query-gpu=*) echo '0, 0' ;;\n--query-remapped-rows=*) {rows} ;;\n\
             --query-compute-apps=*) {apps} ;;\nesac\n"
        );
        node.write_script("/usr/local/bin/nvidia-smi", &body)
    };
    let none = "echo '00000000:07:00.0, No, No'";
    for rows in [none, "echo '00000000:07:00.0, 0, 0'", "echo '00000000:07:00.0, [N/A], [N/A]'", "exit 2"] {
        nvidia(rows, "true")?;
        ensure_ok(&tried(node, "gpu", "alone", None)?, "1 GPU is well")?;
    }
    for (rows, apps, part) in [
        ("echo '00000000:07:00.0, Yes, No'", "true", "GPU 00000000:07:00.0: row remapping is pending until a reset"),
        ("echo '00000000:07:00.0, 1, 1'", "true", "GPU 00000000:07:00.0: row remapping failed"),
        (none, "echo '4711, 00000000:07:00.0, python3'", "processes are left: 4711 (python3) on GPU 00000000:07:00.0"),
    ] {
        nvidia(rows, apps)?;
        ensure_tolerable(&tried(node, "gpu", "alone", None)?, &[&format!("check gpu: \"{part}\"")])?;
    }
    ensure_ok(&tried(node, "gpu", "shared", None)?, "1 GPU is well")
}

/// Runs the script `nhc` with a stand-in that prints and ends as NHC 1.5 does.
#[test]
fn the_health_check_decides_and_asks_no_resource_manager() -> Result<()> {
    let forgiven = "X = \"\"\n[action.forgiven.script.\"10-nhc\"]\ntolerable = true";
    let cluster = cluster(&[("strict", "X = \"\""), ("forgiven", forgiven)])?;
    let node = cluster.node(0)?;
    ensure_failed(&tried(node, "nhc", "strict", None)?, "no /usr/sbin/nhc: install NHC on this node, or unlink")?;
    let play = |body: &str| node.write_script("/usr/sbin/nhc", format!("#!/bin/sh\necho \"$@\" >/run/asked\n{body}\n"));
    play("exit 0")?;
    ensure_ok(&tried(node, "nhc", "strict", None)?, "10-nhc  ok")?;
    assert_eq!(node.read_file("/run/asked")?.trim(), "MARK_OFFLINE=0 DETACHED_MODE=0");
    play("echo 'ERROR:  nhc:  Health check failed:  check_fs_mount:  /home not mounted'; exit 1")?;
    ensure_failed(&tried(node, "nhc", "strict", None)?, "check_fs_mount:  /home not mounted")?;
    let tolerated = tried(node, "nhc", "forgiven", None)?;
    ensure!(tolerated.stdout.lines().any(|line| line.starts_with("tolerable after ")), "{tolerated}");
    Ok(())
}

#[test]
fn what_the_user_left_is_ended_and_nothing_else() -> Result<()> {
    let cluster = cluster(&[("epilog", "GRACE = \"1\"")])?;
    let node = cluster.node(0)?;
    let deafened = "sh -c 'trap \"\" TERM; echo deaf >/dev/shm/deaf; while :; do sleep 0.1; done'";
    start(node, "mild", "--reuid=1500", "sleep infinity")?;
    start(node, "deaf", "--reuid=1500", deafened)?;
    start(node, "other", "--reuid=1600", "sleep infinity")?;
    // A daemon of root's that acts for the user.
    start(node, "acting", "--euid=1500", "sleep infinity")?;
    start(node, "nobody", "--reuid=65534", "sleep infinity")?;
    // A rootless container of the user, one of another user, and a range that would be root's.
    node.sh("printf '1500:200000:65536\\n1600:300000:65536\\n1500:0:1000\\n' >/etc/subuid")?;
    start(node, "contained", "--reuid=200001", "sleep infinity")?;
    start(node, "elsewhere", "--reuid=300001", "sleep infinity")?;
    let deaf = || Ok(node.run(&["test", "-s", "/dev/shm/deaf"])?.success());
    cluster.bed().wait_until("it is deaf", SOON, deaf)?;
    let running = |unit: &str| node.run(&["systemctl", "is-active", "--quiet", unit]).map(|output| output.success());

    ensure_ok(&tried(node, "kill-user", "epilog", None)?, "PERILOG_USERID is no uid: nothing to do")?;
    ensure_ok(&tried(node, "kill-user", "epilog", Some("0"))?, "uid 0 is the system's: nothing to do")?;
    ensure_ok(&tried(node, "kill-user", "epilog", Some("999"))?, "uid 999 is the system's: nothing to do")?;
    ensure_ok(&tried(node, "kill-user", "epilog", Some("65534"))?, "uid 65534 is the system's: nothing to do")?;
    // The deaf shell may just be between two of its sleeps.
    let left = processes(node, USER)?;
    ensure!(left >= 2 && running("mild")? && running("deaf")?, "something was ended: {left} processes are left");

    let ended = tried(node, "kill-user", "epilog", Some(USER))?;
    ensure_ok(&ended, "left by uid 1500:")?;
    ensure!(ended.stdout.contains("sleep infinity") && processes(node, USER)? == 0, "{ended}");
    ensure!(processes(node, "200001")? == 0, "the container of the user is left: {ended}");
    for unit in ["other", "acting", "nobody", "elsewhere"] {
        ensure!(running(unit)?, "{unit} was ended");
    }
    // Nothing is left, so nothing is said.
    let quiet = tried(node, "kill-user", "epilog", Some(USER))?;
    ensure!(quiet.success() && !quiet.stdout.contains("left by"), "{quiet}");
    Ok(())
}

/// Runs the script `kill-user` with a stand-in for pkill that kills nothing, as if a process were in an uninterruptible
/// system call: the epilog fails and names the process.
#[test]
fn a_process_that_outlives_sigkill_fails_the_epilog() -> Result<()> {
    let cluster = cluster(&[("epilog", "GRACE = \"0\"")])?;
    let node = cluster.node(0)?;
    start(node, "left", "--reuid=1500", "sleep infinity")?;
    node.write_script("/usr/local/bin/pkill", "#!/bin/sh\nexit 0\n")?;
    let failed = tried(node, "kill-user", "epilog", Some(USER))?;
    ensure_failed(&failed, "uid 1500 still has, after SIGKILL: ")?;
    ensure!(failed.stdout.contains("sleep infinity;"), "{failed}");
    Ok(())
}

#[test]
fn files_of_the_user_go_and_those_behind_links_stay() -> Result<()> {
    let cluster = cluster(&[("epilog", "X = \"\""), ("elsewhere", "CLEAN = \"/run/to-home /run/nowhere\"")])?;
    let node = cluster.node(0)?;
    node.sh("umask 022
        mkdir -p /srv/home/d /tmp/1500/deep/er '/tmp/1500/new
line' /tmp/1500/shared /tmp/other-fs /tmp/root
        echo precious >/srv/home/file; echo precious >/srv/home/d/file
        for file in /tmp/1500/deep/er/a '/tmp/1500/new
line/b' /var/tmp/c /dev/shm/d /tmp/-rf; do echo x >\"$file\"; done
        mkfifo /tmp/1500/fifo
        # An attack: names that lead to files which are the user's own, and root's.
        ln -s /srv/home /tmp/1500/home; ln -s /srv/home/file /tmp/link; ln -s /etc /tmp/etc; ln /srv/home/file \
        /srv/home/hard
        mount -t tmpfs -o mode=1777 tmpfs /tmp/other-fs; echo x >/tmp/other-fs/e; echo x >/tmp/root/f
        ln -s /srv/home /run/to-home
        chown -Rh 1500 /srv/home /tmp/1500 /tmp/link /tmp/etc /var/tmp/c /dev/shm/d /tmp/-rf /tmp/other-fs/e
        echo x >/tmp/1500/shared/g; chown 1600 /tmp/1500/shared/g")?;
    let owned = || node.sh("find /tmp /var/tmp /dev/shm -xdev -user 1500 | sort");
    let before = owned()?;

    ensure_ok(&tried(node, "clean-tmp", "epilog", None)?, "PERILOG_USERID is no uid: nothing to do")?;
    ensure_ok(&tried(node, "clean-tmp", "epilog", Some("0"))?, "uid 0 is the system's: nothing to do")?;
    // Another job of the user runs here.
    start(node, "job", "--reuid=1500", "sleep infinity")?;
    ensure_ok(&tried(node, "clean-tmp", "epilog", Some(USER))?, "uid 1500 has 1 processes here: nothing is removed")?;
    assert_eq!(owned()?, before);
    node.systemctl(&["stop", "job"])?;
    // A configured directory that is a link, and one that is not there.
    ensure_ok(&tried(node, "clean-tmp", "elsewhere", Some(USER))?, "10-clean-tmp  ok")?;
    assert_eq!(owned()?, before);

    ensure_ok(&tried(node, "clean-tmp", "epilog", Some(USER))?, "10-clean-tmp  ok")?;
    assert_eq!(owned()?, "/tmp/1500\n/tmp/1500/shared", "a directory with a file of another user stays");
    let stay = "cat /srv/home/file /srv/home/d/file /srv/home/hard /tmp/other-fs/e /tmp/root/f /tmp/1500/shared/g && \
                test -s /etc/passwd";
    assert_eq!(node.sh(stay)?, "precious\nprecious\nprecious\nx\nx\nx");
    Ok(())
}

#[test]
fn caches_are_dropped_and_a_refusal_fails() -> Result<()> {
    let cluster = cluster(&[("epilog", "X = \"\"")])?;
    let node = cluster.node(0)?;
    // All nodes share this machine's kernel: a file stands in for drop_caches.
    node.sh(": >/root/notified && mount --bind /root/notified /proc/sys/vm/drop_caches")?;
    ensure_ok(&tried(node, "drop-caches", "epilog", None)?, " MiB are free")?;
    assert_eq!(node.read_file("/root/notified")?, "3\n");
    node.sh("mount -o remount,bind,ro /proc/sys/vm/drop_caches")?;
    let refused = tried(node, "drop-caches", "epilog", None)?;
    ensure!(!refused.success() && refused.stdout.contains("Read-only file system"), "{refused}");
    Ok(())
}

#[test]
fn a_node_is_ready_or_says_what_it_lacks() -> Result<()> {
    // The node sees the load of all other work on this machine: so the limits are extreme.
    let well = "READY_RUNNING = \"100000\"\nREADY_MEMORY = \"1\"\nMOUNTS = \"/ /tmp:rw\"";
    let busy = "READY_RUNNING = \"-1\"\nREADY_MEMORY = \"101\"\nREADY_WAIT = \"1\"\nMOUNTS = \"/run/gone\"";
    let cluster = cluster(&[
        ("epilog", well),
        ("busy", busy),
        ("waits", "READY_RUNNING = \"100000\"\nREADY_MEMORY = \"1\"\nMOUNTS = \"/run/late\""),
    ])?;
    let node = cluster.node(0)?;
    ensure_ok(&tried(node, "node-ready", "epilog", None)?, "10-node-ready  ok")?;
    let lacks = tried(node, "node-ready", "busy", None)?;
    ensure_failed(&lacks, "not ready: ")?;
    for part in [
        "processes run or wait for a disk, at most -1 may; ",
        " % of the memory is available, 101 % must be; ",
        "/run/gone is not mounted",
    ] {
        ensure!(lacks.stdout.contains(part), "no {part:?}: {lacks}");
    }
    // The script waits, and prints what it waits for.
    node.sh("ln -s /usr/share/perilog/scripts/node-ready /etc/perilog/waits.d/10-node-ready")?;
    let mut run = node.spawn(&["perilog", "try", "/etc/perilog/waits.d", "--action", "waits"])?;
    let waits = "systemctl status 'perilog-task-waits-*'";
    cluster.bed().wait_until("it says what it waits for", SOON, || {
        Ok(node.run(&["sh", "-c", waits])?.stdout.contains("waiting: /run/late is not mounted"))
    })?;
    node.sh("mkdir /run/late && mount -t tmpfs tmpfs /run/late")?;
    ensure!(cluster.wait_end(&mut run)? == 0, "{}", run.output()?);
    Ok(())
}
