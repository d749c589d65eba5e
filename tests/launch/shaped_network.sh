set -e
mount -t tmpfs none /run
ip link add bridge type bridge
ip link set bridge up
number=0
for rate in "$@"; do
  number=$((number + 1))
  ip netns add "n$number"
  ip link add "to$number" type veth peer name eth0 netns "n$number"
  ip link set "to$number" master bridge up
  tc qdisc add dev "to$number" root tbf rate "$rate" burst 32k latency 200ms
  ip -n "n$number" addr add "10.0.0.$number/24" dev eth0
  ip -n "n$number" link set eth0 up
  ip -n "n$number" link set lo up
  ip netns exec "n$number" tc qdisc add dev eth0 root tbf rate "$rate" burst 32k latency 200ms
done
echo ready
exec cat
