#!/bin/sh
# Draws what the example shows: sh picture.sh out.svg. It learns world.lua of the game in Neovim, inside of tmux, completes a line, and
# turns the terminal's content into an SVG (colours as Neovim sent them).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
socket=amp-picture-$$
folder=$(mktemp -d)
trap 'tmux -L "$socket" kill-server 2>/dev/null || true; rm -rf "$folder"' EXIT
cp "$here/../love/world.lua" "$folder/world.lua"
keys() { tmux -L "$socket" send-keys "$@"; }
shows() { # waits until the terminal shows this
  for _ in $(seq 600); do
    tmux -L "$socket" capture-pane -p | grep -q "$1" && return
    sleep 0.5
  done
  echo "the terminal does not show: $1" >&2
  exit 1
}
tmux -L "$socket" -f /dev/null new-session -d -x 84 -y 16 "cd '$folder' && nvim --clean -c 'set nosmd noru ls=0 nu notgc sw=2' -c 'luafile $here/complete.lua' world.lua"
shows 'The rules'
keys ':AmpLearn 2000' Enter
shows 'learnt, loss'
keys G k o 'function World:all()' Enter 'for _, b in ip' C-x C-u
sleep 1
tmux -L "$socket" capture-pane -e -p | luajit "$here/picture.lua" >"$1"
