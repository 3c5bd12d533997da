package controlapi

import (
	"encoding/json"

	"runsc/pkg/imagefmt"
)

// MaxManifest bounds the manifest that a Sentry returns.
const MaxManifest = 2 << 20

// CheckpointRequest saves a container. The frame carries the three files of
// imagefmt.StateFiles in that order, empty and open for writing; the manifest
// comes back in the answer, and the shim puts it in place when all is durable.
//
// The container's tasks run on (or stay paused, if they were) after the call,
// also if it fails. With Exit a success leaves them paused: the shim then ends
// the container with SIGKILL, or, if it could not put the manifest in place,
// lets it go on with Resume.
//
// While the call runs, all other calls are answered. CancelCheckpoint makes it
// fail.
type CheckpointRequest struct {
	ID   string `json:"id"`
	Exit bool   `json:"exit,omitempty"`
	// Pod saves all containers of the sandbox; ID is the root's.
	Pod bool `json:"pod,omitempty"`
	// ValidateMetadata records size and mtime of open host files.
	ValidateMetadata bool `json:"validateMetadata,omitempty"`
	Compress         bool `json:"compress,omitempty"`
}

// CheckpointResponse answers CheckpointRequest.
type CheckpointResponse struct {
	// Manifest says everything but Created and the containers' names and
	// specs, which the shim fills in for the ids that it knows.
	Manifest *imagefmt.Manifest `json:"manifest"`
}

// Restore in a CreateContainerRequest makes the container from an image.
// CreateContainer checks what it can and reads nothing of the root file
// system, which may still change; StartContainer restores and runs it.
type Restore struct {
	// Image is the same for all containers restored from one image.
	Image string `json:"image"`
	// Container is the id of the container in the image, one of Manifest's.
	Container string `json:"container"`
	// Manifest is the image's, as read and checked by the shim.
	Manifest json.RawMessage `json:"manifest"`
	// Files are the indexes of the frame's descriptors of
	// imagefmt.StateFiles, in that order, open for reading.
	Files [len(imagefmt.StateFiles)]int `json:"files"`
	// ValidateMetadata asks to compare the open files with what the image
	// recorded of them. It has no effect on an image that recorded nothing.
	ValidateMetadata bool `json:"validateMetadata,omitempty"`
}

// RestoreLoadedNote says that all pages of a container's image were read: the
// image may be removed.
type RestoreLoadedNote struct {
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"` // of guest memory that were read
	Nanos int64  `json:"nanos"` // since StartContainer
}

// RestoreFailedNote says why a restored container was ended: its image turned
// out damaged when more of it was read. It precedes the ExitNote.
type RestoreFailedNote struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}
