#!/bin/sh
# Lays the product out below a directory, as it is installed: the one list of what goes where, for .deb and .rpm.
#
#   install.sh BINARIES DESTDIR PAGES
#
# BINARIES: where cargo put the programs. DESTDIR: stands for /. PAGES: what `cargo xtask pages` wrote: man/ and completions/.
set -eu
binaries=$1 destdir=$2 pages=$3
tree=$(cd "$(dirname "$0")/.." && pwd)

put() { # MODE FILE PATH
    install -D -m "$1" "$2" "$destdir$3"
}

for name in perilog perilog-report; do put 755 "$binaries/$name" "/usr/bin/$name"; done
for name in perilog-agent perilog-controller perilog-flux; do put 755 "$binaries/$name" "/usr/sbin/$name"; done
# A static runner begins in half the time and cannot look up users: it passes tasks that have some to the one beside it (docs/building.md).
runner=perilog-runner
if [ -e "$binaries/perilog-runner-static" ]; then
    put 755 "$binaries/perilog-runner-static" /usr/libexec/perilog/perilog-runner
    runner=perilog-runner-nss
fi
put 755 "$binaries/perilog-runner" /usr/libexec/perilog/$runner
# Flux loads the plugin into rank 0's job manager; `cargo build --bins` makes none, and other sites need none. The script is for the instance that a batch
# job is.
[ ! -e "$binaries/libperilog_hold.so" ] || put 644 "$binaries/libperilog_hold.so" /usr/lib/perilog/perilog-hold.so
put 755 "$tree/flux/rc1/10-perilog" /etc/flux/rc1.d/10-perilog
# The programs that a resource manager and [drain] are configured to run, where their configuration can name it; an image may have no documentation.
for name in slurm/prolog slurm/epilog slurm/orphaned slurm/slurmctld-prolog slurm/slurmctld-epilog slurm/drain flux/housekeeping flux/wait flux/drain; do
    put 755 "$tree/docs/examples/$name" "/usr/libexec/perilog/$name"
done

# Off until a site links them: scripts to begin with, and what an agent needs to know of a resource manager.
for file in "$tree"/scripts/*; do put 755 "$file" "/usr/share/perilog/scripts/${file##*/}"; done
for file in "$tree"/packaging/agent.d/*; do put 644 "$file" "/usr/share/perilog/agent.d/${file##*/}"; done

# For firewalld, off until a site adds it to a zone.
put 644 "$tree/packaging/firewalld/perilog-controller.xml" /usr/lib/firewalld/services/perilog-controller.xml

# For the host that runs Ansible.
(cd "$tree/packaging/ansible" && find . -type f ! -name '.*' | sort) | while read -r file; do
    put 644 "$tree/packaging/ansible/$file" "/usr/share/perilog/ansible/${file#./}"
done
# For programs: the interfaces, the schema of --json, and a module of Python where Debian has them (perilog.spec moves it to where rpm's systems do).
for file in "$tree"/agent/src/local/*.varlink "$tree"/controller/src/api/*.varlink; do put 644 "$file" "/usr/share/perilog/varlink/${file##*/}"; done
put 644 "$tree/schema/perilog.schema.json" /usr/share/perilog/schema/perilog.schema.json
for name in __init__.py py.typed; do put 644 "$tree/python/perilog/$name" "/usr/lib/python3/dist-packages/perilog/$name"; done

for unit in "$tree"/units/*.service "$tree"/units/*.socket "$tree"/units/*.timer "$tree"/units/*.slice; do
    put 644 "$unit" "/usr/lib/systemd/system/${unit##*/}"
done
for dropin in "$tree"/units/*.d/*; do
    put 644 "$dropin" "/usr/lib/systemd/system/${dropin#"$tree"/units/}"
done
for preset in "$tree"/units/*.preset; do
    put 644 "$preset" "/usr/lib/systemd/system-preset/90-${preset##*/}"
done
for kind in sysusers tmpfiles; do
    for file in "$tree"/units/*."$kind"; do
        name=${file##*/}
        put 644 "$file" "/usr/lib/$kind.d/${name%."$kind"}.conf"
    done
done

# An agent does something with every default: its actions have nothing to do until there are scripts in their directories. (Without a table an action is
# refused, and a node that cannot say that it is clean is drained.) A controller needs its cluster's name in its configuration. The edge of Flux needs
# no key. The files are short, and point at a manual page: a package that changes a comment must not have every upgrade ask.
put 644 "$tree/packaging/agent.toml" /etc/perilog/agent.toml
put 644 "$tree/packaging/controller.toml" /etc/perilog/controller.toml
put 644 "$tree/packaging/edge.toml" /etc/perilog/edge.toml
for name in prolog epilog housekeeping agent controller edge; do install -d -m 755 "$destdir/etc/perilog/$name.d"; done

for page in "$pages"/man/*.[1-8]; do
    put 644 "$page" "/usr/share/man/man${page##*.}/${page##*/}"
done
put 644 "$pages/completions/perilog.bash" /usr/share/bash-completion/completions/perilog
put 644 "$pages/completions/_perilog" /usr/share/zsh/vendor-completions/_perilog
put 644 "$pages/completions/perilog.fish" /usr/share/fish/vendor_completions.d/perilog.fish
