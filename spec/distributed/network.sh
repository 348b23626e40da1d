#!/bin/sh
# Two machines in one: network namespaces with their own addresses and names, between which the link is slow (where the
# kernel has netem) or is cut. `amp run --hosts` starts ranks on both, through an agent in place of ssh. Wants root and
# Open MPI; without them it says so and leaves.
#   sh spec/distributed/network.sh [build folder]
# Prints `N passed, N failed` last.
# shellcheck disable=SC2015,SC2016,SC2086,SC2317
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build}
build=$(cd "$build" && pwd) || exit 1
[ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v mpirun.openmpi >/dev/null ||
  { echo "SKIPPED network: root, ip and Open MPI are needed"; exit 0; }
[ -e "$build/amp/libamp_mpi_openmpi.so" ] || { echo "SKIPPED network: amp was built without Open MPI"; exit 0; }
work=$(mktemp -d)
left=amp-left-$$ right=amp-right-$$
end() {
  for ns in $left $right; do
    for p in $(ip netns pids "$ns" 2>/dev/null); do kill -9 "$p" 2>/dev/null; done
    ip netns del "$ns" 2>/dev/null
  done
  rm -rf "$work"
}
trap end EXIT
{ ip netns add $left && ip netns add $right; } 2>"$work/why" ||
  { echo "SKIPPED network: no network namespaces here: $(cat "$work/why")"; exit 0; }
ip link add vl netns $left type veth peer name vr netns $right || exit 1
ip -n $left addr add 10.77.0.1/24 dev vl
ip -n $right addr add 10.77.0.2/24 dev vr
for ns in $left $right; do ip -n $ns link set lo up; done
ip -n $left link set vl up
ip -n $right link set vr up
cat >"$work/agent" <<END
#!/bin/sh
case \$1 in 10.77.0.1) ns=$left; name=left ;; *) ns=$right; name=right ;; esac
shift
exec ip netns exec \$ns unshare --uts sh -c "hostname \$name; exec sh -c '\$*'"
END
chmod +x "$work/agent"

cat >"$work/program.lua" <<'END'
local amp = require 'amp'
local dist = amp.distributed
dist.init { timeout = tonumber(arg[2]) }
local pipe = io.popen 'hostname'
local name = pipe:read '*l'
pipe:close()
local t, began = amp.ones(1000), amp.clock()
for _ = 1, 10 do dist.all_reduce(t, { op = 'mean' }) end
print(('on %s: %.1f ms a call'):format(name, (amp.clock() - began) * 100))
io.flush()
if arg[1] == 'on' then
  for _ = 1, 100000 do dist.all_reduce(t, { op = 'mean' }) end
end
END

# seconds, words of the program: its output in $work/out, its status
ranks() {
  limit=$1
  shift
  AMP_LIBRARY="$build/amp/libamp.so" LUA_PATH="$root/lua/?.lua;$root/lua/?/init.lua;;" \
    OMPI_MCA_plm_rsh_agent="$work/agent" OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 \
    OMPI_MCA_btl=tcp,self,vader OMPI_MCA_pml=ob1 \
    ip netns exec $left unshare --uts sh -c 'hostname left; exec timeout -k 5 "$0" "$@"' "$limit" \
    "$root/lua/bin/amp" run -n 2 --mpi openmpi --hosts 10.77.0.1,10.77.0.2 "$work/program.lua" "$@" >"$work/out" 2>&1
}
passed=0
failed=0
check() { # what, condition...
  what=$1
  shift
  if "$@"; then passed=$((passed + 1)); echo "ok: $what"; else failed=$((failed + 1)); echo "FAILED: $what"; cat "$work/out"; fi
}
ended() { [ $status -ne 0 ] && [ $status -ne 124 ] && [ $took -lt 45 ]; }
both() { grep -q 'on left: ' "$work/out" && grep -q 'on right: ' "$work/out"; }

ranks 60 once 20
check "two machines: status $?, $(sed -n 's/.*on left: //p' "$work/out")" both
if tc -n $left qdisc add dev vl root netem delay 20ms 2>/dev/null && tc -n $right qdisc add dev vr root netem delay 20ms; then
  ranks 60 once 20
  check "with 20 ms between them: $(sed -n 's/.*on left: //p' "$work/out")" both
  for end in "$left vl" "$right vr"; do tc -n ${end% *} qdisc del dev ${end#* } root; done
else
  echo "SKIPPED latency: the kernel has no netem"
fi
(sleep 6; ip -n $right link set vr down) &
began=$(date +%s)
ranks 90 on 4
status=$?
took=$(($(date +%s) - began))
check "the link is cut: status $status after $took s" ended
check 'and the rank that is not reached has a name' grep -Eq 'rank [12] (did not come|fell silent)' "$work/out"
wait
# On this side every process ends; behind the cut link every rank: Open MPI's daemon there may wait for longer
left_over() {
  ip netns pids $left
  for p in $(ip netns pids $right); do tr '\0' ' ' </proc/"$p"/cmdline 2>/dev/null | grep program.lua; done
}
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do [ -z "$(left_over)" ] || sleep 2; done # they notice by themselves
check 'no process is left here, and no rank there' [ -z "$(left_over)" ]
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
