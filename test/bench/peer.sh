#!/bin/bash
# Builds gVisor's runsc, the peer that make bench compares with, in a scratch module under $RIG_DIR:
# nothing of it gets into this module.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
: "${RIG_DIR:=$top/build/rig}"
version=v0.0.0-20260905035102-160fafc42237
[ -x "$RIG_DIR/bin/runsc" ] && exit
mkdir -p "$RIG_DIR/peer" "$RIG_DIR/bin"
cd "$RIG_DIR/peer"
export CGO_ENABLED=0 GOFLAGS=-mod=mod
[ -f go.mod ] || go mod init rig/peer
go get "gvisor.dev/gvisor/runsc@$version"
nice go build -trimpath -ldflags '-s -w' -o "$RIG_DIR/bin/runsc" gvisor.dev/gvisor/runsc
