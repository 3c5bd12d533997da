package image

import "testing"

// TestWarm fails for a structure that the encoder refuses.
func TestWarm(t *testing.T) { Warm() }
