# The ledger: what a script of a test or of the demo writes about itself on its node, where neither agent nor controller
# can touch it. One line when it starts, one when it ends, each a single write to a file opened for appending.
ledger() {
    read -r since_boot _ </proc/uptime
    read -r boot </proc/sys/kernel/random/boot_id
    echo "$1 $since_boot $boot ${PERILOG_JOB:--} ${PERILOG_ATTEMPT:--} ${PERILOG_ACTION:--} ${PERILOG_RANK:--} ${0##*/} $$ ${2:--}" \
        >>/var/lib/ledger/ledger
}

# One of its arguments, drawn when and where the script runs: the result cannot be known beforehand.
draw() {
    shift $(($(od -An -N2 -tu2 /dev/urandom) % $#))
    echo "$1"
}

ledger start
trap 'code=$?; ledger end $code; exit $code' EXIT
