#!/bin/bash
# make demo: on a Debian 12 with Go and root, builds the shim and a private containerd (a few
# minutes the first time), and runs containers through them. See test/demo.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
[ "$(id -u)" = 0 ] || { echo "demo: needs root" >&2; exit 1; }
export CGO_ENABLED=0
test/apt.sh ca-certificates busybox-static make
make -s build
test/rig/build.sh bin busybox
go run ./test/demo
