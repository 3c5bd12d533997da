// Package image is the checkpoint image: an explicit, versioned schema of flat
// records with ids for references, and the files they are in.
//
// A directory holds manifest.json (written last), kernel.img (records),
// pages.idx and pages.img (guest memory). docs/image-format.md describes the
// bytes. Everything read from an image is hostile: sizes are bounded, checksums
// checked, and what a record says is validated by the package it belongs to.
//
// The packages that own the objects convert them (their *_state.go); this
// package knows no kernel object. Saver and Restorer keep the ids.
package image
