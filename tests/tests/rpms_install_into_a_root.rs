//! The .rpm files: their content, file modes and dependencies. They are installed into a root directory of their own,
//! where the scriptlets create the user and enable the units. An upgrade keeps the configuration, and a removal removes
//! everything.

use anyhow::{Result, ensure};
use perilog_tests::{Bed, Node, Release};

/// Script that makes a root directory with only what the scriptlets need: `/usr` is an overlay over this machine's
/// `/usr`.
const MAKE_ROOT: &str = "
mkdir -p /tmp/el/{usr,etc,var,run,proc,dev,tmp,upper,work} && cd /tmp/el
mount -t overlay overlay -o lowerdir=/usr,upperdir=upper,workdir=work usr
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
mkdir -p etc/systemd/system
# systemctl tells by it that it is in a root of another system, and then only makes links.
mount --bind /proc proc
: >dev/null && mount --bind /dev/null dev/null
grep -v perilog /etc/passwd >etc/passwd; grep -v perilog /etc/group >etc/group; : >etc/shadow; : >etc/gshadow
cp /etc/nsswitch.conf etc/; cp -r /etc/pam.d etc/ 2>/dev/null || true; cp /etc/login.defs etc/
rpm --root /tmp/el --initdb";

const NAMED: [&str; 15] = [
    "/usr/share/perilog/ansible/perilog/tasks/main.yml",
    "/usr/share/perilog/schema/perilog.schema.json",
    "/usr/share/perilog/varlink/io.perilog.Agent.varlink",
    "/usr/share/perilog/varlink/io.perilog.Controller.varlink",
    "/usr/libexec/perilog/flux/housekeeping",
    "/usr/libexec/perilog/slurm/drain",
    "/usr/libexec/perilog/slurm/prolog",
    "/usr/share/doc/perilog/administration.md",
    "/usr/share/doc/perilog/troubleshooting.md",
    "/usr/share/doc/perilog/slurm.md",
    "/usr/share/doc/perilog/flux.md",
    "/usr/share/doc/perilog/examples/slurm/prolog",
    "/usr/share/doc/perilog/examples/flux/housekeeping",
    "/usr/share/doc/perilog/examples/flux/drain",
    "/usr/share/doc/perilog/examples/monitoring/perilog.rules.yml",
];

fn rpm(node: &Node, arguments: &str) -> Result<String> {
    node.sh(&format!("rpm --root /tmp/el {arguments} 2>&1"))
}

fn files(node: &Node, name: &str) -> Result<String> {
    let path = node.hand_over(Release::Current, name, "rpm")?;
    let listed = node.sh(&format!(
        "rpm -qp --qf '[%{{FILEMODES:perms}} %{{FILEUSERNAME}}:%{{FILEGROUPNAME}} %{{FILEFLAGS:fflags}} \
         %{{FILENAMES}}\\n]' {path}"
    ))?;
    let interesting =
        |line: &&str| !line.contains("/share/") && !line.contains("/.build-id") && !line.contains("/usr/lib/.build-id");
    let mut lines: Vec<String> =
        listed.lines().filter(interesting).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.sort_by_key(|line| line.rsplit(' ').next().map(str::to_owned));
    Ok(lines.join("\n"))
}

#[test]
fn they_install_upgrade_and_go() -> Result<()> {
    let bed = Bed::builder().node("n0").boot()?;
    let node = bed.node("n0")?;
    node.sh(MAKE_ROOT)?;
    let paths = node.hand_over_all(Release::Current, "rpm")?;

    let agent = files(node, "perilog-agent")?;
    for line in [
        "drwxr-xr-x root:root /etc/perilog",
        "-rw-r--r-- root:root cn /etc/perilog/agent.toml",
        "drwxr-xr-x root:root /etc/perilog/agent.d",
        "drwxr-xr-x root:root /etc/perilog/epilog.d",
        "drwxr-xr-x root:root /etc/perilog/housekeeping.d",
        "drwxr-xr-x root:root /etc/perilog/prolog.d",
        "-rwxr-xr-x root:root /usr/bin/perilog-report",
        "-rwxr-xr-x root:root /usr/libexec/perilog/perilog-runner",
        "-rwxr-xr-x root:root /usr/sbin/perilog-agent",
        "-rw-r--r-- root:root /usr/lib/systemd/system/perilog-agent.service",
        "-rw-r--r-- root:root /usr/lib/systemd/system/flux-epilog-perilog.service",
        "-rw-r--r-- root:root /usr/lib/systemd/system/perilog-shutdown.service",
        "-rw-r--r-- root:root /usr/lib/systemd/system/perilog-task-.service.d/shutdown.conf",
        "-rw-r--r-- root:root /usr/lib/systemd/system/perilog-task-.service.d/zz-perilog.conf",
        "-rw-r--r-- root:root /usr/lib/systemd/system/perilog.slice",
    ] {
        ensure!(agent.lines().any(|found| found == line), "no {line:?} in\n{agent}");
    }
    let controller = files(node, "perilog-controller")?;
    for line in [
        "-rw-r--r-- root:root cn /etc/perilog/controller.toml",
        "drwxr-xr-x root:root /etc/perilog/controller.d",
        "-rwxr-xr-x root:root /usr/sbin/perilog-controller",
        "-rw-r--r-- root:root /usr/lib/sysusers.d/perilog-controller.conf",
        "-rw-r--r-- root:root /usr/lib/tmpfiles.d/perilog-controller.conf",
    ] {
        ensure!(controller.lines().any(|found| found == line), "no {line:?} in\n{controller}");
    }
    let flux = files(node, "perilog-flux")?;
    for line in [
        "-rwxr-xr-x root:root cn /etc/flux/rc1.d/10-perilog",
        "-rw-r--r-- root:root cn /etc/perilog/edge.toml",
        "drwxr-xr-x root:root /etc/perilog/edge.d",
        "-rw-r--r-- root:root /usr/lib/perilog/perilog-hold.so",
        "-rw-r--r-- root:root /usr/lib/systemd/system/perilog-flux.service",
        "-rwxr-xr-x root:root /usr/sbin/perilog-flux",
    ] {
        ensure!(flux.lines().any(|found| found == line), "no {line:?} in\n{flux}");
    }
    // rpmlint cannot check manual pages.
    for (path, pages) in [
        (&paths[0], &["man1/perilog.1", "man1/perilog-run.1", "man1/perilog-resume.1"][..]),
        (
            &paths[1],
            &["man1/perilog-report.1", "man5/perilog-agent.toml.5", "man8/perilog-agent.8", "man8/perilog-runner.8"],
        ),
        (&paths[2], &["man5/perilog-controller.toml.5", "man7/perilog-events.7", "man8/perilog-controller.8"]),
        (&paths[3], &["man5/perilog-edge.toml.5", "man8/perilog-flux.8"]),
    ] {
        let found = node.sh(&format!("rpm -qpl {path}"))?;
        for page in pages {
            let page = format!("/usr/share/man/{page}.gz");
            ensure!(found.lines().any(|line| line == page), "{path} has no {page}:\n{found}");
        }
    }
    for (path, needs) in [
        (&paths[0], &["libc.so.6"][..]),
        (&paths[1], &["systemd >= 239", "dbus", "/bin/sh", "libc.so.6"]),
        (&paths[2], &["systemd >= 239", "shadow-utils", "/bin/sh", "libc.so.6"]),
    ] {
        let found = node.sh(&format!("rpm -qpR {path}"))?;
        for need in needs {
            ensure!(found.lines().any(|line| line.starts_with(need)), "{path} does not need {need}:\n{found}");
        }
        ensure!(!found.contains("python") && !found.contains("perl"), "{path}:\n{found}");
    }

    for (path, recommended) in [(&paths[1], "perilog = "), (&paths[2], "perilog = ")] {
        let found = node.sh(&format!("rpm -qp --recommends {path}"))?;
        ensure!(found.lines().any(|line| line.starts_with(recommended)), "{path} recommends {found:?}");
    }
    // Files that guides and pages name, at their paths.
    let documents = node.sh(&format!("rpm -qpl {}", paths[0]))?;
    for file in NAMED {
        ensure!(documents.lines().any(|line| line == file), "no {file} in\n{documents}");
    }
    ensure!(documents.contains("/site-packages/perilog/__init__.py\n"), "no module in\n{documents}");

    let shared = node.sh(&format!("rpm -qpl {}", paths[1]))?;
    for file in ["scripts/mounts", "scripts/node-ready", "agent.d/slurm.toml", "agent.d/flux.toml"] {
        ensure!(shared.lines().any(|line| line == format!("/usr/share/perilog/{file}")), "no {file} in\n{shared}");
    }

    // This machine's packages are Debian's, unknown to rpm, so the test checked the dependencies above.
    rpm(node, &format!("-i --nodeps {}", paths.join(" ")))?;
    ensure!(
        rpm(node, "-V --nodeps perilog perilog-agent perilog-controller perilog-flux")?.is_empty(),
        "what is there is not what was packed"
    );
    let root = |command: &str| node.sh(&format!("chroot /tmp/el {command}"));
    assert_eq!(root("perilog --version")?, format!("perilog {}", env!("CARGO_PKG_VERSION")));
    root("perilog-agent --check-config")?;
    ensure!(root("getent passwd perilog")?.contains("/var/lib/perilog"), "no user");
    let enabled = node.sh("cd /tmp/el/etc/systemd/system && find . -type l")?;
    assert_eq!(
        enabled, "./multi-user.target.wants/perilog-agent.service",
        "the agent, and no controller without a cluster's name"
    );

    node.sh("echo '# edited' >>/tmp/el/etc/perilog/agent.toml")?;
    rpm(node, &format!("-U --nodeps --force {}", paths.join(" ")))?;
    ensure!(node.read_file("/tmp/el/etc/perilog/agent.toml")?.ends_with("# edited\n"), "an upgrade replaced it");
    let line = "[{load = \"/usr/lib/perilog/perilog-hold.so\"}]";
    node.write_file("/tmp/el/etc/flux/site.toml", format!("job-manager.plugins = {line}\n"))?;
    let output = rpm(node, "-e perilog perilog-agent perilog-controller perilog-flux")?;
    ensure!(output.contains(line) && output.contains("flux jobtap remove perilog-hold.so"), "{output}");
    // Flux has a plugin of the same name.
    let left = node.sh(
        "cd /tmp/el && find usr/sbin usr/libexec usr/lib usr/bin etc var -path '*perilog*' -not -path 'var/lib/rpm/*' \
         -not -path 'usr/lib*/flux/*'",
    )?;
    assert_eq!(left, "etc/perilog\netc/perilog/agent.toml.rpmsave", "what was changed is kept");
    Ok(())
}
