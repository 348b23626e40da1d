#!/bin/sh
# Looks at the files of a commit: layout, luacheck, lengths, and the quick specs that concern them.
#
#   ln -s ../../spec/tools/pre-commit.sh .git/hooks/pre-commit     or by hand: sh spec/tools/pre-commit.sh [files]
#
# Without files: those that are staged, as they lie in the working tree. A tool that is not here is left out, with a line.
set -u
cd "$(git rev-parse --show-toplevel 2>/dev/null || dirname "$0")" || exit 1
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(git diff --cached --name-only --diff-filter=ACMR)
bad=0
fail() { printf '%s\n' "$*"; bad=1; }

c='' lua='' sh='' sources='' specs=''
for file; do
  [ -f "$file" ] || continue
  case $file in
    src/amp.h) ;;
    src/*.[ch] | src/*.cpp | kernels/*.cu | kernels/*.cuh | kernels/*.h | spec/c/*.[ch] | spec/device/emulator/*) c="$c $file" ;;
    *.lua) lua="$lua $file" ;;
    *.sh) sh="$sh $file" ;;
  esac
  case $file in
    spec/fixtures/*) ;;
    src/* | kernels/* | lua/* | spec/*) sources="$sources $file" ;;
  esac
  case $file in
    spec/*_spec.lua) specs="$specs $file" ;;
    src/ops/* | src/amp_ops.def) specs="$specs spec/unit/policy_spec.lua spec/unit/rooms_spec.lua" ;;
    src/*) specs="$specs spec/unit/rooms_spec.lua" ;;
    lua/*) specs="$specs spec/unit/handle_spec.lua spec/unit/loading_spec.lua" ;;
  esac
done

# shellcheck disable=SC2086
if [ -n "$c" ]; then
  if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    clang-format --dry-run -Werror --ferror-limit=1 $c || fail "clang-format -i$c"
  else
    echo 'clang-format 14 is not here: layout not looked at'
  fi
fi
# shellcheck disable=SC2086
if [ -n "$lua" ]; then
  if command -v luacheck >/dev/null 2>&1; then luacheck -q --no-color $lua || bad=1; else echo 'luacheck is not here'; fi
fi
# shellcheck disable=SC2086
if [ -n "$sh" ] && command -v shellcheck >/dev/null 2>&1; then shellcheck -x $sh || bad=1; fi
# shellcheck disable=SC2086
if [ -n "$sources" ]; then luajit spec/tools/rules.lua $sources || bad=1; fi

# the specs of the commit, and what is quick and often concerned; a long one is for spec/run.sh
# shellcheck disable=SC2086
if [ -f build/amp/libamp.so ]; then
  for file in $(printf '%s\n' $specs | sort -u); do
    timeout 60 luajit spec/run.lua "$file" </dev/null
    case $? in
      0) ;;
      124) printf '%s takes long: sh spec/run.sh %s\n' "$file" "$file" ;;
      *) bad=1 ;;
    esac
  done
fi
[ "$bad" -eq 0 ] || echo 'not committed (git commit --no-verify leaves this out)'
exit "$bad"
