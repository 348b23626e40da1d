#!/bin/sh
# Runs every claim beside its PyTorch twin and prints ratios (theirs / ours: above 1 we are faster).
#   sh examples/bench/run.sh [claim ...]     PYTHON=python3 with torch, BENCH_THREADS=1 or 2
# Timings are wall time, the best of interleaved runs; on a machine that does other work trust the ratios only.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${AMP_BUILD:-$root/build}
python=${PYTHON:-python3}
threads=${BENCH_THREADS:-$(nproc)}
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export OMP_NUM_THREADS="$threads" LUA_PATH="$root/lua/?.lua;$root/lua/?/init.lua;$here/?.lua;;" AMP_LIBRARY="$build/amp/libamp.so"
export AMP_BENCH_DATA="$root/examples/data" AMP_BUILD_DIR="$build"
[ -f "$AMP_LIBRARY" ] || { echo "no $AMP_LIBRARY: build first (cmake -S . -B build && cmake --build build)"; exit 1; }

echo "cpu: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), threads: $threads"
luajit -e 'local amp = require "amp"; print("amp " .. amp.version() .. ", " .. jit.version)'
luajit -e 'local a = require "amp"; print("oneDNN: " .. require("ffi").string(require("amp.ffi").C.amp_plugin_info("onednn")))'
if "$python" -c 'import torch' 2>/dev/null; then
  "$python" -c 'import torch
print("torch", torch.__version__, "threads", torch.get_num_threads())
import re
config = torch.__config__.show()
print("BLAS", *re.findall(r"BLAS_INFO=(\w+)", config), "MKL-DNN", *re.findall(r"MKL-DNN (v[0-9.]+)", config))'
  peer=1
else
  echo "no PyTorch for $python: only our own numbers (set PYTHON)"
  peer=0
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
claims=${*:-tiny_ops tiny_ops_joff mlp64 bf16_mlp digits matmul_conv startup memory autocast_off graph_runner ops}
for claim in $claims; do
  file=$claim flags=''
  case $claim in tiny_ops_joff) file=tiny_ops flags=-joff ;; esac
  : >"$out/ours"; : >"$out/theirs"
  runs=1
  [ -f "$here/$file.py" ] && [ $peer = 1 ] && [ "$claim" != ops ] && runs=3
  i=0
  while [ $i -lt $runs ]; do
    luajit $flags "$here/$file.lua" >>"$out/ours" || { echo "$claim: failed"; break; }
    if [ -f "$here/$file.py" ] && [ $peer = 1 ]; then "$python" "$here/$file.py" >>"$out/theirs" || break; fi
    i=$((i + 1))
  done
  luajit "$here/ratios.lua" "$claim" "$out/ours" "$out/theirs"
done
