// Package state puts the parts of a checkpoint together: it stops containers,
// has the kernel and the files write their records and memory its pages, and
// undoes all that for a restore. What an object's record holds is the matter of
// the object's own package (its *_state.go); the bytes are package image's.
//
// Order of a save: tasks stop, records of all objects are written (which
// collects the frames of guest memory), the snapshot of those begins, tasks run
// on, the frames are written. Order of a restore: records are read, frames are
// allocated without their contents, objects are made, tasks start, contents
// come when they are needed and in the background.
package state
