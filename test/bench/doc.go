// Command bench measures this runtime beside others in one run: the host itself, runc, and gVisor's
// runsc when test/bench/peer.sh built it. It prints nanoseconds of single operations and their
// ratios, the time of whole container runs, the parts of a start, and memory at rest. It never fails
// for being slow.
//
//	go run ./test/bench [-only ops|spin|run|start|memory|checkpoint|files] [-files N] [NAME...]
//
// NAMEs select operations of the guest program bench, or with -only checkpoint of idle, memory, restore
// and files. Part files has -files N files; with a million gVisor needs minutes.
package main
