#!/bin/sh
# Everything that shows amp works: set-up, build, C tests, specs, lint, manual.
#
#   sh spec/run.sh                    all of it
#   sh spec/run.sh STAGE...           setup build ctest specs isa asan emulator tsan fuzz lint snippets kernels
#   sh spec/run.sh spec/x_spec.lua    one file (in the release build)
#
# Ends with `N passed, N failed`; non-zero if anything failed or did not run.
# With CI in the environment, a compiler's warning is an error.
# Missing packages are installed by the system's package manager, as root or by
# sudo without a password; otherwise the command to type is printed.
set -u
cd "$(dirname "$0")/.." || exit 1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
jobs=$(nproc 2>/dev/null || echo 2)
total_passed=0
total_failed=0
log=$(mktemp "${TMPDIR:-/tmp}/amp-spec.XXXXXX")
trap 'rm -f "$log"' EXIT

say() { printf '\n== %s\n' "$*"; }
add() { total_passed=$((total_passed + $1)); total_failed=$((total_failed + $2)); }
finish() {
  printf '\n%d passed, %d failed\n' "$total_passed" "$total_failed"
  [ "$total_failed" -eq 0 ] && [ "$total_passed" -gt 0 ]
  exit
}
# add the `N passed, N failed` at the end of the log; a run without one failed
tally() { # name, exit status
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
  if [ -z "$line" ]; then
    printf '%s did not come to its end (status %s)\n' "$1" "$2"
    add 0 1
    return
  fi
  p=${line%% *}
  f=${line#*, }
  f=${f%% *}
  if [ "$2" -ne 0 ] && [ "$f" -eq 0 ]; then
    printf '%s ended with status %s\n' "$1" "$2"
    f=1
  fi
  add "$p" "$f"
}

# -- Set-up ------------------------------------------------------------------
missing() {
  for tool in luajit busted luacheck luarocks cmake make cc lua5.1; do # make is what luarocks builds with
    command -v "$tool" >/dev/null 2>&1 || printf '%s ' "$tool"
  done
}
install_command() { # $1 is 'sudo ' or nothing
  if command -v apt-get >/dev/null 2>&1; then
    # left out only where the package lists are there and do not know them: libraries that make amp faster, and
    # what the specs of C programs compile with
    more=''
    for package in libdnnl-dev libopenblas-dev libluajit-5.1-dev pkg-config g++; do
      if ! apt-cache show gcc >/dev/null 2>&1 || apt-cache show "$package" >/dev/null 2>&1; then more="$more $package"; fi
    done
    printf '%s' "$1apt-get update; $1apt-get install -y --no-install-recommends luajit lua5.1 lua-busted lua-check luarocks cmake make gcc libc6-dev zlib1g$more"
  elif command -v dnf >/dev/null 2>&1; then
    printf '%s' "$1dnf install -y luajit compat-lua luarocks cmake make gcc gcc-c++ libasan libubsan libtsan zlib onednn-devel openblas-devel luajit-devel pkgconf && $1luarocks --lua-version=5.1 install busted && $1luarocks --lua-version=5.1 install luacheck"
  elif command -v pacman >/dev/null 2>&1; then
    printf '%s' "$1pacman -S --needed --noconfirm luajit lua51 lua51-busted luacheck luarocks cmake make gcc onednn openblas pkgconf"
  else
    printf '%s' '(no known package manager; needed: luajit lua5.1 busted luacheck luarocks cmake make and a C compiler)'
  fi
}
setup() {
  lack=$(missing)
  [ -z "$lack" ] && return 0
  say "installing what is missing: $lack"
  sudo=''
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 && sudo='sudo '
    if [ -z "$sudo" ] || ! sudo -n true 2>/dev/null; then
      printf 'Please run as root, then start again:\n  %s\n' "$(install_command "$sudo")"
      add 0 1
      finish
    fi
  fi
  command=$(install_command "$sudo")
  printf '%s\n' "$command"
  DEBIAN_FRONTEND=noninteractive sh -c "$command" </dev/null >"$log" 2>&1 || tail -n 20 "$log"
  lack=$(missing)
  if [ -n "$lack" ]; then
    printf 'still missing: %s\n' "$lack"
    add 0 1
    finish
  fi
}

# -- Build -------------------------------------------------------------------
generator() { command -v ninja >/dev/null 2>&1 && printf '%s' '-GNinja'; }
compile() { # folder, options
  dir=$1
  shift
  gen=$(generator)
  # a folder that came along when the tree was copied or moved is of no use
  [ -f "$dir/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "$dir/CMakeCache.txt" &&
    rm -rf "$dir"
  [ -f "$dir/CMakeCache.txt" ] && gen=''
  # shellcheck disable=SC2086
  cmake -S . -B "$dir" $gen -DAMP_WERROR="${CI:+ON}" "$@" >"$log" 2>&1 && cmake --build "$dir" -j "$jobs" >>"$log" 2>&1
  status=$?
  if [ $status -ne 0 ]; then
    tail -n 60 "$log"
    add 0 1
    return 1
  fi
  add 1 0
}
release_done=
build_release() {
  [ -n "$release_done" ] && return 0
  say 'build'
  compile build -DCMAKE_BUILD_TYPE=Release || finish
  release_done=1
}
sanitized_done=
build_sanitized() {
  [ -n "$sanitized_done" ] && return 0
  say 'build with AddressSanitizer and UBSan'
  compile build-asan -DCMAKE_BUILD_TYPE=Release -DAMP_SANITIZE=ON -DAMP_TESTS=ON -DAMP_CUDA=OFF -DAMP_EMULATOR=OFF || finish
  sanitized_done=1
}

# -- Stages ------------------------------------------------------------------
stage_ctest() {
  build_sanitized
  say 'C tests'
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir build-asan --output-on-failure >"$log" 2>&1
  status=$?
  counts=$(sed -n 's/.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\).*/\1 \2/p' "$log" | tail -n 1)
  if [ -z "$counts" ]; then
    cat "$log"
    add 0 1
    return
  fi
  [ $status -eq 0 ] || cat "$log"
  f=${counts% *}
  n=${counts#* }
  printf '%d of %d C tests passed\n' $((n - f)) "$n"
  add $((n - f)) "$f"
}
# A spec's command. One that is still there after SPEC_LIMIT seconds is told and run once more: where a trace joins that of a
# `pairs` loop, LuaJIT as Debian 12 has it may go round for ever (seen once, with no call into amp in the loop).
bounded() {
  timeout -k 5 "${SPEC_LIMIT:-600}" "$@" >"$log" 2>&1 </dev/null
  status=$?
  [ $status -eq 124 ] || [ $status -eq 137 ] || return 0
  printf 'hung, run again: %s\n' "$*"
  timeout -k 5 "${SPEC_LIMIT:-600}" "$@" >"$log" 2>&1 </dev/null
  status=$?
}
run_spec() { # file; each has a process of its own, so a crash costs one file
  bounded luajit spec/run.lua "$1"
  grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$log"
  tally "$1" "$status"
}
stage_specs() {
  build_release
  say 'specs'
  for file in spec/*_spec.lua; do run_spec "$file"; done
}
stage_isa() { # the numeric specs on what a smaller processor has; the kernels of LAPACK are OpenBLAS's of the machine
  build_release
  say 'kernels for AVX2 and for any x86-64'
  for what in avx2:ops avx2:linalg baseline:linalg baseline:nn_norm baseline:nn_conv baseline:nn_pool baseline:nn_loss baseline:nn_rnn baseline:nn_attention baseline:optim; do
    bounded env AMP_CPU_ISA="${what%:*}" luajit spec/run.lua "spec/${what#*:}_spec.lua"
    grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$log"
    tally "spec/${what#*:}_spec.lua, AMP_CPU_ISA=${what%:*}" "$status"
  done
}
stage_asan() {
  build_sanitized
  say 'specs under AddressSanitizer and UBSan'
  asan=$(cc -print-file-name=libasan.so)
  for file in spec/*_spec.lua; do
    case $file in
      */memory_spec.lua | */onednn_throw_spec.lua | */quickstart_spec.lua | */install_spec.lua | */embed_spec.lua | */extend_spec.lua | */print_spec.lua | */policy_spec.lua) continue ;; # nothing new there
      */data_workers_spec.lua | */data_process_spec.lua) continue ;; # it forks, and asks ps, which hangs beside a preloaded sanitizer
    esac
    bounded env AMP_BUILD=build-asan AMP_SPEC_SANITIZED=1 LD_PRELOAD="$asan" \
      ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
      luajit spec/run.lua "$file"
    grep -vE '^[0-9]+ passed, [0-9]+ failed$|AddressSanitizer failed to allocate' "$log"
    tally "$file (sanitized)" "$status"
  done
}
stage_tsan() { # states in several threads: of the C tests, and the example's Lua states against an installed library
  say 'threads under ThreadSanitizer'
  dir=build-tsan
  printf 'int main(void) { return 0; }\n' | cc -fsanitize=thread -x c - -o "$log.exe" 2>"$log" && "$log.exe" >>"$log" 2>&1
  status=$?
  rm -f "$log.exe"
  if [ $status -ne 0 ]; then # no library for it, or an address space that it can't handle
    printf 'ThreadSanitizer does not work here: %s\n' "$(tail -n 1 "$log")"
    return 0
  fi
  [ -f $dir/CMakeCache.txt ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" $dir/CMakeCache.txt && rm -rf $dir
  gen=''
  [ -f $dir/CMakeCache.txt ] || gen=$(generator)
  # shellcheck disable=SC2086
  if ! { cmake -S . -B $dir $gen -DAMP_SANITIZE=THREAD -DAMP_TESTS=ON -DAMP_ONEDNN=OFF -DAMP_LAPACK=OFF -DAMP_CUDA=OFF &&
         cmake --build $dir -j "$jobs" --target amp test_states && cmake --install $dir --prefix $dir/installed; } >"$log" 2>&1; then
    tail -n 60 "$log"
    add 0 1
    return
  fi
  if $dir/test_states >"$log" 2>&1; then add 1 0; else cat "$log"; add 0 1; fi
  pc=$(find "$(pwd -P)/$dir/installed" -name amp.pc)
  if ! pkg-config --exists luajit 2>/dev/null; then
    printf 'no luajit library or pkg-config: two_states.c not built\n'
    return
  fi
  # shellcheck disable=SC2046
  cc -std=gnu11 -g -O1 -fsanitize=thread examples/embed/two_states.c $(PKG_CONFIG_PATH="${pc%/*}" pkg-config --cflags --libs amp luajit) \
    -pthread -lm -o $dir/two_states >"$log" 2>&1 &&
    LUA_PATH="$dir/installed/share/lua/5.1/?.lua;$dir/installed/share/lua/5.1/?/init.lua;;" \
      LUA_CPATH="$(dirname "$(dirname "$(find $dir/installed -name libamp.so)")")/?.so;;" $dir/two_states >>"$log" 2>&1
  if [ $? -eq 0 ]; then add 1 0; else cat "$log"; add 0 1; fi
}
stage_fuzz() { # random calls and damaged files, plain and under the sanitizers; more: luajit spec/fuzz.lua CALLS SEED, spec/fuzz_readers.lua
  build_release
  build_sanitized
  say 'random calls of every op'
  luajit spec/fuzz.lua 40000 1 >"$log" 2>&1 </dev/null
  status=$?
  grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$log"
  tally 'fuzz' "$status"
  AMP_BUILD=build-asan AMP_SPEC_SANITIZED=1 LD_PRELOAD="$(cc -print-file-name=libasan.so)" \
    ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    luajit spec/fuzz.lua 40000 2 >"$log" 2>&1 </dev/null
  status=$?
  grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$log"
  tally 'fuzz (sanitized)' "$status"
  say 'damaged files for every reader'
  luajit spec/fuzz_readers.lua 1500 1 >"$log" 2>&1 </dev/null
  status=$?
  grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$log"
  tally 'fuzz of readers' "$status"
  AMP_BUILD=build-asan AMP_SPEC_SANITIZED=1 LD_PRELOAD="$(cc -print-file-name=libasan.so)" \
    ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    luajit spec/fuzz_readers.lua 500 2 >"$log" 2>&1 </dev/null
  status=$?
  grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$log"
  tally 'fuzz of readers (sanitized)' "$status"
}
stage_lint() {
  say 'luacheck'
  luacheck lua spec examples lua/bin/amp --formatter plain -q >"$log" 2>&1
  bad=$(sed -n 's/^\([^:]*\):[0-9].*/\1/p' "$log" | sort -u | wc -l)
  n=$(find lua spec examples -name '*.lua' | wc -l)
  grep -v '^Total' "$log"
  if ! luacheck --version >/dev/null 2>&1; then bad=1; fi
  add $((n - bad)) "$bad"
}
stage_snippets() {
  build_release
  say 'snippets of README.md and examples/guide'
  luajit spec/snippets.lua README.md examples/guide/*.md >"$log" 2>&1 </dev/null
  status=$?
  grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$log"
  tally 'snippets' "$status"
}
stage_emulator() { # the table's rows through the CUDA plug-in's own kernels, on a CPU
  build_release
  if [ ! -f build/emulated/libamp_cuda.so ]; then
    printf 'no C++ compiler: the CUDA plug-in is not emulated\n'
    return 0
  fi
  say 'ops on the emulated GPU'
  SPEC_LIMIT="${SPEC_LIMIT:-1500}" # every case runs threads of a card one after the other
  bounded env AMP_PLUGIN_DIR=build/emulated AMP_SPEC_DEVICE=cuda luajit spec/run.lua spec/ops_spec.lua
  grep -vE '^[0-9]+ passed, [0-9]+ failed$' "$log"
  tally 'ops on the emulated GPU' "$status"
}
stage_kernels() { # what a compiler of CUDA makes of them says the build; this is what nvcc 13.0 gets wrong without a word
  say 'CUDA kernels'
  for file in kernels/*.cu kernels/*.cuh; do # "if constexpr (...) statement; else" before a pragma, without braces
    if awk '/if constexpr/ && !/\{ *(\/\*.*)?$/ { open = 1 } open && /^ *else *$/ { getline next_line; if (next_line ~ /#pragma/) { print FILENAME ": line " FNR ": an unbraced if constexpr whose else begins with a pragma"; bad = 1 } open = 0 } /;/ && !/if constexpr/ { open = 0 } END { exit bad }' "$file"
    then add 1 0; else add 0 1; fi
  done
  if command -v nvcc >/dev/null 2>&1 || [ -x /usr/local/cuda/bin/nvcc ]; then
    if [ -f build/amp/libamp_cuda.so ]; then add 1 0; else printf 'nvcc is here, and no libamp_cuda.so was built\n'; add 0 1; fi
  fi
}

setup
[ $# -eq 0 ] && set -- ctest specs isa asan emulator tsan fuzz lint snippets kernels
for what in "$@"; do
  case $what in
    setup) ;;
    build) build_release; build_sanitized ;;
    ctest) stage_ctest ;;
    specs) stage_specs ;;
    isa) stage_isa ;;
    asan) stage_asan ;;
    tsan) stage_tsan ;;
    fuzz) stage_fuzz ;;
    emulator) stage_emulator ;;
    lint) stage_lint ;;
    snippets) stage_snippets ;;
    kernels) stage_kernels ;;
    *_spec.lua) build_release; run_spec "$what" ;;
    *) printf 'no stage %s: setup build ctest specs isa asan emulator tsan fuzz lint snippets kernels, or a spec file\n' "$what"; add 0 1 ;;
  esac
done
finish
