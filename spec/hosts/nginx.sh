#!/bin/sh
# Runs examples/hosts/nginx in a root of its own, under load: sh spec/hosts/nginx.sh, or sh spec/hosts.sh nginx
#
# As root, on Debian, with debootstrap. nginx's Lua module comes with a LuaJIT that takes the place of Debian's, so it is never
# installed on the machine itself. LOAD=seconds (10) of the loads that are to be without a failed request, PAIRS=number (5) of pairs of
# loads of 2 s that are compared, SOAK=millions (1) of runs over which memory is watched.
# Checks: no failed request at 64 connections; rates against a constant answer and of batches against single runs
# (spec/hosts/nginx/bench.*); memory that stays; bad requests, clients that leave, reloads in mid-batch, a broken model file, a
# killed worker.
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=spec/hosts/lib/checks.sh
. spec/hosts/lib/checks.sh
load_s=${LOAD:-10} pairs=${PAIRS:-5} soak=${SOAK:-1}
root=$roots/nginx
url=http://127.0.0.1:8080
make_root "$root" nginx-light,libnginx-mod-http-lua,libgomp1,wrk,curl

copy_amp "$root/srv/amp"
rm -rf "$root/srv/app"
mkdir -p "$root/srv/app"
cp examples/hosts/nginx/*.lua examples/hosts/nginx/nginx.conf spec/hosts/nginx/bench.* spec/hosts/nginx/soak.lua spec/hosts/nginx/rude.pl spec/hosts/nginx/*.wrk.lua "$root/srv/app/"
luajit examples/hosts/nginx/make.lua "$root/srv/app" 1
luajit spec/hosts/nginx/models.lua "$root/srv/app"
cp "$root/srv/app/model.safetensors" "$root/srv/good.safetensors"
luajit -e 'io.write("[", ("0.5,"):rep(783), "0]")' >"$root/srv/digit"
sed "s/require('app').start/require('soak').start/" examples/hosts/nginx/nginx.conf >"$root/srv/app/soak.conf"
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
# Loads of 2 s in turn, so that who else works on the machine slows both: the rates of the second as parts of the first's
compare() { # what, place, place, script
  what=$1 first=$2 second=$3 script=$4 bad=0
  : >"$roots/pairs"
  load "$first" 1 "$script"; load "$second" 2 "$script"
  for _ in $(seq "$pairs"); do
    load "$first" 2 "$script"; bad=$((bad + $(clean | tail -n 1))); a=$(rate)
    load "$second" 2 "$script"; bad=$((bad + $(clean | tail -n 1))); b=$(rate)
    echo "$(ratio "$b" "$a") $a $b" >>"$roots/pairs"
  done
  sort -n "$roots/pairs" | awk -v what="$what" '{ r[NR] = $1; a[NR] = $2; b[NR] = $3 }
    END { m = int((NR + 1) / 2); printf "figure: %s: %s in the median of %d pairs (%s to %s), there %s and %s requests a second\n", what, r[m], NR, r[1], r[NR], a[m], b[m] }'
  check "no failed request: $what" "$bad"
}
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
compare 'an 8-32-3 network against a constant answer' constant bump bump
load bump "$load_s" bump
check "no failed request of /bump in $load_s s" "$(clean)"
load classify "$load_s" digit
check "no failed request of /classify in $load_s s" "$(clean)"
echo "figure: $(rate) digits as JSON a second"

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

load classify 6 digit &
loading=$!
sleep 1
chroot "$root" perl /srv/app/rude.pl 8080 /srv/digit && s=0 || s=1
wait $loading
log=$roots/load.log
check 'clients that leave in the middle of a request or before the answer' "$s"
check 'no failed request of others meanwhile' "$(clean)"
sleep 0.2
for _ in 1 2 3 4; do # of both workers, perhaps
  chroot "$root" curl -s $url/metrics | awk '/batcher_(waiting|dropped)/' >>"$roots/metrics.log"
done
check 'nobody waits any more' "$(awk '/batcher_waiting/ && $2 > 0 { n++ } END { print n + 0 }' "$roots/metrics.log")"

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

load classify 4 digit &
loading=$!
sleep 2
kill -9 "$(workers | head -1)" # its connections end; wrk opens others
wait $loading || true
log=$roots/load.log
check 'a worker that is killed in mid-batch: no wrong answer' "$(grep -q 'Non-2xx' "$log" && echo 1 || echo 0)"
check 'it is replaced' "$(is "$(post classify @/srv/digit) $(workers | wc -l)" '200 2')"

# -- One forward for many requests ------------------------------------------------------------------
nginx -s stop
sleep 1
conf=bench.conf
nginx
sleep 1
compare 'an MLP 784-256-10 in batches against one by one' mlp_one mlp_batch floats
compare "the quickstart's network in batches against one by one" cnn_one cnn_batch floats
compare "an MLP 784-256-10 one by one against a request without a model" floats mlp_one floats
compare "the quickstart's network one by one against a request without a model" floats cnn_one floats
chroot "$root" curl -s $url/stats | sed 's/^/figure: /'
AMP_LIBRARY=$root/srv/amp/libamp.so luajit spec/hosts/nginx/process.lua "$root/srv/app"
load mlp_batch 4 nan
grep -q 'wrong answers: 0$' "$log" && s=0 || s=1
[ "$s" = 0 ] || cat "$log"
check 'samples of NaN in a batch are NaN alone' "$s"

# -- Memory -----------------------------------------------------------------------------------------
nginx -s stop
sleep 1
conf=soak.conf
nginx
sleep 3
runs() { chroot "$root" curl -s $url/metrics | awk '/amp_runs/ { print $2 }'; }
before=$(memory) most=0
chroot "$root" wrk -t1 -c64 -d3600s -s /srv/app/bump.wrk.lua $url/bump >/dev/null 2>&1 &
loading=$!
for tenth in 1 2 3 4 5 6 7 8 9 10; do
  until [ "$(runs)" -ge $((soak * 100000 * tenth)) ]; do sleep 1; done
  after=$(memory)
  echo "figure: $(runs) runs and $(chroot "$root" curl -s $url/metrics | awk '/status_200/ { print $2 }') requests: the workers hold $after KiB (at the start $before)"
  [ "$tenth" != 1 ] || before=$after # what is made once is made
  [ "$after" -le "$most" ] || most=$after
done
kill $loading
check 'memory stays' "$([ "$most" -lt $((before + before / 20 + 1024)) ] && echo 0 || echo 1)"

checked
