#!/bin/sh
# The reaper of one bed. It starts the hub, then reads its standard input until the process that made the bed is gone
# (end, panic, Ctrl-C, SIGKILL: the kernel closes the pipe in every case), and takes down what was recorded.
#
#   reaper.sh BED CGROUP     BED: the bed's directory. CGROUP: the cgroup to make for the bed, or `scope`: the one this
#                            process already runs in, a delegated scope that the host's systemd made.
#
# Standard output is the lock that says "this bed is alive"; it is held by being open and never written to.
set -u
trap '' HUP INT TERM
bed=$1 cgroup=$2

if [ "$cgroup" = scope ]; then
    # A cgroup with controllers for its children may hold no process itself, so the reaper moves to a leaf.
    cgroup=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)$(sed -n 's/^0:://p' /proc/self/cgroup)
    mkdir "$cgroup/reaper" && echo 0 >"$cgroup/reaper/cgroup.procs" || exit 1
else
    mkdir "$cgroup" || exit 1
fi
echo "$cgroup" >"$bed/cgroup"
# Memory and task limits of units are enforced only where the host hands these controllers down; elsewhere this does nothing.
for controller in cpu io memory pids; do
    echo "+$controller" >"$cgroup/cgroup.subtree_control" 2>/dev/null
done

# Should this reaper itself be killed, the hub goes with it, and with the hub every node.
setpriv --pdeathsig KILL unshare --mount --net --pid --propagation private --fork --kill-child /bin/sh "$bed/hub.sh" "$bed" </dev/null &
hub=$!
echo "$hub" >"$bed/hub.new" && mv "$bed/hub.new" "$bed/hub"

while read -r _; do :; done

# The hub is PID 1 of the namespace all nodes live in: when it is gone, so are they, their mounts, bridge and links.
init=$(cat "/proc/$hub/task/$hub/children" 2>/dev/null)
[ -n "$init" ] && kill -KILL $init
wait "$hub"
tries=0
while [ -n "$(find "$cgroup" -mindepth 1 -type d ! -path "$cgroup/reaper" 2>/dev/null)" ] && [ "$tries" -lt 200 ]; do
    find "$cgroup" -mindepth 1 -depth -type d ! -path "$cgroup/reaper" -exec rmdir {} + 2>/dev/null || sleep 0.02
    tries=$((tries + 1))
done
# Our own cgroup goes by our hand; a scope goes by systemd's, when its last process, this one, has ended.
[ -d "$cgroup/reaper" ] || rmdir "$cgroup"
rm -rf --one-file-system -- "$bed"
