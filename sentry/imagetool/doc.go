// Package imagetool is the command "image" of the binary: it shows and checks
// checkpoint images. It trusts nothing in them, restores nothing and needs no
// containerd.
//
// main.go has the command line, inspect.go shows the manifest, records.go what
// the records say, verify.go reads everything and checks every checksum.
package imagetool
