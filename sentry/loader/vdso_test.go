package loader

import (
	"testing"

	"runsc/sentry/arch/vdso"
	"runsc/sentry/clock"
	"runsc/sentry/mem"
)

func testVDSO(t *testing.T, mf *mem.File) VDSO {
	v, err := vdso.New(mf, clock.New())
	if err != nil {
		t.Fatal(err)
	}
	return v
}
