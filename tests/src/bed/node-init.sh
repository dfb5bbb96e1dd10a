#!/bin/sh
# PID 1 of a node until it becomes systemd: joins the bed's network, lays the node's root, and goes there for good.
# Runs in namespaces of its own (mount, uts, ipc, net, pid, cgroup); /proc is still the bed's, where PID 1 is the hub.
#
#   node-init.sh BED NODE INDEX LAYER BASE
#
# BASE is the root of the node's distribution: `/`, or where another one lies.
set -eu
bed=$1 node=$2 index=$3 layer=$4 base=${5%/}
dir=$bed/nodes/$node root=$bed/nodes/$node/root

# The network is new with every boot: a machine that lost power has no sockets left that could still say goodbye. Its
# hardware address stays, as a network card's does, or peers would look for the node in vain until they ask again.
ip -batch - <<END
link set lo up
link add eth0 address $(printf '02:00:0a:4d:%02x:%02x' $((index / 250)) $((index % 250 + 2))) type veth peer name v$index netns /proc/1/ns/net
addr add 10.77.$((index / 250)).$((index % 250 + 2))/16 dev eth0
link set eth0 up
END
nsenter --net=/proc/1/ns/net ip link set "v$index" master br0 up
hostname "$node"

# Root: the node's own files over its distribution's, which are never written to. /usr is an overlay of its own, because the
# installed product goes in between there (the kernel takes no lower layer that lies inside another, as one under / would),
# and because /usr may be a file system of its own here.
mount -t overlay overlay -o "lowerdir=$base/,upperdir=$dir/upper,workdir=$dir/work" "$root"
mount -t overlay overlay -o "lowerdir=$layer/usr:$base/usr,upperdir=$dir/upper/usr,workdir=$dir/work-usr" "$root/usr"
cd "$root"

mount -t proc -o nosuid,noexec,nodev proc proc
# Kernel settings and the magic key are the machine's, and a node boots with root's rights: out of reach. Network
# settings belong to the node's own namespace.
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro proc/sys
for file in sysrq-trigger sys/vm/drop_caches; do
    if [ -e "proc/$file" ]; then mount --bind /dev/null "proc/$file"; fi
done
mount -t sysfs -o ro,nosuid,noexec,nodev sysfs sys
# The root of this cgroup namespace is the node's cgroup, so systemd finds a tree that is all its own.
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup

mount -t tmpfs -o mode=755,nosuid tmpfs dev
mkdir dev/pts dev/shm
while read -r name minor; do mknod -m 666 "dev/$name" c $minor; done <<END
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
fuse 10 229
END
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
if [ -d "$dir/run" ]; then mount --bind "$dir/run" run; else mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run; fi
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs tmp

# boot_id belongs to the kernel, which does not reboot here: each boot of the node gets one of its own, unless the node
# plays a container, whose boots have one kernel.
if [ -e "$dir/kernel" ]; then cat "$dir/kernel"; else cat /proc/sys/kernel/random/uuid; fi >run/boot_id
mount --bind run/boot_id proc/sys/kernel/random/boot_id
mount -o remount,bind,ro proc/sys/kernel/random/boot_id

# pivot_root needs a place for the old root for a moment; on /run it leaves no trace in the node's files.
mkdir run/old
pivot_root . run/old
umount -l /run/old
rmdir /run/old
exec env -i container=perilog-bed PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin LANG=C.UTF-8 \
    /usr/lib/systemd/systemd --show-status=no
