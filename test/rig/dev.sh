#!/bin/bash
# A private containerd to try the shim by hand; bin/ of this repository is first in its PATH.
#
#   dev.sh up             start it and import the images
#   dev.sh ctr ARGS...    ctr, e.g.: dev.sh ctr run --rm --runtime io.containerd.runsc.v1 localhost/busybox:1 x echo hi
#   dev.sh crictl ARGS... crictl
#   dev.sh log            the daemon's log, the shims' lines included
#   dev.sh down           end containers and the daemon, unmount, remove everything
#
# DEV_DIR (default /tmp/rr) holds all state; keep it short, for sockets lie below it.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
: "${RIG_DIR:=$top/build/rig}" "${DEV_DIR:=/tmp/rr}"
export PATH=$top/bin:$RIG_DIR/bin:$PATH TMPDIR=$DEV_DIR/tmp
export CONTAINERD_ADDRESS=$DEV_DIR/c.sock
export CONTAINER_RUNTIME_ENDPOINT=unix://$DEV_DIR/c.sock IMAGE_SERVICE_ENDPOINT=unix://$DEV_DIR/c.sock

running() { [ -f "$DEV_DIR/pid" ] && kill -0 "$(cat "$DEV_DIR/pid")" 2>/dev/null; }

up() {
	running && { echo "already up in $DEV_DIR"; return; }
	mkdir -p "$DEV_DIR/tmp"
	sed "s|@DIR@|$DEV_DIR|; s|@HANDLER@|runsc|" "$top/test/rig/config.toml" > "$DEV_DIR/config.toml"
	cd "$DEV_DIR" # containerd takes a shim that lies in its working directory before those in its PATH
	setsid nohup containerd -c "$DEV_DIR/config.toml" > "$DEV_DIR/log" 2>&1 < /dev/null &
	echo $! > "$DEV_DIR/pid"
	for _ in $(seq 100); do ctr version > /dev/null 2>&1 && break; sleep 0.1; done
	for ns in default k8s.io; do
		for i in "$RIG_DIR"/images/*.tar; do timeout -k 2 60 ctr -n $ns images import "$i" > /dev/null 2>&1; done
	done
	echo "up: CONTAINERD_ADDRESS=$CONTAINERD_ADDRESS"
}

down() {
	running || { echo "not up"; return; }
	local ns id
	for ns in $(timeout -k 2 10 ctr ns ls -q); do
		for id in $(timeout -k 2 10 ctr -n "$ns" c ls -q); do
			timeout -k 2 10 ctr -n "$ns" task rm -f "$id" > /dev/null 2>&1 || true
			timeout -k 2 10 ctr -n "$ns" c rm "$id" > /dev/null 2>&1 || true
		done
	done
	kill "$(cat "$DEV_DIR/pid")"
	while running; do sleep 0.1; done
	awk -v d="$DEV_DIR/" 'index($2, d) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
	rm -rf "$DEV_DIR"
}

cmd=${1:-}; shift || true
case $cmd in
up | down) "$cmd" ;;
ctr) exec timeout -k 2 "${CTR_TIMEOUT:-60}" ctr "$@" ;;
crictl) exec crictl -t 60s "$@" ;;
log) exec cat "$DEV_DIR/log" ;;
*) sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 2 ;;
esac
