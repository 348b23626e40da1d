#!/bin/sh
# From a fresh machine to a network that reads handwritten digits: installs what is
# missing, builds amp, trains in float32, bfloat16 and float16.
#
#   sh examples/quickstart.sh [options of quickstart.lua, e.g. --epochs 3]
#
# Packages are installed by the system's package manager, as root or by sudo without a
# password; else the command to type is printed. Nothing but packages and build/ is changed.
set -eu
root=$(CDPATH='' cd -P -- "$(dirname -- "$0")/.." && pwd)
build="$root/build"
log="$build/quickstart.log"
# a build folder that came along when the tree was copied or moved is of no use here
if [ -e "$build/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"; then
  rm -rf "$build" 2>/dev/null || true
fi
{ mkdir -p "$build" && true >"$log"; } 2>/dev/null || log=/dev/null

say() { printf '== %s\n' "$*"; }
has() { command -v "$1" >/dev/null 2>&1; }
has_library() { # file name
  for dir in /lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /usr/lib/*-linux-*; do
    [ -e "$dir/$1" ] && return 0
  done
  return 1
}
can_compile() {
  has cc || has gcc || has clang || return 1
  compiler=$(command -v cc || command -v gcc || command -v clang)
  printf '#include <stdio.h>\nint main(void) { return 0; }\n' | "$compiler" -x c -fsyntax-only - 2>/dev/null
}

# -- What is missing -----------------------------------------------------------
need=''
has luajit || need="$need luajit"
has cmake || need="$need cmake"
can_compile || need="$need compiler"
has make || has ninja || need="$need make"
has_library libz.so.1 || need="$need zlib"
want='' # makes it faster
[ -e /usr/include/dnnl.h ] || [ -e /usr/include/oneapi/dnnl/dnnl.h ] || [ -e /usr/local/include/dnnl.h ] || want='onednn'
has_library libopenblas.so || has_library liblapack.so || want="$want lapack"

# -- How this system calls and installs it -----------------------------------------
if has apt-get; then
  manager='apt-get' update='apt-get update' install='apt-get install -y --no-install-recommends'
elif has dnf; then
  manager='dnf' update='' install='dnf install -y'
elif has apk; then
  manager='apk' update='' install='apk add'
elif has pacman; then
  manager='pacman' update='' install='pacman -Sy --noconfirm --needed'
else
  manager='' update='' install=''
fi
package() { # what -> packages of this system
  case "$manager:$1" in
    apt-get:compiler) echo 'gcc libc6-dev' ;;
    apt-get:zlib) echo zlib1g ;;
    apt-get:onednn) echo libdnnl-dev ;;
    apt-get:lapack) echo libopenblas-dev ;;
    dnf:lapack) echo openblas-devel ;;
    apk:lapack) echo openblas-dev ;;
    pacman:lapack) echo openblas ;;
    dnf:compiler) echo 'gcc glibc-devel' ;;
    dnf:onednn) echo onednn-devel ;;
    apk:compiler) echo 'gcc musl-dev' ;;
    apk:onednn) echo onednn-dev ;;
    pacman:compiler) echo gcc ;;
    pacman:onednn) echo onednn ;;
    *) echo "$1" ;;
  esac
}
packages() { for what in "$@"; do package "$what"; done | tr '\n' ' ' | sed 's/ *$//'; }

as_root=''
can_install=no
if [ -n "$manager" ]; then
  if [ "$(id -u)" -eq 0 ]; then can_install=yes
  elif has sudo && sudo -n true 2>/dev/null; then can_install=yes as_root='sudo'; fi
fi
updated=no
install_packages() { # names
  if [ "$updated" = no ] && [ -n "$update" ]; then
    say "$as_root${as_root:+ }$update"
    # shellcheck disable=SC2086
    $as_root $update >/dev/null 2>&1 || say 'the package lists could not be renewed; trying with those that are there'
    updated=yes
  fi
  say "$as_root${as_root:+ }$install $*"
  # shellcheck disable=SC2086
  if [ "$manager" = apt-get ]; then set -- env DEBIAN_FRONTEND=noninteractive $install "$@"; else set -- $install "$@"; fi
  $as_root "$@" </dev/null >>"$log" 2>&1
}

if [ -n "$need" ]; then
  # shellcheck disable=SC2086
  names=$(packages $need)
  if [ "$can_install" = yes ]; then
    say "missing:$need"
    # shellcheck disable=SC2086
    install_packages $names || { tail -n 20 "$log"; say "the installation failed; amp needs: $names (the whole log is $log)"; exit 1; }
  else
    say "missing:$need"
    if [ -z "$manager" ]; then
      say "no package manager known here (apt-get, dnf, apk, pacman): install them, then run this again"
    else
      say "install them as root, then run this again:"
      if has sudo; then sudo='sudo '; else sudo=''; fi
      # shellcheck disable=SC2086
      printf '  %s%s%s %s\n' "${update:+$sudo$update; }" "$sudo" "$install" "$(packages $need $want)"
    fi
    exit 1
  fi
fi
for what in $want; do
  name=$(package "$what")
  case $what in
    onednn) gain='oneDNN makes products and convolutions faster' lack="oneDNN ($name)" ;;
    *) gain='LAPACK makes the factors of large matrices faster' lack="LAPACK ($name)" ;;
  esac
  if [ "$can_install" = yes ]; then
    say "$gain"
    install_packages "$name" || say "$name could not be installed; going on without it, slower"
  else
    say "$lack is not installed; going on without it, slower"
  fi
done

# -- A GPU -------------------------------------------------------------------------
gpu=no again=''
if has nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  gpu=yes
  if ! has nvcc && [ -z "${CUDACXX:-}" ]; then
    for dir in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda /opt/cuda; do
      if [ -x "$dir/bin/nvcc" ]; then CUDACXX="$dir/bin/nvcc"; export CUDACXX; break; fi
    done
  fi
  if has nvcc || [ -n "${CUDACXX:-}" ]; then
    # an earlier build may have looked for it in vain
    if grep -qs '^CMAKE_CUDA_COMPILER:.*NOTFOUND' "$build/CMakeCache.txt"; then again=-UCMAKE_CUDA_COMPILER; fi
  else
    gpu=no
    say 'a GPU is here, but no nvcc; going on with the CPU. Install the CUDA toolkit and run this again to use it'
  fi
fi

# -- Build -----------------------------------------------------------------------
if [ "$log" = /dev/null ]; then
  say "no permission to write in $build; copy the tree into a folder of your own"
  exit 1
fi
jobs=$(nproc 2>/dev/null || echo 2)
generator=''
if [ ! -e "$build/CMakeCache.txt" ] && has ninja; then generator='-G Ninja'; fi
# what a user needs: not what only the specs do
targets() { # those of the names given that this build has
  cmake --build "$build" --target help 2>/dev/null | awk -v names=" $* " '
    { sub(/^\.\.\. /, ""); sub(/[: ].*/, ""); if (index(names, " " $0 " ") && !seen[$0]++) print }'
}
say "building in $build (about a minute the first time)"
# shellcheck disable=SC2086,SC2046
if ! cmake -S "$root" -B "$build" $generator $again -DCMAKE_BUILD_TYPE=Release >>"$log" 2>&1 ||
   ! cmake --build "$build" --parallel "$jobs" --target amp $(targets amp_onednn amp_lapack amp_mpi_openmpi amp_mpi_mpich) >>"$log" 2>&1; then
  tail -n 30 "$log"
  say "the build failed; the whole log is $log"
  exit 1
fi
if [ "$gpu" = yes ]; then
  say 'building the part for the GPU (some minutes the first time)'
  if [ -z "$(targets amp_cuda)" ] || ! cmake --build "$build" --parallel "$jobs" --target amp_cuda >>"$log" 2>&1; then
    say "it could not be built; going on with the CPU. The whole log is $log"
  fi
fi

# -- Train -----------------------------------------------------------------------
LUA_PATH="$root/lua/?.lua;$root/lua/?/init.lua;;"
AMP_LIBRARY="$build/amp/libamp.so"
export LUA_PATH AMP_LIBRARY
say 'built: lua/bin/amp is a prompt, lua/bin/amp script.lua runs a script, examples/guide/README.md is the manual'
say "the network goes to build/digits.safetensors, which examples/embed/run_graph.c runs without Lua"
exec luajit "$root/examples/quickstart.lua" --graph "$build/digits.safetensors" "$@"
