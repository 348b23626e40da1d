#!/bin/sh
# Packs this source tree, as it lies, into a source rock that installs without a network:
#
#   sh rockspec/pack.sh [VERSION] [FOLDER]     VERSION scm-1 (default) or 0.2.0-1; FOLDER .
#   luarocks --lua-version=5.1 install amp-scm-1.src.rock
#
# `luarocks pack rockspec/...` would clone the repository that the rockspec's source.url
# names; a tree that was copied or unpacked has none. A binary rock is made of an installed
# one: luarocks --lua-version=5.1 pack amp.
set -eu
version=${1:-scm-1}
folder=${2:-.}
root=$(CDPATH='' cd -P -- "$(dirname -- "$0")/.." && pwd)
spec="$root/rockspec/amp-$version.rockspec"
if [ ! -f "$spec" ]; then
  echo "pack.sh: no rockspec for version $version; there are:" >&2
  # shellcheck disable=SC2012
  (cd "$root/rockspec" && ls amp-*.rockspec | sed 's/^amp-\(.*\)\.rockspec$/  \1/') >&2
  exit 1
fi
if [ ! -d "$folder" ] || [ ! -w "$folder" ]; then
  echo "pack.sh: $folder is no folder that can be written to" >&2
  exit 1
fi
command -v zip >/dev/null 2>&1 || { echo 'pack.sh: zip is needed, as LuaRocks itself does (Debian: zip)' >&2; exit 1; }
folder=$(CDPATH='' cd -- "$folder" && pwd)
rock="$folder/amp-$version.src.rock"
stage=$(mktemp -d "${TMPDIR:-/tmp}/amp-pack.XXXXXX")
trap 'rm -rf "$stage"' EXIT
# the tree lies beside the rockspec at the top of the rock: source.dir is "." for this URL
cp "$spec" "$stage/"
kernels=''
[ -d "$root/kernels" ] && kernels=kernels
(cd "$root" && tar cf - CMakeLists.txt LICENSE README.md src lua ${kernels:+kernels} spec examples rockspec) |
  tar xf - -C "$stage"
rm -f "$rock"
(cd "$stage" && find . \( -name '*.o' -o -name '*.so' -o -name '*.rock' \) -exec rm -f {} + && zip -qr "$rock" .)
echo "$rock"
