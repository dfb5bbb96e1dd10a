//! dnf installs the .rpm files into a root of their own, where one stand-in package provides what RHEL 8 has of what
//! they ask for, and nothing more: glibc 2.28 and systemd 239. Without the stand-in dnf refuses, and names what is
//! missing.

use anyhow::{Result, ensure};
use perilog_tests::{Bed, Node, Release};

/// Capabilities of RHEL 8 that the packages may ask for. `libc.so.6` has further versions, below.
const OF_EL8: &str = "systemd = 239
dbus = 1:1.12.8
shadow-utils = 2:4.6
python3 = 3.6.8
/bin/sh
/usr/bin/python3
rtld(GNU_HASH)
ld-linux-x86-64.so.2()(64bit)
ld-linux-x86-64.so.2(GLIBC_2.3)(64bit)
libc.so.6()(64bit)
libm.so.6()(64bit)
libm.so.6(GLIBC_2.2.5)(64bit)
libm.so.6(GLIBC_2.27)(64bit)
libdl.so.2()(64bit)
libdl.so.2(GLIBC_2.2.5)(64bit)
libpthread.so.0()(64bit)
libpthread.so.0(GLIBC_2.2.5)(64bit)
libpthread.so.0(GLIBC_2.3.2)(64bit)
libpthread.so.0(GLIBC_2.3.3)(64bit)
libpthread.so.0(GLIBC_2.12)(64bit)
libpthread.so.0(GLIBC_2.18)(64bit)
librt.so.1()(64bit)
librt.so.1(GLIBC_2.2.5)(64bit)
librt.so.1(GLIBC_2.3.4)(64bit)
libgcc_s.so.1()(64bit)
libgcc_s.so.1(GCC_3.0)(64bit)
libgcc_s.so.1(GCC_3.3)(64bit)
libgcc_s.so.1(GCC_4.2.0)(64bit)";
/// Versions of symbols of RHEL 8's `libc.so.6`, beside 2.2.5 to 2.3.4, as a range of minor versions.
const OF_LIBC: std::ops::RangeInclusive<u32> = 3..=28;

/// Script that makes a root directory whose `/usr` is an overlay over this machine's.
const MAKE_ROOT: &str = "
mkdir -p /tmp/el/{usr,etc,var/lib,run,proc,dev,tmp,upper,work} && cd /tmp/el
mount -t overlay overlay -o lowerdir=/usr,upperdir=upper,workdir=work usr
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
mkdir -p etc/systemd/system
mount --bind /proc proc
: >dev/null && mount --bind /dev/null dev/null
grep -v perilog /etc/passwd >etc/passwd; grep -v perilog /etc/group >etc/group; : >etc/shadow; : >etc/gshadow
cp /etc/nsswitch.conf /etc/login.defs etc/; cp -r /etc/pam.d etc/ 2>/dev/null || true";

/// Returns the spec of the stand-in.
fn stand_in() -> String {
    let libc = ["2.2.5", "2.2.6", "2.3.2", "2.3.3", "2.3.4"].map(str::to_owned).into_iter();
    let libc = libc
        .chain(OF_LIBC.map(|minor| format!("2.{minor}")))
        .map(|version| format!("libc.so.6(GLIBC_{version})(64bit)"));
    let provides: String =
        OF_EL8.lines().map(str::to_owned).chain(libc).map(|what| format!("Provides: {what}\n")).collect();
    format!(
        "Name: el8\nVersion: 8\nRelease: 1\nSummary: What a system of that release has\nLicense: none\nBuildArch: \
         noarch\n{provides}%description\nStands in for a system.\n%files\n"
    )
}

fn dnf(node: &Node, arguments: &str) -> Result<perilog_tests::Output> {
    let command = format!(
        "cd /root && dnf -y --installroot=/tmp/el --releasever=8 --setopt=reposdir=/nowhere --setopt=cachedir=/tmp/dnf \
         --setopt=persistdir=/tmp/dnf-state --nogpgcheck {arguments} 2>&1"
    );
    node.run(&["bash", "-c", &command])
}

#[test]
fn dnf_finds_in_el8_all_that_they_ask_for() -> Result<()> {
    let bed = Bed::builder().node("n0").boot()?;
    let node = bed.node("n0")?;
    node.sh(MAKE_ROOT)?;
    let paths = node.hand_over_all(Release::Current, "rpm")?;
    let paths = paths.join(" ");
    node.write_file("/root/el8.spec", stand_in())?;
    node.sh("rpmbuild -bb --quiet --define '_topdir /root/rpmbuild' /root/el8.spec")?;

    let refused = dnf(node, &format!("install {paths}"))?;
    ensure!(
        !refused.success() && refused.stdout.contains("nothing provides systemd >= 239"),
        "without a system they are not refused: {refused}"
    );
    let installed = dnf(node, &format!("install /root/rpmbuild/RPMS/noarch/el8-8-1.noarch.rpm {paths}"))?.ok()?;
    ensure!(installed.contains("Complete!"), "{installed}");
    let root = |command: &str| node.sh(&format!("chroot /tmp/el {command}"));
    assert_eq!(root("perilog --version")?, format!("perilog {}", env!("CARGO_PKG_VERSION")));
    root("perilog-agent --check-config")?;
    let removed = dnf(node, "remove perilog perilog-agent perilog-controller perilog-flux")?.ok()?;
    ensure!(removed.contains("Complete!"), "{removed}");
    ensure!(!node.run(&["test", "-e", "/tmp/el/usr/sbin/perilog-agent"])?.success(), "it is there");
    Ok(())
}
