#!/bin/sh
# Runs amp in other hosts and on other machines, each in a root of its own: sh spec/hosts.sh [part ...]
#
# A part is a script spec/hosts/NAME.sh (nginx is one); without names all are run. As root, on Debian, with debootstrap. Not part of CI.
# ROOTS=folder keeps the roots (default: /tmp/amp-hosts); AMP_BUILD=folder has the library (default: build).
# Each part says what it checked, prints its figures and ends with "N passed, M failed"; the script fails if one of them does.
set -eu
cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
  for path in spec/hosts/*.sh; do
    name=${path##*/}
    set -- "$@" "${name%.sh}"
  done
fi
bad=''
for part in "$@"; do
  [ -f "spec/hosts/$part.sh" ] || { echo "there is no spec/hosts/$part.sh" >&2; exit 2; }
  echo "== $part"
  sh "spec/hosts/$part.sh" || bad="$bad $part"
done
[ -z "$bad" ] && echo "== all parts passed: $*" && exit 0
echo "== FAILED:$bad"
exit 1
