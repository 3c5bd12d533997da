// Command demo runs a container through the shim on a private containerd and prints what it said and
// how long each step took. It leaves nothing behind. test/demo.sh builds what it needs first.
package main
