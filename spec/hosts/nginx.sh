#!/bin/sh
# Runs examples/hosts/nginx in a root of its own, under load: sh spec/hosts/nginx.sh, or sh spec/hosts.sh nginx
#
# As root, on Debian, with debootstrap. nginx's Lua module comes with a LuaJIT that takes the place of Debian's, so it is never
# installed on the machine itself. LOAD=seconds (10) of each load, SOAK=seconds (20) of the one that watches memory.
# Checks: no failed request at 64 connections; rates against a constant answer and of batches against single runs
# (spec/hosts/nginx/bench.*); memory that stays; bad requests, clients that leave, reloads in mid-batch, a broken model file, a
# killed worker.
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=spec/hosts/lib/checks.sh
. spec/hosts/lib/checks.sh
load_s=${LOAD:-10} soak_s=${SOAK:-20}
root=$roots/nginx
url=http://127.0.0.1:8080
make_root "$root" nginx-light,libnginx-mod-http-lua,libgomp1,wrk,curl

copy_amp "$root/srv/amp"
rm -rf "$root/srv/app"
mkdir -p "$root/srv/app"
cp examples/hosts/nginx/*.lua examples/hosts/nginx/nginx.conf spec/hosts/nginx/bench.* spec/hosts/nginx/*.wrk.lua "$root/srv/app/"
luajit examples/hosts/nginx/make.lua "$root/srv/app" 1
luajit spec/hosts/nginx/models.lua "$root/srv/app"
cp "$root/srv/app/model.safetensors" "$root/srv/good.safetensors"
luajit -e 'io.write("[", ("0.5,"):rep(783), "0]")' >"$root/srv/digit"
chmod -R a+rX "$root/srv"

conf=nginx.conf
nginx() {
  chroot "$root" env LUA_PATH='/srv/amp/lua/?.lua;/srv/amp/lua/?/init.lua;;' AMP_LIBRARY=/srv/amp/libamp.so nginx -p /srv/app -c $conf "$@" 2>>"$roots/nginx.err"
}
post() { chroot "$root" curl -s -m 10 -o /dev/null -w '%{http_code}' --data-binary "$2" "$url/$1"; }
# Load of 64 connections: place, seconds, script of wrk, more; the log is $log
load() {
  place=$1 n=$2 script=$3
  shift 3
  log=$roots/load.log
  chroot "$root" wrk -t1 -c64 -d"${n}s" --latency -s "/srv/app/$script.wrk.lua" "$@" "$url/$place" >"$log"
}
rate() { awk '/^Requests\/sec/ { print $2 }' "$log"; }
clean() { grep -Eq 'Socket errors|Non-2xx' "$log" && { cat "$log"; echo 1; } || echo 0; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
workers() { pgrep -P "$(cat "$root/srv/app/nginx.pid")"; }
memory() { # KiB of the workers
  for pid in $(workers); do awk '/^VmRSS/ { print $2 }' "/proc/$pid/status"; done | awk '{ s += $1 } END { print s }'
}
is() { [ "$1" = "$2" ] && echo 0 || echo 1; }

nginx
trap 'nginx -s stop || true' EXIT
sleep 1
check 'the health page' "$(is "$(chroot "$root" curl -s -o /dev/null -w '%{http_code}' $url/health)" 200)"
check 'a digit, a row of numbers' "$(is "$(post classify @/srv/digit) $(post bump '[0,1,0,0,0,0,0,0]')" '200 200')"
check 'the row of numbers is told right' "$(chroot "$root" curl -s --data '[0,0,0,0,0,0.3,1,0.3]' $url/bump | grep -q '"end"' && echo 0 || echo 1)"
bad=''
for body in '[1, 2]' 'no picture' '[nan]' '[1,2,3,4,5,6,7,x]' ''; do bad="$bad$(post classify "$body") $(post bump "$body") "; done
check 'bad requests get 400' "$(is "$bad" '400 400 400 400 400 400 400 400 400 400 ')"

bad="$(post bump '[1e38,-1e38,1e38,1e39,0,0,0,0]') $(post classify "[$(yes 1e39, | head -n 783 | tr -d '\n')0]")"
check 'numbers that a float32 does not hold get 400' "$(is "$bad" '400 400')"

# -- A small model against a constant answer ------------------------------------------------------
load constant 2 bump; load bump 2 bump
for _ in 1 2 3; do
  load constant "$load_s" bump; constant=$(rate)
  load bump "$load_s" bump; bump=$(rate)
  echo "figure: constant $constant, 8-32-3 network $bump requests a second, $(ratio "$bump" "$constant")"
  check 'no failed request of /bump at 64 connections' "$(clean)"
done

# -- Memory -----------------------------------------------------------------------------------------
load bump 3 bump; load classify 3 digit
before=$(memory)
load bump $((soak_s * 4 / 5)) bump
check "no failed request over $((soak_s * 4 / 5)) s of /bump" "$(clean)"
done_bump=$(awk '/requests in/ { print $1 }' "$log")
load classify $((soak_s / 5)) digit
check "no failed request over $((soak_s / 5)) s of /classify" "$(clean)"
echo "figure: $(rate) digits as JSON a second"
after=$(memory)
echo "figure: workers hold $before KiB, then $after KiB after $done_bump and $(awk '/requests in/ { print $1 }' "$log") requests"
check 'memory stays' "$([ "$after" -lt $((before + before / 20 + 1024)) ] && echo 0 || echo 1)"

# -- What may go wrong -------------------------------------------------------------------------------
for _ in 1 2 3; do # 64 clients that leave while they wait
  chroot "$root" wrk -t1 -c64 -d20s -s /srv/app/digit.wrk.lua $url/classify >/dev/null 2>&1 &
  leaving=$!
  sleep 1
  kill -9 $leaving
  wait $leaving 2>/dev/null || true
done
sleep 0.2
check 'a request after clients that left in a batch' "$(is "$(post classify @/srv/digit)" 200)"
chroot "$root" curl -s $url/metrics >"$roots/metrics.log"
echo "figure: of the requests of one worker $(awk '/batcher_dropped/ { print $2 }' "$roots/metrics.log") were dropped, their clients had left"
check 'nobody waits any more' "$(is "$(awk '/batcher_waiting/ { print $2 }' "$roots/metrics.log")" 0)"

load classify 5 mixed
grep -q 'wrong answers: 0$' "$log" && s=0 || s=1
[ "$s" = 0 ] || cat "$log"
check 'wrong requests among others get 400, and they alone' "$s"

load classify 6 digit -H 'Connection: close' &
loading=$!
for _ in 1 2 3; do sleep 1; nginx -s reload; done
wait $loading
log=$roots/load.log
check 'no failed request over three reloads, in mid-batch' "$(clean)"

: >"$root/srv/app/stop"
load classify 5 digit &
loading=$!
while [ -e "$root/srv/app/stop" ]; do # in place, half of it at times: what make.lua's rename never shows
  head -c 3000 "$root/srv/good.safetensors" >"$root/srv/app/model.safetensors"
  cat "$root/srv/good.safetensors" >"$root/srv/app/model.safetensors"
  sleep 0.1
  [ -d "/proc/$loading" ] || rm "$root/srv/app/stop"
done
wait $loading || true
log=$roots/load.log
check 'a model file that is overwritten while workers serve' "$(clean)"
head -c 3000 "$root/srv/good.safetensors" >"$root/srv/app/model.safetensors"
nginx -s reload
sleep 1
check 'a worker with half a model file says 503 and lives' "$(is "$(post classify @/srv/digit) $(post bump '[0,1,0,0,0,0,0,0]')" '503 200')"
cp "$root/srv/good.safetensors" "$root/srv/app/model.safetensors"
nginx -s reload
sleep 1
check 'the whole file, and a reload' "$(is "$(post classify @/srv/digit)" 200)"

kill -9 "$(workers | head -1)"
sleep 1
check 'a worker that was killed is replaced' "$(is "$(post classify @/srv/digit)" 200)"

# -- One forward for many requests ------------------------------------------------------------------
nginx -s stop
sleep 1
conf=bench.conf
nginx
sleep 1
for model in mlp cnn; do
  for _ in 1 2; do
    load ${model}_one "$load_s" floats; one=$(rate)
    check "no failed request of $model, one by one" "$(clean)"
    load ${model}_batch "$load_s" floats; batch=$(rate)
    check "no failed request of $model, in batches" "$(clean)"
    echo "figure: $model one by one $one, in batches $batch requests a second, $(ratio "$batch" "$one")"
  done
done
load floats "$load_s" floats
echo "figure: the same request without a model $(rate) a second"

checked
