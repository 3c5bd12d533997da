#!/bin/bash
# Builds what the private containerd of the tests needs, from Go modules pinned under test/tools:
# containerd, ctr, the runc shim, crictl, a stand-in for criu and a client of containerd into $RIG_DIR/bin, guest programs into $RIG_DIR/guest,
# images (no registry is asked) into $RIG_DIR/images. What is there already is kept.
#
#   build.sh [bin] [images] [busybox]     the first two without an argument; busybox is that image alone,
#                                         which needs no C compiler
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
: "${RIG_DIR:=$top/build/rig}"
tools=$top/test/tools
export CGO_ENABLED=0 GOFLAGS=-mod=readonly

# gobuild OUT MODULE PACKAGE builds one program unless OUT is newer than its module's pin.
gobuild() {
	[ "$1" -nt "$tools/$2/go.sum" ] && return
	echo "building $(basename "$1")" >&2
	nice go build -C "$tools/$2" -trimpath -buildvcs=false -ldflags '-s -w' -o "$1" "$3"
}

bin() {
	mkdir -p "$RIG_DIR/bin"
	for c in containerd ctr containerd-shim-runc-v2; do
		gobuild "$RIG_DIR/bin/$c" containerd github.com/containerd/containerd/v2/cmd/$c
	done
	gobuild "$RIG_DIR/bin/crictl" crictl sigs.k8s.io/cri-tools/cmd/crictl
	gobuild "$RIG_DIR/bin/criu" criu .
	[ "$RIG_DIR/bin/checkpointer" -nt "$tools/containerd/checkpointer/main.go" ] || rm -f "$RIG_DIR/bin/checkpointer"
	gobuild "$RIG_DIR/bin/checkpointer" containerd ./checkpointer
}

# guests compiles each C program of test/guest, a file or a directory of them, into a static binary of the same name.
guests() {
	local c o
	mkdir -p "$RIG_DIR/guest"
	for c in "$top"/test/guest/*.c "$top"/test/guest/*/; do
		o=$RIG_DIR/guest/$(basename "$c" .c)
		[ -d "$c" ] && set -- "$c"*.c || set -- "$c"
		[ -z "$(find "$c" -newer "$o" 2>/dev/null || echo missing)" ] || gcc -O2 -Wall -static -pthread -s -o "$o" "$@"
	done
}

mkimg() {
	mkdir -p "$RIG_DIR/images"
	go build -C "$tools/mkimg" -buildvcs=false -o "$RIG_DIR/mkimg" .
	"$RIG_DIR/mkimg" "$RIG_DIR/images" "$RIG_DIR/guest" "$@"
}

images() {
	guests
	mkimg
}

busybox() { mkimg busybox; }

[ $# -gt 0 ] || set -- bin images
for part; do
	case $part in
	bin | images | busybox) "$part" ;;
	*) echo "build.sh: unknown part $part" >&2; exit 2 ;;
	esac
done
