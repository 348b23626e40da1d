# shellcheck shell=sh
# What every part of spec/hosts.sh begins with: . spec/hosts/lib/checks.sh, from the root of the repository.
#
# Gives: $roots (the folder of the roots), $build (the folder with the library), check, checked, not_tried, make_root, copy_amp.
roots=${ROOTS:-/tmp/amp-hosts}
build=${AMP_BUILD:-build}
passed=0 failed=0
mkdir -p "$roots"

check() { # what, status: 0 is good
  if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  [ "$2" = 0 ] && echo "ok: $1" || echo "FAILED: $1"
}

checked() { # the last line of a part
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}

not_tried() { # why
  echo "NOT TRIED: $1"
  exit 1
}

make_root() { # folder, packages with commas: a small Debian, made once
  [ -e "$1/made" ] && return
  command -v debootstrap >/dev/null || not_tried 'debootstrap is not here (apt-get install debootstrap)'
  # shellcheck disable=SC1091
  debootstrap --variant=minbase --include="$2" "$(. /etc/os-release; echo "$VERSION_CODENAME")" "$1" >"$1.log" 2>&1 || not_tried "no root: see $1.log"
  touch "$1/made"
}

copy_amp() { # folder: the Lua part and the library, without oneDNN, whose own library is not in a root
  [ -f "$build/amp/libamp.so" ] || not_tried "there is no $build/amp/libamp.so; build first"
  rm -rf "$1"
  mkdir -p "$1"
  cp -r lua "$1/"
  cp "$build"/amp/libamp*.so "$1/"
  rm -f "$1/libamp_onednn.so"
}
