//! `perilog -H HOST`: what reaches the host, through a stand-in for ssh(1), and through the real ssh and sshd.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod fake;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use fake::{Call, CliOutput, Done, Error, Place};
use serde_json::json;

const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

fn write(path: &Path, mode: u32, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs `perilog` with the arguments `line`. In its PATH, the directory `bin` comes before those of the system.
fn with(place: &Place, bin: &Path, line: &[&str]) -> CliOutput {
    let path = format!("{}:{SYSTEM}", bin.display());
    CliOutput::of(place.command(line).env("PATH", path).output().unwrap())
}

/// Makes a directory with two stand-ins: `ssh` prints its options and lets a shell read the command, `perilog` prints
/// its arguments.
fn stand_ins(place: &Place) -> PathBuf {
    let bin = place.dir().join("bin");
    fs::create_dir(&bin).unwrap();
    // The options that perilog gives take no value here: no terminal is in reach.
    let ssh = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do echo \"option $1\"; shift; done\necho \"host $2\"\n[ $# = 3 ] || \
               exit 99\nexec sh -c \"$3\"\n";
    write(&bin.join("ssh"), 0o755, ssh);
    write(&bin.join("perilog"), 0o755, "#!/bin/sh\nprintf '<%s>\\n' \"$@\"\nexit 6\n");
    bin
}

#[test]
fn every_argument_reaches_the_host_as_it_was_typed() {
    let place = Place::new();
    let bin = stand_ins(&place);
    let reason = "it's $(touch pwned) `x` \\ \"y\"\n; *";
    let output = with(&place, &bin, &["-qH", "root@ctl", "drain", "n[0-3]", reason, ""]);
    assert_eq!(output.out, format!("option -n\nhost root@ctl\n<--quiet>\n<drain>\n<n[0-3]>\n<{reason}>\n<>\n"));
    assert_eq!((output.code, output.err.as_str()), (Some(6), ""));
    // Standard input is for a command that reads it.
    let output = with(&place, &bin, &["-H", "ctl", "job", "add", "f1", "--R", "-"]);
    assert_eq!(output.out, "host ctl\n<job>\n<add>\n<f1>\n<--R>\n<->\n");
}

#[test]
fn an_option_is_no_host_and_a_missing_ssh_is_named() {
    let place = Place::new();
    let bin = stand_ins(&place);
    for host in ["-oProxyCommand=touch pwned", "", "a b"] {
        let output = with(&place, &bin, &["-H", host, "ps"]);
        assert_eq!((output.code, output.out.as_str()), (Some(2), ""), "{host}: {}", output.err);
    }
    let output = CliOutput::of(place.command(&["-H", "ctl", "ps"]).env("PATH", place.dir()).output().unwrap());
    assert_eq!(output.code, Some(255));
    assert!(
        output.err.starts_with("perilog: cannot run ssh (No such file") && output.err.contains("openssh-client"),
        "{}",
        output.err
    );
}

/// Prepares the real ssh(1) to reach a real sshd under the host name `ctl`. That sshd finds programs in the directory
/// `there`. Returns a directory with a program `ssh` that uses this configuration.
fn real(place: &Place, there: &Path) -> PathBuf {
    let dir = place.dir();
    let bin = dir.join("here");
    fs::create_dir(&bin).unwrap();
    for key in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", ""]).arg("-f").arg(dir.join(key));
        assert!(keygen.status().expect("ssh-keygen: cargo xtask test installs it").success());
    }
    let is_root = rustix::process::getuid().is_root();
    let (at, pam) = (dir.display(), if is_root { "yes" } else { "no" });
    let sshd = format!(
        "HostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nStrictModes no\nPermitRootLogin yes\nUsePAM \
         {pam}\nPrintMotd no\n\
         SetEnv PATH={}:{SYSTEM}\nPidFile none\n",
        there.display()
    );
    write(&dir.join("sshd_config"), 0o600, &sshd);
    // One sshd for each connection, on a pipe: no port, and no daemon that a failing test leaves behind.
    let sshd = format!("exec /usr/sbin/sshd -i -f {at}/sshd_config");
    // Under root, sshd wants a directory that its unit makes.
    let proxy = if is_root {
        format!("exec unshare -m sh -c 'mount -t tmpfs sshd /run && mkdir -m 0755 /run/sshd && {sshd}'")
    } else {
        sshd
    };
    write(&dir.join("proxy"), 0o755, &format!("#!/bin/sh\n{proxy}\n"));
    let ssh = format!(
        "Host ctl\n ProxyCommand {at}/proxy\n IdentityFile {at}/user\n IdentitiesOnly yes\n StrictHostKeyChecking \
         accept-new\n\
         \x20UserKnownHostsFile {at}/known\n LogLevel ERROR\nHost away\n ProxyCommand false\n"
    );
    write(&dir.join("ssh_config"), 0o600, &ssh);
    write(&bin.join("ssh"), 0o755, &format!("#!/bin/sh\nexec /usr/bin/ssh -F {at}/ssh_config \"$@\"\n"));
    bin
}

#[test]
fn a_real_sshd_passes_on_the_hosts_answer_and_status() {
    let place = Place::new();
    let there = place.dir().join("there");
    fs::create_dir(&there).unwrap();
    symlink(env!("CARGO_BIN_EXE_perilog"), there.join("perilog")).unwrap();
    let bin = real(&place, &there);
    let socket = place.socket();
    let at = socket.to_str().unwrap();
    let there_is = |line: &[&'static str]| [&["-H", "ctl", "--socket", at][..], line].concat();

    let reason = "it's \"bad\" `x` $HOME";
    let daemon = fake::serve(&socket, vec![vec![Call("Drain"), Done(json!({"tasks": 1}))]]);
    let output = with(&place, &bin, &there_is(&["drain", "n[0-3]", reason]));
    let asked = daemon.asked();
    assert_eq!((output.code, asked[0]["reason"].as_str()), (Some(0), Some(reason)), "{}", output.err);

    let refused = || {
        vec![vec![
            Call("Show"),
            Error("io.perilog.Controller.Refused", json!({"code": "no-such-job", "text": "no job f1"})),
        ]]
    };
    let daemon = fake::serve(&socket, refused());
    let output = with(&place, &bin, &there_is(&["show", "f1"]));
    daemon.asked();
    let (here, _) = place.ask(&["show", "f1"], refused());
    assert_eq!((output.code, &output.err, &output.out), (Some(9), &here.err, &here.out), "{}", output.err);

    fs::remove_file(there.join("perilog")).unwrap();
    assert_eq!(with(&place, &bin, &there_is(&["ps"])).code, Some(127));
    let output = with(&place, &bin, &["-H", "away", "ps"]);
    assert_eq!((output.code, output.out.as_str()), (Some(255), ""), "{}", output.err);
    assert!(!output.err.is_empty());
}

/// `perilog doctor --nodes`: a host that does not answer, or has no perilog, gets a finding that says so. The other
/// hosts are asked all the same.
#[test]
fn doctor_asks_each_node_and_names_those_that_do_not_answer() {
    let place = Place::new();
    let bin = stand_ins(&place);
    let ssh = r#"#!/bin/sh
for host; do [ "$host" = "perilog --json doctor node" ] || last=$host; done
case $last in
n1) echo "ssh: connect to host n1 port 22: No route to host" >&2; exit 255;;
n2) echo '{"findings":[{"level":"wrong","about":"scripts","what":"others can write","todo":"chmod go-w x"}]}'; exit 1;;
*) echo '{"findings":[{"level":"ok","about":"clock","what":"is kept","todo":""}]}';;
esac
"#;
    write(&bin.join("ssh"), 0o755, ssh);
    let output = with(&place, &bin, &["doctor", "--nodes", "n[0-3]"]);
    assert_eq!(
        (output.code, output.out.as_str()),
        (
            Some(1),
            "wrong  n2  scripts  others can write\n\
             \u{20}                   -> chmod go-w x\n\
             wrong  n1  ssh      ssh: connect to host n1 port 22: No route to host\n\
             \u{20}                   -> perilog why n1\n\
             nothing is wrong on n[0,3]\n"
        )
    );
    assert_eq!(with(&place, &bin, &["doctor", "--nodes", "n[0,3]"]).code, Some(0));
}
