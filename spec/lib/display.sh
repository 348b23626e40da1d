#!/bin/sh
# Runs a command with a display that nobody sees: sh spec/lib/display.sh command arguments...     (Debian: xvfb)
# No sound, pictures drawn by the processor. The display ends with the command.
folder=$(mktemp -d)
Xvfb -displayfd 9 -screen 0 1024x768x24 -nolisten tcp 9>"$folder/number" >/dev/null 2>&1 &
display=$!
trap 'kill "$display" 2>/dev/null; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
tries=0
until [ -s "$folder/number" ] || [ $tries -ge 100 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
[ -s "$folder/number" ] || { echo 'no display: Xvfb did not start' >&2; exit 1; }
DISPLAY=:$(cat "$folder/number") SDL_AUDIODRIVER=dummy LIBGL_ALWAYS_SOFTWARE=1 "$@"
