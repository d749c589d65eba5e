#!/usr/bin/env bash
# Runs a Slurm under ROOT until standard input ends: munge, MariaDB, slurmdbd, slurmctld and a slurmd for each node.
#   run.sh ROOT SQL_PORT NODE...      ROOT/etc holds the configuration files
# Prints `ready` once every node is idle. Then it reads lines: `lose NODE` kills all processes of a node as a power cut
# does, `daemon NODE` kills its slurmd alone, `node NODE` starts it again; each is answered by `done`. Started in a PID namespace of its own, nothing outlives it.
set -euo pipefail
root=$1 sql_port=$2
shift 2
nodes=("$@")
user=$(id -un)
export SLURM_CONF=$root/etc/slurm.conf

until_true() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "not within its time: $*" >&2; return 1; }
        sleep 0.05
    done
}

munge() {
    (umask 077; head -c 128 /dev/urandom >"$root/munge/key")
    /usr/sbin/munged --key-file="$root/munge/key" --socket="$root/munge/sock" --seed-file="$root/munge/seed" \
        --pid-file="$root/pid/munged.pid" --log-file="$root/log/munged.log" --num-threads=2
}

sql() { mariadb --no-defaults --socket="$root/db.sock" -u root -e "$1"; }

database() {
    local paths=(--no-defaults --user="$user" --datadir="$root/db" --tmpdir="$root/dbtmp")
    mkdir "$root/dbtmp"  # as it starts, MariaDB deletes the temporary tables there, those of another MariaDB too
    mariadb-install-db "${paths[@]}" --auth-root-authentication-method=normal --skip-test-db >"$root/log/install-db.log" 2>&1
    mariadbd "${paths[@]}" --socket="$root/db.sock" --bind-address=127.0.0.1 \
        --port="$sql_port" --innodb-buffer-pool-size=64M --innodb-log-file-size=16M --skip-log-bin \
        --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900 --performance-schema=OFF \
        >"$root/log/mariadbd.log" 2>&1 </dev/null &
    until_true 240 sql "select 1"
    sql "create user slurm@'127.0.0.1' identified by 'slurm'; create user slurm@localhost identified by 'slurm';
         grant all on slurm_acct_db.* to slurm@'127.0.0.1', slurm@localhost;"
}

accounting() {
    /usr/sbin/slurmdbd -s
    until_true 240 timeout 3 sacctmgr -n -i list cluster
    sacctmgr -n -i add cluster moedsl >/dev/null
    sacctmgr -n -i add account acct cluster=moedsl >/dev/null
    sacctmgr -n -i add user "$user" account=acct >/dev/null
}

# Each slurmd has its own UTS and mount namespace: `hostname` says n1, n2, ..., `hostname --ip-address` says 127.0.1.1,
# 127.0.1.2, ..., and PMIx's folder of a node is its own.
node() {
    unshare --uts --mount bash -c 'hostname "$1"; mount --bind "$2/etc/hosts" /etc/hosts
        mount --bind "$2/spool/$1/tmp" "$2/nodetmp"; exec /usr/sbin/slurmd -N "$1"' - "$1" "$root"
}

lose() {  # stopped first: srun has a process that cancels its step when it sees srun end
    local uts process signal
    uts=$(readlink "/proc/$(cat "$root/pid/slurmd.$1.pid")/ns/uts")
    for signal in STOP KILL; do
        for process in /proc/[0-9]*; do
            [ "$(readlink "$process/ns/uts")" != "$uts" ] || kill -$signal "${process#/proc/}" || true  # it may have ended
        done
    done
}

daemon() { kill -KILL "$(cat "$root/pid/slurmd.$1.pid")"; }

all_idle() { [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = ${#nodes[@]} ]; }

stop() {
    timeout 5 scancel --user="$user" 2>/dev/null || true
    for file in "$root"/pid/*.pid; do [ ! -s "$file" ] || kill "$(cat "$file")" 2>/dev/null || true; done
    jobs -p | xargs -r kill 2>/dev/null || true
    wait
}
trap stop EXIT

munge
database
accounting
/usr/sbin/slurmctld
for name in "${nodes[@]}"; do
    mkdir -p "$root/spool/$name/tmp"
    node "$name"
done
until_true 240 all_idle
echo ready
while read -r command name; do
    "$command" "$name"
    echo "done"
done
