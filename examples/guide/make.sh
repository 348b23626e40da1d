#!/bin/sh
# Writes the generated pages of the manual anew: the tables of ops, the references of Lua
# and C, the stub for editors. The library must be built; AMP_LIBRARY may name it.
set -eu
cd "$(dirname "$0")/../.."
for page in ops.md c_api.md reference.md amp.meta.lua; do
  case $page in
    amp.meta.lua) script=meta ;;
    *) script=${page%.md} ;;
  esac
  lua/bin/amp "examples/guide/$script.lua" >"examples/guide/$page.new" || { rm -f "examples/guide/$page.new"; exit 1; }
  mv "examples/guide/$page.new" "examples/guide/$page"
done
