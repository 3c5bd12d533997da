package shim

import (
	"log/slog"
	"time"

	"runsc/pkg/controlapi"
)

// noteRestoreLoaded says in the log that the container's image may be removed.
func (c *container) noteRestoreLoaded(n controlapi.RestoreLoadedNote) {
	slog.Info("restored: the image is not needed any more", "container", c.id, "bytes", n.Bytes, "took", time.Duration(n.Nanos))
}
