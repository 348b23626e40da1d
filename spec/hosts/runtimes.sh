#!/bin/sh
# amp on other runtimes than this machine's own: sh spec/hosts/runtimes.sh [NAMES | table | readme]
#
#   debian    Debian's LuaJIT                    rolling   LuaJIT 2.1 of today: LUAJIT_ROLLING names its executable
#   openresty OpenResty's fork, Debian's luajit2 joff      Debian's with -joff
#   nojit     without its compiler               nogc64    without GC64: one warning
#   arm64     cross-built, under qemu            musl      static musl-gcc world: plain kernels, no OpenMP
#   clang     the library built by clang
#
# Without names: all. `table` only prints what is recorded, `readme` puts that into README.md. Each runtime is a function; it leaves a row in
# $ROOTS/runtimes (ROOTS: /tmp/amp-hosts), and what was fetched and built stays there, so a run that was cut off goes on.
# On Debian, x86-64, with deb.debian.org's lists in reach: packages are unpacked into ROOTS, never installed. arm64 wants
# gcc-aarch64-linux-gnu and qemu-user-static, musl wants musl-tools, clang clang; what lacks is a row `not run`.
# PROGRAM=folder of a checkout of char-rnn runs that Torch7 program too, by amp.torch7; TEXT=file is what it learns.
# Times mean nothing here: this shows what works.
set -eu
cd "$(dirname "$0")/../.."
tree=$PWD
roots=${ROOTS:-/tmp/amp-hosts}
rows=$roots/runtimes
build=${AMP_BUILD:-$tree/build}
case $build in /*) ;; *) build=$tree/$build ;; esac
names='debian rolling openresty joff nojit nogc64 arm64 musl clang'
jobs=${JOBS:-2}
export OMP_NUM_THREADS=1
mkdir -p "$rows"

# A few of each family: handles and errors, regions in coroutines, casts, scalers, gradients, optimizers, files, graphs, ops
specs='unit/tensor unit/handle unit/indexing unit/state unit/regions_host precision/autocast precision/cast_cache precision/scaler
train/autograd train/optim data/safetensors data/data_draws graph/trace graph/compile'
few='unit/tensor unit/handle unit/indexing unit/state precision/autocast precision/cast_cache precision/scaler train/autograd train/optim
data/safetensors graph/compile' # under emulation, which takes ten times as long
ops='amp%.log_softmax'

# -- Parts ---------------------------------------------------------------------
say() { printf '== %s\n' "$*"; }
row() { # name, title, what was run, result
  printf '| %s | %s | %s |\n' "$2" "$3" "$4" >"$rows/$1.row"
  cat "$rows/$1.row"
}
lacks() { # name, title, what is not here
  row "$1" "$2" '-' "not run: $3"
}
has() { command -v "$1" >/dev/null 2>&1; }
tally() { awk '/^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3; n++ } END { printf "%d passed, %d failed", p, f; exit !n }' "$1"; }

# apt with lists of its own, of one architecture: nothing of the machine's changes
apt() { # architecture, arguments
  place=$roots/apt-$1
  arch=$1
  shift
  if [ ! -f "$place/list" ]; then
    mkdir -p "$place/lists/partial" "$place/cache/archives/partial"
    # shellcheck disable=SC1091
    suite=$(. /etc/os-release; echo "$VERSION_CODENAME")
    printf 'deb http://deb.debian.org/debian %s main\ndeb-src http://deb.debian.org/debian %s main\n' "$suite" "$suite" >"$place/list.new"
    apt_get -q update >"$place/log" 2>&1
    mv "$place/list.new" "$place/list"
  fi
  apt_get -q "$@" >"$place/log" 2>&1
}
apt_get() {
  list=$place/list
  [ -f "$list" ] || list=$place/list.new
  apt-get -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$place/lists" \
    -o Dir::State::status=/dev/null -o Dir::Cache="$place/cache" -o APT::Architecture="$arch" -o APT::Architectures="$arch" \
    -o APT::Sandbox::User=root "$@"
}

# Debian's LuaJIT built from its source package as `name`, make's arguments after it
luajit_of_source() {
  name=$1
  shift
  [ -x "$roots/luajit-$name/src/luajit" ] && return 0
  if ! ls -d "$roots"/source/luajit-*/ >/dev/null 2>&1; then
    mkdir -p "$roots/source"
    (cd "$roots/source" && apt amd64 source luajit)
  fi
  rm -rf "$roots/luajit-$name"
  cp -r "$roots"/source/luajit-*/ "$roots/luajit-$name"
  make -C "$roots/luajit-$name/src" -j"$jobs" "$@" >"$roots/luajit-$name.log" 2>&1
}

# A folder whose `luajit` is the command given: scripts and the children of specs find that one
front() { # name, command
  mkdir -p "$roots/bin-$1"
  printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$roots/bin-$1/luajit"
  chmod +x "$roots/bin-$1/luajit"
}

# Everything that a runtime is asked: the quickstart, specs, a program of others. Leaves $asked and $answered.
ask() { # name, folder of the build, precisions, files of specs, pattern of ops, steps of the quickstart if not an epoch
  bin=$roots/bin-$1
  log=$rows/$1.log
  version=$(PATH="$bin:$PATH" luajit -e 'print(table.concat({jit.version, jit.arch}, ", "))')
  say "$1: $version"
  lua_path="$tree/lua/?.lua;$tree/lua/?/init.lua;;"
  grep -q '^| [bf].*float[0-9]* *|' "$log.quickstart" 2>/dev/null || env PATH="$bin:$PATH" LUA_PATH="$lua_path" AMP_LIBRARY="$2/amp/libamp.so" luajit examples/quickstart.lua --epochs 1 --quiet --precision "$3" --data "$digits" \
    ${6:+--stop-after "$6" --checkpoint "$log.amp"} >"$log.quickstart" 2>&1 || true
  warnings=$(grep -c '^amp: warning: ' "$log.quickstart" || true)
  accuracy=$(awk -F'|' '/^\| (float|bfloat)/ { gsub(/ /, "", $3); printf "%s%s", s, $3; s = ", " }' "$log.quickstart")
  if [ ! -f "$log.whole" ]; then
    : >"$log"
    for spec in $4; do ask_spec "$2" "$spec"; done
    [ -z "$5" ] || ask_spec "$2" ops/ops --filter="$5"
    : >"$log.whole"
  fi
  broken=$(sed -n 's/^BROKEN: //p' "$log" | tr '\n' ' ')
  asked="quickstart, ${6:-one epoch}${6:+ steps} ($(echo "$3" | sed 's/,/, /g')); $(echo "$4" | wc -w) spec files$([ -z "$5" ] || echo ' and a sample of ops')"
  answered="${accuracy:-no result}; $(tally "$log" || echo ', no specs')${broken:+ (in $broken)}"
  [ "$warnings" = 0 ] || answered="$answered; warnings: $warnings"
  [ -z "${PROGRAM:-}" ] || ask_program "$1" "$2"
}
ask_spec() { # folder of the build, spec, options; luassert is where Debian has it
  folder=$1 spec=$2
  shift 2
  env PATH="$bin:$PATH" AMP_BUILD="$folder" LUA_CPATH="$folder/?.so;;" LUA_PATH="$lua_path/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/?/init.lua" \
    timeout "${SPEC_LIMIT:-900}" luajit spec/lib/plain.lua "$@" "spec/${spec}_spec.lua" >>"$log" 2>&1 || echo "BROKEN: $spec" >>"$log"
}
ask_program() {
  mkdir -p "$roots/text-$1"
  rm -f "$roots/text-$1"/*.t7
  head -c 8000 "${TEXT:-$PROGRAM/data/tinyshakespeare/input.txt}" >"$roots/text-$1/input.txt"
  (cd "$PROGRAM" && env PATH="$bin:$PATH" LUA_PATH="$lua_path" AMP_LIBRARY="$2/amp/libamp.so" timeout 900 luajit -e "require 'amp.torch7'.install()" train.lua \
    -data_dir "$roots/text-$1" -rnn_size 16 -num_layers 1 -seq_length 10 -batch_size 10 -max_epochs 1 -gpuid -1 -train_frac 0.9 -val_frac 0.05 \
    -checkpoint_dir "$roots/text-$1" -print_every 20 -seed 3 >"$log.program" 2>&1) || true
  loss=$(sed -n 's/^saving checkpoint to .*_\([0-9.]*\)\.t7$/\1/p' "$log.program")
  asked="$asked; char-rnn"
  answered="$answered; char-rnn's loss ${loss:-missing}"
}
library() { # the release build of this machine
  [ -f "$build/amp/libamp.so" ] || { echo "there is no $build/amp/libamp.so; build first" >&2; exit 1; }
}
all=bfloat16,float16
digits=examples/data

# -- Runtimes --------------------------------------------------------------------
run_debian() {
  library
  front debian "$(command -v luajit)"
  ask debian "$build" $all "$specs" "$ops"
  row debian "$version" "$asked" "$answered"
}
run_rolling() {
  library
  [ -x "${LUAJIT_ROLLING:-}" ] || { lacks rolling 'LuaJIT 2.1, rolling' 'LUAJIT_ROLLING names no executable'; return; }
  front rolling "$LUAJIT_ROLLING"
  ask rolling "$build" $all "$specs" "$ops"
  row rolling "$version" "$asked" "$answered"
}
run_openresty() {
  library
  if [ ! -x "$roots/openresty/usr/bin/luajit" ]; then
    mkdir -p "$roots/openresty"
    (cd "$roots/openresty" && apt amd64 download luajit2 libluajit2-5.1-2 && for package in *.deb; do dpkg -x "$package" .; done)
  fi
  front openresty "env LD_LIBRARY_PATH=$roots/openresty/usr/lib/x86_64-linux-gnu $roots/openresty/usr/bin/luajit"
  ask openresty "$build" $all "$specs" "$ops"
  row openresty "$version (OpenResty's)" "$asked" "$answered"
}
run_joff() {
  library
  front joff "$(command -v luajit) -joff"
  ask joff "$build" $all "$specs" ''
  row joff "$version: \`-joff\`" "$asked" "$answered"
}
run_nojit() {
  library
  luajit_of_source nojit XCFLAGS=-DLUAJIT_DISABLE_JIT
  front nojit "$roots/luajit-nojit/src/luajit"
  ask nojit "$build" $all "$specs" ''
  row nojit "$version: \`-DLUAJIT_DISABLE_JIT\`" "$asked" "$answered"
}
run_nogc64() {
  library
  luajit_of_source nogc64 XCFLAGS=-DLUAJIT_DISABLE_GC64
  front nogc64 "$roots/luajit-nogc64/src/luajit"
  ask nogc64 "$build" $all "$specs" "$ops"
  [ "$warnings" = 1 ] || answered="$answered (one was to be)"
  row nogc64 "$version: \`-DLUAJIT_DISABLE_GC64\`" "$asked" "$answered"
}

build_with() { # folder, targets, cmake's arguments
  place=$1 targets=$2
  shift 2
  # shellcheck disable=SC2086
  cmake -S . -B "$place" -DAMP_CUDA=OFF -DAMP_MPI=OFF -DAMP_ONEDNN=OFF -DAMP_LAPACK=OFF -DAMP_EMULATOR=OFF -DAMP_TESTS=ON -DAMP_WERROR=ON "$@" >"$place.log" 2>&1 &&
    cmake --build "$place" -j "$jobs" --target $targets >>"$place.log" 2>&1
}
c_tests='test_alloc test_view test_kernels test_nn_kernels'
run_c_tests() { # name, folder, what runs them
  : >"$rows/$1.ctest"
  for test in $c_tests; do AMP_ONEDNN=0 $3 "$2/$test" >>"$rows/$1.ctest" 2>&1 || echo "FAILED: $test" >>"$rows/$1.ctest"; done
  asked="C tests; $asked"
  answered="$(tally "$rows/$1.ctest" || echo 'no result'); $answered"
}

run_arm64() {
  for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    has $tool || { lacks arm64 'Linux on arm64' "$tool is not here"; return; }
  done
  if [ ! -x "$roots/arm64/usr/bin/luajit" ]; then
    mkdir -p "$roots/arm64"
    apt arm64 --yes --download-only --no-install-recommends install luajit libgomp1
    for package in "$roots"/apt-arm64/cache/archives/*.deb; do dpkg -x "$package" "$roots/arm64"; done
  fi
  build_with "$roots/build-arm64" "amp $c_tests" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc ||
    { row arm64 'Linux on arm64' 'build' "failed: $roots/build-arm64.log"; return; }
  front arm64 "qemu-aarch64-static -L $roots/arm64 $roots/arm64/usr/bin/luajit"
  ask arm64 "$roots/build-arm64" bfloat16 "$few" "$ops" 4
  run_c_tests arm64 "$roots/build-arm64" "qemu-aarch64-static -L $roots/arm64"
  row arm64 "$version, emulated" "$asked" "$answered"
}
run_musl() {
  has musl-gcc || { lacks musl 'musl' 'musl-gcc is not here'; return; }
  luajit_of_source musl CC=musl-gcc XCFLAGS=-DLUAJIT_NO_UNWIND # libgcc's unwinder wants glibc
  build_with "$roots/build-musl" "amp $c_tests" -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON -DCMAKE_C_FLAGS_RELEASE="${MUSL_FLAGS:--O2}" ||
    { row musl 'musl' 'build' "failed: $roots/build-musl.log"; return; }
  front musl "$roots/luajit-musl/src/luajit"
  digits=$roots/digits # unpacked: the machine's zlib is not musl's
  mkdir -p "$digits"
  for file in examples/data/*.gz; do gunzip -c "$file" >"$digits/$(basename "$file" .gz)"; done
  ask musl "$roots/build-musl" $all "$specs" ''
  run_c_tests musl "$roots/build-musl" ''
  row musl "$version, musl, no OpenMP" "$asked" "$answered"
  digits=examples/data
}
run_clang() {
  has clang || { lacks clang 'library built by clang' 'clang is not here'; return; }
  build_with "$roots/build-clang" "amp $c_tests" -DCMAKE_C_COMPILER=clang ||
    { row clang 'library built by clang' 'build' "failed: $roots/build-clang.log"; return; }
  front clang "$(command -v luajit)"
  ask clang "$roots/build-clang" $all "$specs" ''
  run_c_tests clang "$roots/build-clang" ''
  row clang "$version, library by $(clang --version | sed -n '1s/.*\(clang version [0-9.]*\).*/\1/p')" "$asked" "$answered"
}

table() {
  printf '| runtime | what was run | result |\n| --- | --- | --- |\n'
  for name in $names; do [ ! -f "$rows/$name.row" ] || cat "$rows/$name.row"; done
}

readme() { # between the line that begins README's table and the next empty one
  table >"$rows/table"
  awk -v from="$rows/table" '
    /^\| runtime \| what was run \|/ { while ((getline line < from) > 0) print line; old = 1 }
    /^$/ { old = 0 }
    !old' README.md >"$rows/README.md"
  cat "$rows/README.md" >README.md
}

case ${1:-} in table | readme) "$1"; exit ;; esac
[ $# -gt 0 ] || eval "set -- $names"
for name; do
  case " $names " in *" $name "*) ;; *) echo "no runtime $name: $names" >&2; exit 1 ;; esac
  if [ "${AGAIN:-}" = '' ] && [ -f "$rows/$name.row" ]; then continue; fi
  [ "${AGAIN:-}" = '' ] || rm -f "$rows/$name".log*
  "run_$name"
  rm -f "$rows/$name.log.whole" "$rows/$name.log.quickstart" # what a run that is cut off has done stays for the next
done
table
# Something failed where a row says so
! grep -Eq '[1-9][0-9]* failed|no result|no specs|missing|\(in |: failed|one was to be' "$rows"/*.row
