#!/usr/bin/env bash
# Two network namespaces, bnce-a and bnce-b, joined by a veth pair named "line": for bench.py network.
#
#   network.sh up | down
#   network.sh rate GIGABITS    limit both directions
#   network.sh sent             bytes that bnce-a has sent
set -euo pipefail
machines=(bnce-a bnce-b)

down() {
  for name in "${machines[@]}"; do
    ip netns del "$name" 2> /dev/null || true
  done
}

case $1 in
  up)
    down
    for name in "${machines[@]}"; do
      ip netns add "$name"
    done
    ip link add line netns bnce-a type veth peer name line netns bnce-b
    for number in 1 2; do
      name=${machines[number - 1]}
      ip -n "$name" addr add "10.77.0.$number/24" dev line
      ip -n "$name" link set lo up
      ip -n "$name" link set line up
    done
    ;;
  down) down ;;
  rate)
    # What 4 ms let through, but at least 64,000 bytes.
    burst=$(awk -v rate="$2" 'BEGIN {burst = rate * 1e9 / 8 / 250; printf "%d", (burst > 64000 ? burst : 64000)}')
    for name in "${machines[@]}"; do
      ip netns exec "$name" tc qdisc replace dev line root tbf rate "$2gbit" burst "$burst" latency 50ms
    done
    ;;
  sent) ip netns exec bnce-a cat /sys/class/net/line/statistics/tx_bytes ;;
esac
