#!/bin/sh
# Everything that shows amp works: set-up, build, C tests, specs, lint, manual.
#
#   sh spec/run.sh                              all of it
#   sh spec/run.sh STAGE...                     setup build ctest specs isa asan emulator tsan fuzz lint rules snippets kernels
#   sh spec/run.sh specs/ops asan/train         the specs of a room; the same under the sanitizers
#   sh spec/run.sh spec/ops/nn_norm_spec.lua    one file in the release build; nn_norm_spec.lua or nn_norm will do
#
# Ends with `N passed, N failed`; non-zero if anything failed or did not run.
# Stages run side by side, in LANES lanes (default 2; 1: one after the other, as a single stage does, to be watched). Each
# is a process with a folder and a log of its own, printed when it ends; one that dies, or takes longer than STAGE_LIMIT
# seconds, has failed. A spec may take SPEC_LIMIT seconds.
# What cannot run here (ThreadSanitizer, the emulator, a tool of lint) is a line `SKIPPED what: why` before that.
# With CI in the environment, a compiler's warning is an error, and so is a stage that is skipped.
# Missing packages are installed by the system's package manager, as root or by
# sudo without a password; otherwise the command to type is printed.
set -u
cd "$(dirname "$0")/.." || exit 1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
cores=$(env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2) # nproc counts what OpenMP may use
jobs=$(((cores + 1) / 2)) # of each of two builds at a time

say() { printf '\n== %s\n' "$*"; }
# passed and failed of a stage come to lines of its file `counts`
add() { printf '%d %d\n' "$1" "$2" >>"$folder/counts"; }
# what failed, told once more at the end, with what the log says of it
note() { # what, lines
  printf '%s\n' "$1" >>"$folder/failures"
  grep -A 3 -E '^FAILED|^ERROR|error:|not so:|terminate called' "$log" 2>/dev/null | cut -c1-300 | head -n "${2:-20}" >>"$folder/failures"
}
# what does not run here: the end says so
# shellcheck disable=SC2317
skipped() { printf 'SKIPPED %s: %s\n' "$1" "$2" | tee -a "$folder/skipped"; } # what, why
# the same of a stage, which is a failure where CI is in the environment
# shellcheck disable=SC2317
skip() {
  skipped "$1" "$2"
  [ -z "${CI:-}" ] || { add 0 1; printf 'skipped, which is a failure in CI: %s\n' "$1" >>"$folder/failures"; }
}
folder_of() { printf '%s/%s' "$work" "$(printf '%s' "$1" | tr / .)"; }

# -- A stage, in a process of its own: sh spec/run.sh --stage WORK STAGE -------
if [ "${1:-}" = --stage ]; then
  work=$2
  folder=$(folder_of "$3")
  log=$folder/log
  times=$folder/times # seconds and name of each spec
  export TMPDIR="$folder/tmp"
  . spec/lib/stages.sh
  stage "$3"
  : >"$folder/ended"
  exit 0
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/amp-spec.XXXXXX")
folder=$work/setup
log=$folder/log
mkdir -p "$folder"
# the processes of stages are told to end: each ends the spec that it runs
lane_pids=''
# shellcheck disable=SC2317
stop() {
  # shellcheck disable=SC2086
  [ -z "$lane_pids" ] || kill $lane_pids 2>/dev/null
  for file in "$work"/*/pid; do [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null; done
}
trap 'stop; rm -rf "$work"; exit 130' INT TERM HUP
trap 'rm -rf "$work"' EXIT

finish() {
  if [ "$(cat "$work"/*/times 2>/dev/null | wc -l)" -gt 10 ]; then
    printf '\nthe slowest, in seconds:\n'
    cat "$work"/*/times | sort -rn | head -n 10
  fi
  if cat "$work"/*/failures >"$work/all-failures" 2>/dev/null; then
    printf '\nwhat failed:\n'
    head -n 100 "$work/all-failures"
  fi
  if cat "$work"/*/skipped >"$work/all-skipped" 2>/dev/null; then
    printf '\n'
    cat "$work/all-skipped"
  fi
  cat "$work"/*/counts 2>/dev/null | awk '
    { passed += $1; failed += $2 }
    END { printf "\n%d passed, %d failed\n", passed, failed; exit !(failed == 0 && passed > 0) }'
  exit
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
    for package in libdnnl-dev libopenblas-dev libluajit-5.1-dev pkg-config g++ ccache libopenmpi-dev openmpi-bin libmpich-dev mpich; do
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

# CI shows more with libraries that make amp faster and headers that its examples in C use: what can be had of them
setup_more() {
  [ -n "${CI:-}" ] && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] || return 0
  lack=''
  for package in libdnnl-dev libopenblas-dev libluajit-5.1-dev pkg-config g++ ccache; do
    dpkg -s "$package" >/dev/null 2>&1 || lack="$lack $package"
  done
  [ -z "$lack" ] && return 0
  say "installing what shows more:$lack"
  apt-get update >"$log" 2>&1
  for package in $lack; do # one by one, as a system may know some of them only
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" </dev/null >"$log" 2>&1 || tail -n 3 "$log"
  done
}

# MPI, for specs of several ranks, which say so where it cannot be had
setup_mpi() {
  lack=''
  command -v mpirun.openmpi >/dev/null 2>&1 || lack="$lack libopenmpi-dev openmpi-bin"
  command -v mpirun.mpich >/dev/null 2>&1 || lack="$lack libmpich-dev mpich"
  [ -n "$lack" ] && command -v apt-get >/dev/null 2>&1 || return 0
  sudo=''
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || return 0
    sudo='sudo -n '
  fi
  say "installing for specs of several ranks:$lack"
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive ${sudo}apt-get install -y --no-install-recommends $lack </dev/null >"$log" 2>&1 || tail -n 3 "$log"
}

# Games, editors, event loops and notebooks, for the specs of hosts, which say so where one cannot be had
setup_hosts() {
  lack=''
  for pair in love:love Xvfb:xvfb nvim:neovim curl:curl; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || lack="$lack ${pair#*:}"
  done
  luajit -e "require 'luv'" >/dev/null 2>&1 || lack="$lack lua-luv"
  luajit -e "require('ffi').load 'libzmq.so.5'" >/dev/null 2>&1 || lack="$lack libzmq5"
  [ -n "$lack" ] && command -v apt-get >/dev/null 2>&1 || return 0
  sudo=''
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || return 0
    sudo='sudo -n '
  fi
  say "installing for specs of hosts:$lack"
  for package in $lack; do # one by one, as a system may know some of them only
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive timeout 300 ${sudo}apt-get install -y --no-install-recommends "$package" </dev/null >"$log" 2>&1 || tail -n 3 "$log"
  done
}

# clang-format, cppcheck, shellcheck and ruff: lint goes on without one that cannot be had, and says so
setup_lint() {
  lack=''
  for tool in clang-format cppcheck shellcheck; do command -v "$tool" >/dev/null 2>&1 || lack="$lack $tool"; done
  if [ -n "$lack" ] && command -v apt-get >/dev/null 2>&1; then
    sudo=''
    [ "$(id -u)" -eq 0 ] || sudo='sudo -n '
    say "installing for lint:$lack"
    for tool in $lack; do # one by one, as a system may know some of them only
      # shellcheck disable=SC2086
      DEBIAN_FRONTEND=noninteractive ${sudo}apt-get install -y --no-install-recommends "$tool" </dev/null >"$log" 2>&1 || tail -n 3 "$log"
    done
  fi
  if ! command -v ruff >/dev/null 2>&1 && [ ! -x build-lint/bin/ruff ] && command -v python3 >/dev/null 2>&1; then
    { timeout 60 python3 -m venv build-lint && timeout 120 build-lint/bin/pip install -q ruff; } </dev/null >"$log" 2>&1 || rm -rf build-lint
  fi
}

# -- Lanes ---------------------------------------------------------------------
# what a stage needs built before it starts
need() {
  case $1 in
    specs/* | isa | emulator | fuzz | snippets | kernels | *_spec.lua) echo build-release ;;
    asan/device | asan/tools) echo build-release build-asan ;; # the emulated plug-in, commands run as a user does
    ctest) echo build-release build-asan ;; # forks work in the plain build only
    asan/* | fuzz-asan) echo build-asan ;;
  esac
}
run_stage() {
  stage=$1
  into=$(folder_of "$stage")
  mkdir -p "$into/tmp"
  began=$(date +%s)
  if [ "$lanes" -eq 1 ]; then
    timeout -k 10 "${STAGE_LIMIT:-3600}" sh spec/run.sh --stage "$work" "$stage" 2>&1 &
  else
    timeout -k 10 "${STAGE_LIMIT:-3600}" sh spec/run.sh --stage "$work" "$stage" >"$into/out" 2>&1 &
  fi
  echo $! >"$into/pid"
  wait $!
  status=$?
  rm -f "$into/pid"
  took=$(($(date +%s) - began))
  until mkdir "$work/printing" 2>/dev/null; do sleep 0.1; done # one log at a time
  [ "$lanes" -eq 1 ] || cat "$into/out"
  if [ ! -f "$into/ended" ]; then
    printf 'stage %s did not come to its end (status %s, %s s)\n' "$stage" "$status" "$took" | tee -a "$into/failures"
    echo '0 1' >>"$into/counts"
  elif [ "$lanes" -gt 1 ]; then
    printf -- '-- %s: %s s\n' "$stage" "$took"
  fi
  rmdir "$work/printing"
  : >"$into.over"
}
# takes the first stage that is left and whose build is over, until none is left
lane() {
  while :; do
    waits=''
    for stage in $stages; do
      place=$(folder_of "$stage")
      [ -d "$place.taken" ] && continue
      for build in $(need "$stage"); do
        [ -f "$work/$build.over" ] && continue
        waits=1
        continue 2
      done
      mkdir "$place.taken" 2>/dev/null || continue
      run_stage "$stage"
      continue 2
    done
    [ -z "$waits" ] && return
    sleep 1
  done
}

# -- What to run -----------------------------------------------------------------
rooms() { # the rooms of specs, those that take longest first
  first='ops unit tools device train precision data torch7'
  for room in $first; do echo "$room"; done
  for room in spec/*/; do
    room=$(basename "$room")
    case " $first " in *" $room "*) continue ;; esac
    for file in "spec/$room"/*_spec.lua; do [ -f "$file" ] && echo "$room" && break; done
  done
}
of_rooms() { for room in $(rooms); do printf '%s/%s ' "$1" "$room"; done; }
expand() {
  case $1 in
    setup) ;;
    build) echo build-release build-asan ;;
    ctest | isa | emulator | tsan | lint | rules | snippets | kernels) echo "$1" ;;
    fuzz) echo fuzz fuzz-asan ;;
    specs | asan) of_rooms "$1" ;;
    specs/* | asan/*) if [ -d "spec/${1#*/}" ]; then echo "$1"; else return 1; fi ;;
    spec/*/) expand "specs/$(basename "$1")" ;;
    *)
      name=$(basename "$1" _spec.lua)_spec.lua
      file=$1
      [ -f "$file" ] || file=$(find spec -name "$name" | LC_ALL=C sort | head -n 1)
      case $file in *_spec.lua) echo "$file" ;; *) return 1 ;; esac ;;
  esac
}

setup
setup_more
# long ones first, so that the lanes end together
[ $# -eq 0 ] && set -- asan lint emulator tsan specs fuzz ctest isa snippets kernels
wanted=''
for word; do
  if more=$(expand "$word"); then
    wanted="$wanted $more"
  else
    printf 'no stage or spec file %s: sh spec/run.sh [setup build ctest specs isa asan emulator tsan fuzz lint rules snippets kernels]\n' "$word"
    add 0 1
  fi
done
builds=''
for stage in $wanted; do
  [ "$stage" = lint ] && setup_lint
  case $stage in */distributed* | isa | snippets) [ -n "${mpi_asked:-}" ] || setup_mpi; mpi_asked=1 ;; esac
  case $stage in specs/tools | *hosts_spec.lua | *kernel_spec.lua) [ -n "${hosts_asked:-}" ] || setup_hosts; hosts_asked=1 ;; esac
  for build in $(need "$stage"); do
    case " $builds $wanted " in *" $build "*) ;; *) builds="$builds $build" ;; esac
  done
done
# the release build is the longer one
case $builds in *release*) builds="build-release $(echo "$builds" | sed 's/build-release//')" ;; esac
stages="$builds $wanted"
lanes=${LANES:-2}
# shellcheck disable=SC2086
[ "$(set -- $wanted && echo $#)" -le 1 ] && lanes=1
if [ "$lanes" -eq 1 ]; then
  lane
else
  n=0
  while [ "$n" -lt "$lanes" ]; do
    lane &
    lane_pids="$lane_pids $!"
    n=$((n + 1))
  done
  wait
fi
finish
