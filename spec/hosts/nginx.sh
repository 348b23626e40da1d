#!/bin/sh
# Runs examples/hosts/nginx in a root of its own, under load: sh spec/hosts/nginx.sh [seconds], or sh spec/hosts.sh nginx
#
# As root, on Debian, with debootstrap. nginx's Lua module comes with a LuaJIT that takes the place of Debian's, so it is never
# installed on the machine itself.
# Checks: no failed request at 64 connections; the same over reloads (a connection a request); memory that stays; bad requests.
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=spec/hosts/lib/checks.sh
. spec/hosts/lib/checks.sh
seconds=${1:-10}
root=$roots/nginx
url=http://127.0.0.1:8080
make_root "$root" nginx-light,libnginx-mod-http-lua,libgomp1,wrk,curl

copy_amp "$root/srv/amp"
rm -rf "$root/srv/app"
mkdir -p "$root/srv/app"
cp examples/hosts/nginx/*.lua examples/hosts/nginx/nginx.conf "$root/srv/app/"
luajit examples/hosts/nginx/make.lua "$root/srv/app/model.safetensors" 1
luajit -e 'io.write("[", ("0.5,"):rep(783), "0]")' >"$root/srv/body"
echo 'local f = assert(io.open "/srv/body") wrk.body = f:read "*a" wrk.method = "POST"' >"$root/srv/post.lua"
chmod -R a+rX "$root/srv"

nginx() {
  chroot "$root" env LUA_PATH='/srv/amp/lua/?.lua;/srv/amp/lua/?/init.lua;;' AMP_LIBRARY=/srv/amp/libamp.so nginx -p /srv/app -c nginx.conf "$@"
}
post() { chroot "$root" curl -s -m 10 -o /dev/null -w '%{http_code}' --data-binary "$1" "$url/classify"; }
load() { # seconds, more
  n=$1
  shift
  chroot "$root" wrk -t1 -c64 -d"${n}s" -s /srv/post.lua "$@" "$url/classify"
}
memory() { # KiB of the workers
  for pid in $(pgrep -P "$(cat "$root/srv/app/nginx.pid")"); do awk '/^VmRSS/ { print $2 }' "/proc/$pid/status"; done | awk '{ s += $1 } END { print s }'
}

nginx
trap 'nginx -s stop 2>/dev/null || true' EXIT
sleep 1
[ "$(chroot "$root" curl -s -o /dev/null -w '%{http_code}' $url/health)" = 200 ] && s=0 || s=1
check 'the health page' "$s"
[ "$(post @/srv/body)" = 200 ] && s=0 || s=1
check 'a request' "$s"
[ "$(post '[1, 2]')" = 400 ] && [ "$(post 'no picture')" = 400 ] && [ "$(post '[nan]')" = 400 ] && s=0 || s=1
check 'bad requests get 400' "$s"

load 3 >/dev/null
before=$(memory)
load "$seconds" >"$roots/load.log"
after=$(memory)
cat "$roots/load.log"
grep -Eq 'Socket errors|Non-2xx' "$roots/load.log" && s=1 || s=0
check 'no failed request at 64 connections' "$s"
[ "$after" -lt $((before + before / 10)) ] && s=0 || s=1
check "memory stays (KiB of the workers: $before, then $after)" "$s"

load 6 -H 'Connection: close' >"$roots/reload.log" &
loading=$!
for _ in 1 2 3; do
  sleep 1
  luajit examples/hosts/nginx/make.lua "$root/srv/app/model.safetensors" 0 >/dev/null
  chmod a+r "$root/srv/app/model.safetensors"
  nginx -s reload 2>/dev/null
done
wait $loading
cat "$roots/reload.log"
grep -Eq 'Socket errors|Non-2xx' "$roots/reload.log" && s=1 || s=0
check 'no failed request over three reloads' "$s"

kill -9 "$(pgrep -P "$(cat "$root/srv/app/nginx.pid")" | head -1)"
sleep 1
[ "$(post @/srv/body)" = 200 ] && s=0 || s=1
check 'a worker that was killed is replaced' "$s"

checked
