#!/bin/bash
# Fence agent of the bed (/usr/sbin/fence_bed on the controller's hosts): asks the bed's power switch, a server on the
# bed's bridge, as a site's agent asks a power strip or a BMC (`plug=ctl0-bmc`, which has no power when its host has none).
# It succeeds only after the switch has done what it was asked; a host that is cut off from the bridge cannot fence.
action=reboot plug=
# crmsh asks by option, Pacemaker by standard input.
[ "${1:-}" != -o ] || action=$2
[ -n "${1:-}" ] || while IFS='=' read -r key value; do
    case $key in
        action) action=$value ;;
        plug) plug=$value ;;
    esac
done
if [ "$action" = metadata ]; then
    cat <<'END'
<?xml version="1.0" ?>
<resource-agent name="fence_bed" shortdesc="Power switch of a test bed">
<longdesc>Asks the power switch of a test bed.</longdesc>
<parameters>
<parameter name="action" unique="0" required="1"><content type="string" default="reboot"/><shortdesc lang="en">Action</shortdesc></parameter>
<parameter name="plug" unique="1" required="1"><content type="string"/><shortdesc lang="en">Name of the host, or of its BMC</shortdesc></parameter>
</parameters>
<actions>
<action name="on" automatic="0"/><action name="off"/><action name="reboot"/><action name="status"/>
<action name="monitor"/><action name="metadata"/>
</actions>
</resource-agent>
END
    exit 0
fi
exec 3<>/dev/tcp/10.77.0.1/5199 || exit 1
echo "$action $plug" >&3
read -r -t 120 answer <&3
echo "$action $plug: $answer"
case $answer in
    ok | on) exit 0 ;;
    off) exit 2 ;;
    *) exit 1 ;;
esac
