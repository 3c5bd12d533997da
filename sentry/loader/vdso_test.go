package loader

import (
	"testing"

	"runsc/sentry/mem"
)

func testVDSO(*testing.T, *mem.File) VDSO { return nil }
