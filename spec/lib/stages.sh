# shellcheck shell=sh disable=SC2154,SC2086
# The stages of spec/run.sh, which reads this file in the process of each stage. Given: work, folder (the stage's own),
# log, times, jobs, say, add, note, skip, skipped.

# a stage that is told to end takes the spec that it runs along
running=''
trap '[ -n "$running" ] && kill "$running" 2>/dev/null; exit 143' INT TERM HUP

# add the `N passed, N failed` at the end of the log; a run without one failed
tally() { # name, exit status
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
  if [ -z "$line" ]; then
    printf '%s did not come to its end (status %s)\n' "$1" "$2"
    add 0 1
    note "$1 did not come to its end (status $2) in: $(sed "s,   *$,,;q" "$folder/now" 2>/dev/null)" 40
    tail -n 25 "$log" | cut -c1-300 >>"$folder/failures"
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
  [ "$f" -eq 0 ] || note "$1: $f failed"
}
# A command that ends with such a line. One that is still there after SPEC_LIMIT seconds is told and run once more: where a
# trace joins that of a `pairs` loop, LuaJIT as Debian 12 has it may go round for ever (seen once, with no call into amp in
# the loop).
bounded() { # name, command
  name=$1
  shift
  began=$(date +%s)
  once "$@"
  if [ $status -eq 124 ] || [ $status -eq 137 ]; then
    printf 'hung, run again: %s\n' "$name"
    once "$@"
  fi
  printf '%5d %s\n' $(($(date +%s) - began)) "$name" >>"$times"
  grep -vE '^[0-9]+ passed, [0-9]+ failed$|AddressSanitizer failed to allocate' "$log"
  tally "$name" "$status"
}
once() {
  : >"$folder/now"
  AMP_SPEC_NOW="$folder/now" timeout -k 5 "${SPEC_LIMIT:-600}" "$@" >"$log" 2>&1 </dev/null &
  running=$!
  wait "$running"
  status=$?
  running=''
}
passes() { if "$@" >"$log" 2>&1; then add 1 0; else cat "$log"; add 0 1; note "failed: $*"; fi; }

# -- Build -------------------------------------------------------------------
generator() { command -v ninja >/dev/null 2>&1 && printf '%s' '-GNinja'; }
configure() { # folder, options
  dir=$1
  shift
  gen=$(generator)
  # a folder that came along when the tree was copied or moved is of no use
  [ -f "$dir/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "$dir/CMakeCache.txt" && rm -rf "$dir"
  [ -f "$dir/CMakeCache.txt" ] && gen=''
  # shellcheck disable=SC2086
  cmake -S . -B "$dir" $gen "$@"
}
nvcc_here() { command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; }; }
# Where CI has no card, kernels are compiled to see that they compile: for one architecture, of which most code is, and without
# optimization, which takes four fifths of nvcc's time. The stage `kernels` compiles what differs on older cards.
quick_cuda() {
  [ -n "${CI:-}" ] && ! command -v nvidia-smi >/dev/null 2>&1 || return 0
  nvcc=$(nvcc_here) || return 0
  "$nvcc" --list-gpu-arch 2>/dev/null | grep -qx compute_90 && printf '%s' '-DCMAKE_CUDA_ARCHITECTURES=90-virtual'
  "$nvcc" --help 2>/dev/null | grep -q Ofast-compile && printf ' %s' '-DCMAKE_CUDA_FLAGS=--Ofast-compile=max'
}
compile() { # stage, folder, options
  name=$1
  dir=$2
  shift 2
  if configure "$dir" -DAMP_WERROR="${CI:+ON}" "$@" >"$log" 2>&1 && cmake --build "$dir" -j "$jobs" >>"$log" 2>&1; then
    : >"$work/$name.built"
    add 1 0
  else
    tail -n 60 "$log"
    add 0 1
    note "$name failed"
  fi
}
# 1 and a failure if a stage's build did not come about
built() {
  [ -f "$work/$1.built" ] && return 0
  printf 'not run, since %s failed\n' "$1"
  add 0 1
  return 1
}

# -- Stages ------------------------------------------------------------------
stage_ctest() {
  say 'C tests'
  tests_of build-asan
  tests_of build -R fork # left out of the sanitized build
}
tests_of() { # build folder, options of ctest
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir "$@" --output-on-failure >"$log" 2>&1
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
  [ $status -ne 0 ] && [ "$f" -eq 0 ] && f=1
  [ "$f" -eq 0 ] || note "C tests of $1: $(sed -n 's/.* - \([a-z_]*\) (.*/\1/p' "$log" | tr '\n' ' ')"
  printf '%s: %d of %d C tests passed\n' "$1" $((n - f)) "$n"
  add $((n - f)) "$f"
}
# each spec has a process of its own, so a crash costs one file
run_spec() { bounded "$1" luajit spec/run.lua "$1"; }
stage_specs() {
  say "specs of spec/$1"
  for file in spec/"$1"/*_spec.lua; do run_spec "$file"; done
}
stage_isa() { # the numeric specs on what a smaller processor has; the kernels of LAPACK are OpenBLAS's of the machine
  say 'kernels for AVX2 and for any x86-64'
  native=$(LUA_PATH="lua/?.lua;lua/?/init.lua;;" luajit -e "local core = require 'amp.ffi' print(require('ffi').string(core.C.amp_cpu_isa()))")
  for what in avx2:ops/ops avx2:ops/linalg baseline:ops/linalg baseline:ops/nn_norm baseline:ops/nn_conv baseline:ops/nn_pool \
    baseline:ops/nn_loss baseline:ops/nn_rnn baseline:ops/nn_attention baseline:train/optim; do
    file=spec/${what#*:}_spec.lua
    [ "${what%%:*}" = "$native" ] && continue # what every other spec runs
    bounded "$file, AMP_CPU_ISA=${what%%:*}" env AMP_CPU_ISA="${what%%:*}" luajit spec/run.lua "$file"
  done
}
sanitized() { # name, command
  name=$1
  shift
  bounded "$name (sanitized)" env AMP_BUILD=build-asan AMP_SPEC_SANITIZED=1 LD_PRELOAD="$(cc -print-file-name=libasan.so)" \
    ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:allocator_may_return_null=1:handle_abort=1 UBSAN_OPTIONS=print_stacktrace=1 "$@"
}
stage_asan() {
  say "specs of spec/$1 under AddressSanitizer and UBSan"
  for file in spec/"$1"/*_spec.lua; do
    case $file in
      */memory_spec.lua | */onednn_throw_spec.lua | */quickstart_spec.lua | */install_spec.lua | */embed_spec.lua) continue ;; # nothing new there
      */chains_spec.lua | */formulas_spec.lua | */vision_examples_spec.lua) continue ;; # compilers do the work; layers that have specs
      */extend_spec.lua | */rooms_spec.lua | */print_spec.lua | */policy_spec.lua | */rules_spec.lua | */run_spec.lua) continue ;;
      */data_workers_spec.lua | */data_process_spec.lua) continue ;; # it forks, and asks ps, which hangs beside a preloaded sanitizer
    esac
    few=''
    case $file in */recipes_spec.lua) few='--filter=plain: --filter=gan: --filter=char_lm: --filter=clipping:' ;; esac # the same layers again
    sanitized "$file" luajit spec/run.lua $few "$file"
  done
}
stage_tsan() { # states in several threads: of the C tests, and the example's Lua states against an installed library
  say 'threads under ThreadSanitizer'
  dir=build-tsan
  probe=$folder/probe
  printf 'int main(void) { return 0; }\n' | cc -fsanitize=thread -x c - -o "$probe" 2>"$log" && "$probe" >>"$log" 2>&1
  status=$?
  if [ $status -ne 0 ]; then # no library for it, or an address space that it can't handle
    skip tsan "ThreadSanitizer does not work here: $(tail -n 1 "$log")"
    return 0
  fi
  if ! { configure $dir -DAMP_SANITIZE=THREAD -DAMP_TESTS=ON -DAMP_ONEDNN=OFF -DAMP_LAPACK=OFF -DAMP_CUDA=OFF -DAMP_MPI=OFF &&
         cmake --build $dir -j "$jobs" --target amp test_states test_graph && cmake --install $dir --prefix $dir/installed; } >"$log" 2>&1; then
    tail -n 60 "$log"
    add 0 1
    note 'the build for ThreadSanitizer failed'
    return
  fi
  passes $dir/test_states
  passes $dir/test_graph
  pc=$(find "$(pwd -P)/$dir/installed" -name amp.pc)
  if ! pkg-config --exists luajit 2>/dev/null; then
    skipped 'two_states.c under ThreadSanitizer' 'no luajit library or no pkg-config'
    return
  fi
  passes two_states
}
two_states() {
  # shellcheck disable=SC2046
  cc -std=gnu11 -g -O1 -fsanitize=thread examples/embed/two_states.c $(PKG_CONFIG_PATH="${pc%/*}" pkg-config --cflags --libs amp luajit) \
    -pthread -lm -o $dir/two_states &&
    LUA_PATH="$dir/installed/share/lua/5.1/?.lua;$dir/installed/share/lua/5.1/?/init.lua;;" \
      LUA_CPATH="$(dirname "$(dirname "$(find $dir/installed -name libamp.so)")")/?.so;;" $dir/two_states
}
# random calls and damaged files; more: luajit spec/ops/fuzz.lua CALLS SEED, spec/data/fuzz_readers.lua
stage_fuzz() {
  say 'random calls of every op, damaged files for every reader'
  bounded 'fuzz of ops' luajit spec/ops/fuzz.lua 40000 1
  bounded 'fuzz of readers' luajit spec/data/fuzz_readers.lua 1500 1
}
stage_fuzz_asan() {
  say 'the same under the sanitizers'
  sanitized 'fuzz of ops' luajit spec/ops/fuzz.lua 40000 2
  sanitized 'fuzz of readers' luajit -joff spec/data/fuzz_readers.lua 500 2 # interpreted: there a number's bits may make another value of it
}
stage_snippets() {
  say 'snippets of README.md and examples/guide'
  bounded snippets luajit spec/tools/snippets.lua README.md examples/guide/*.md
}
stage_emulator() { # the table's rows through the CUDA plug-in's own kernels, on a CPU
  if [ ! -f build/emulated/libamp_cuda.so ]; then
    skip emulator 'no C++ compiler: the CUDA plug-in is not emulated'
    return 0
  fi
  say 'ops on the emulated GPU'
  SPEC_LIMIT="${SPEC_LIMIT:-1500}" # every case runs threads of a card one after the other
  bounded 'spec/ops/ops_spec.lua on the emulated GPU' env AMP_PLUGIN_DIR=build/emulated AMP_SPEC_DEVICE=cuda luajit spec/run.lua spec/ops/ops_spec.lua
  bounded 'attention with dropout on the emulated GPU' env AMP_PLUGIN_DIR=build/emulated luajit spec/run.lua spec/ops/nn_attention_dropout_spec.lua
}
stage_kernels() { # what a compiler of CUDA makes of them says the build
  # shellcheck disable=SC2046
  bounded 'rules of the kernels' luajit spec/tools/rules.lua $(find kernels -type f | LC_ALL=C sort)
  nvcc=$(nvcc_here) || return 0
  if [ -f build/amp/libamp_cuda.so ]; then add 1 0; else printf 'nvcc is here, and no libamp_cuda.so was built\n'; add 0 1; fi
  for file in kernels/index/scatter.cu kernels/norm/layer_norm.cu kernels/precision/float8.cu; do # that ask for the architecture
    passes "$nvcc" -ptx -arch=compute_75 -std=c++17 --expt-relaxed-constexpr -Xcudafe=--diag_suppress=177 -Werror=all-warnings \
      -Isrc -Ibuild/gen -Ikernels -o /dev/null $file
  done
}

# -- Lint --------------------------------------------------------------------
# files that a tool finds fault with, each once: lines of the log that begin with FILE:
judge() { # what, number of files, status of the tool
  bad=$(sed -n 's/^\([^: ]*\):[0-9].*/\1/p' "$log" | sort -u | wc -l)
  [ "$3" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
  [ "$bad" -eq 0 ] || { printf '%s:\n' "$1"; cat "$log"; note "$1: $bad files"; head -n 5 "$log" >>"$folder/failures"; }
  add $(($2 - bad)) "$bad"
}
stage_rules() {
  say 'rules of the sources'
  bounded 'rules of the sources' luajit spec/tools/rules.lua
}
stage_lint() {
  stage_rules
  say 'luacheck'
  luacheck lua spec examples lua/bin/amp --formatter plain -q >"$log" 2>&1
  status=$?
  luacheck --version >/dev/null 2>&1 || status=127
  sed -i '/^Total/d' "$log"
  judge luacheck "$(find lua spec examples -name '*.lua' | wc -l)" "$status"
  say 'clang-format, cppcheck, shellcheck, ruff'
  lint_format
  lint_cppcheck
  lint_shell
  lint_python
}
c_files() { find src kernels spec/c spec/device/emulator -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' | grep -vx src/amp.h | LC_ALL=C sort; }
lint_format() { # another version of clang-format lays out some lines otherwise
  tool=''
  for name in clang-format-14 clang-format; do
    [ -z "$tool" ] && "$name" --version 2>/dev/null | grep -q 'version 14\.' && tool=$name
  done
  if [ -z "$tool" ]; then skipped clang-format 'version 14 is not here'; return; fi
  # shellcheck disable=SC2046
  "$tool" --dry-run -Werror --ferror-limit=1 $(c_files) >"$log" 2>&1
  judge clang-format "$(c_files | wc -l)" $?
}
# A short list of checks: the others follow the code's values not far enough, and are wrong about it too often. What the
# build makes from the table is left out: it takes more than half of the time, and these checks find the same without it.
sure='memleak|resourceLeak|doubleFree|deallocuse|useClosedFile|returnLocalVariable|autoVariables|zerodiv|wrongPrintfScanfArgNum'
sure="$sure|invalidPrintfArgType_[a-z]*|stringLiteralWrite|sizeofwithnumericparameter|pointerSize|memsetZeroBytes|bufferAccessOutOfBounds"
lint_cppcheck() {
  if ! command -v cppcheck >/dev/null 2>&1; then skipped cppcheck 'not installed'; return; fi
  list=$(find src spec/c -name '*.c' | LC_ALL=C sort)
  nice timeout "${SPEC_LIMIT:-600}" cppcheck -q -j "$jobs" --std=c11 --enable=warning --template='{file}:{line}: {message} ({id})' \
    -D__GNUC__=12 -D__x86_64__=1 -D__linux__=1 -DNDEBUG -Isrc $list >"$log.all" 2>&1
  status=$?
  grep -E "\\(($sure)\\)\$" "$log.all" >"$log"
  judge cppcheck "$(printf '%s\n' "$list" | wc -l)" $status
}
lint_shell() {
  if ! command -v shellcheck >/dev/null 2>&1; then skipped shellcheck 'not installed'; return; fi
  list=$(find .ci/run spec examples rockspec -name '*.sh' -o -path .ci/run | LC_ALL=C sort)
  # shellcheck disable=SC2086
  shellcheck -f gcc -x $list >"$log" 2>&1
  judge shellcheck "$(printf '%s\n' "$list" | wc -l)" $?
}
lint_python() { # syntax, and what pyflakes finds; fixtures take all names of fixture.py
  tool=$(command -v ruff || echo build-lint/bin/ruff)
  if ! "$tool" --version >/dev/null 2>&1; then skipped ruff 'not installed, and pip cannot get it'; return; fi
  list=$(find spec examples -name '*.py' | LC_ALL=C sort)
  # shellcheck disable=SC2086
  "$tool" check --no-cache --isolated --select E9,F --ignore F403,F405 --output-format concise $list >"$log" 2>&1
  status=$?
  [ $status -eq 0 ] && : >"$log"
  judge ruff "$(printf '%s\n' "$list" | wc -l)" $status
}

stage() {
  case $1 in
    specs/* | isa | emulator | fuzz | snippets | kernels | ctest | *_spec.lua) built build-release || return ;;
  esac
  case $1 in
    ctest | asan/* | fuzz-asan) built build-asan || return ;;
  esac
  case $1 in
    build-release)
      say build
      quick=$(quick_cuda)
      compile "$1" build -DCMAKE_BUILD_TYPE=Release -DAMP_TESTS=ON $quick ;; # of its C tests ctest runs those of forks
    build-asan)
      say 'build with AddressSanitizer and UBSan'
      compile "$1" build-asan -DCMAKE_BUILD_TYPE=Release -DAMP_SANITIZE=ON -DAMP_DEBUG=ON -DAMP_TESTS=ON -DAMP_CUDA=OFF -DAMP_EMULATOR=OFF ;;
    specs/*) stage_specs "${1#*/}" ;;
    asan/*) stage_asan "${1#*/}" ;;
    *_spec.lua) run_spec "$1" ;;
    fuzz-asan) stage_fuzz_asan ;;
    *) "stage_$1" ;;
  esac
}
