#!/bin/sh
# Builds amp for the GPUs of this machine and runs on them what needs one:
#   sh spec/gpu.sh [build | ops | specs | sanitize | bench ...]     (default: build ops specs)
# BUILD: the build folder (default: build-gpu). FILTER: busted's --filter for ops. Results go to standard output.
# Ends with a line `N steps passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$(pwd)
BUILD=${BUILD:-$root/build-gpu}
export AMP_BUILD="$BUILD" AMP_LIBRARY="$BUILD/amp/libamp.so"
export LUA_PATH="$root/lua/?.lua;$root/lua/?/init.lua;$root/?.lua;${LUA_PATH:-;}"
passed=0
failed=0

step() { # name, command...
  name=$1
  shift
  echo "== $name"
  if "$@"; then passed=$((passed + 1)); else echo "FAILED: $name"; failed=$((failed + 1)); fi
}

build() {
  # shellcheck disable=SC2086
  if cmake -S . -B "$BUILD" -G Ninja -DAMP_CUDA=ON -DAMP_EMULATOR=OFF ${CMAKE_FLAGS:-} >"$BUILD.log" 2>&1 &&
    ninja -C "$BUILD" >>"$BUILD.log" 2>&1; then return 0; fi
  tail -40 "$BUILD.log"
  return 1
}
ops() { AMP_SPEC_DEVICE=cuda luajit spec/run.lua ${FILTER:+--filter="$FILTER"} spec/ops/ops_spec.lua; }
specs() { for f in spec/device/gpu/*_spec.lua spec/ops/nn_attention_dropout_spec.lua; do luajit spec/run.lua "$f" || return 1; done; }
scripts() { for f in spec/device/gpu/*.lua; do case $f in *_spec.lua) ;; *) luajit "$f" || return 1 ;; esac; done; }
# The walk over all ops under compute-sanitizer, in shards by name, side by side: sizes are small, so the card has room for all.
# Neither busted nor compiled Lua runs there; spec/lib/plain.lua with -joff does. TOOLS: which; LIMIT: seconds for a shard; SHARDS: which.
shards=${SHARDS:-'a b[a-h] b[i-z] c[a-h] c[i-o] c[p-z] d e f[a-k] f[l-z] [gh] [ijk] l[a-i] l[j-z] m[a-d] m[e-i] m[j-z] n[a-k] n[l-z] [opq] r[a-d] r[e-z] s[a-h] s[i-p] s[q-z] t [u-z]'}
sanitize() {
  bad=0
  set -f # the shards are patterns of names, not of files
  for tool in ${TOOLS:-memcheck racecheck initcheck}; do
    for p in $shards; do
      (AMP_SPEC_DEVICE=cuda AMP_SPEC_PROGRESS=10 timeout "${LIMIT:-400}" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 luajit -joff spec/lib/plain.lua --filter="^amp%.$p" spec/ops/ops_spec.lua >"$BUILD.$tool.$p.log" 2>&1
       echo "$?" >"$BUILD.$tool.$p.status") &
    done
    wait
    for p in $shards; do
      status=$(cat "$BUILD.$tool.$p.status")
      echo "$tool amp.$p: $(grep -E 'passed|SUMMARY' "$BUILD.$tool.$p.log" | tail -2 | tr '\n' ' ')status $status"
      [ "$status" = 0 ] || { bad=1; grep -vE '^=+ *(Saved|Host Frame|$)' "$BUILD.$tool.$p.log" | head -30; }
    done
  done
  set +f
  return $bad
}
bench() { luajit examples/bench/gpu/targets.lua && luajit examples/bench/kernels/ladder.lua && luajit examples/bench/gpu/curves.lua; }

[ $# -eq 0 ] && set -- build ops specs
for what in "$@"; do step "$what" "$what"; done
echo "$passed steps passed, $failed failed"
[ $failed -eq 0 ]
