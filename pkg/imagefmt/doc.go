// Package imagefmt is the outside of a checkpoint image: the names of its
// files, the manifest, and how a directory that anybody may have made is
// opened. The shim, which must not read guest state, and the Sentry, which
// must not see host paths, share it.
//
// An image is a flat directory of four regular files. The manifest is written
// last and renamed into place: a directory without one is not an image.
// docs/image-format.md describes all of it.
package imagefmt
