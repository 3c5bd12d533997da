package shim

import (
	"os"
	"strings"
	"testing"
)

func TestParseOverlay(t *testing.T) {
	tests := []struct {
		in, bad string
		want    overlayMode
	}{
		{"", "", overlayMode{medium: mediumMemory}},
		{"none", "", overlayMode{medium: mediumNone}},
		{"root:memory", "", overlayMode{medium: mediumMemory}},
		{"root:memory,size=2g", "", overlayMode{medium: mediumMemory, size: 2 << 30}},
		{"root:self", "", overlayMode{medium: mediumSelf}},
		{"root:self,size=4096", "", overlayMode{medium: mediumSelf, size: 4096}},
		{"root:dir=/x/../y", "", overlayMode{medium: mediumDir, dir: "/y"}},
		{"root:dir=/x,size=1K", "", overlayMode{medium: mediumDir, dir: "/x", size: 1024}},
		{"root:dir=/a,b", "", overlayMode{medium: mediumDir, dir: "/a,b"}},
		{"root:dir=x", "not an absolute path", overlayMode{}},
		{"root:dir=", "not an absolute path", overlayMode{}},
		{"all:memory", "are possible", overlayMode{}},
		{"root:", "are possible", overlayMode{}},
		{"root:memory,size=", "size", overlayMode{}},
		{"root:memory,size=0", "size", overlayMode{}},
		{"root:memory,size=-1", "size", overlayMode{}},
		{"root:memory,size=9999999999999t", "size", overlayMode{}},
		{"none,size=1", "are possible", overlayMode{}},
	}
	for _, tt := range tests {
		got, err := parseOverlay(tt.in)
		if tt.bad != "" {
			if err == nil || !strings.Contains(err.Error(), tt.bad) {
				t.Errorf("%q: %v", tt.in, err)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("%q: %+v, %v", tt.in, got, err)
		}
	}
}

func TestOverlayAnnotation(t *testing.T) {
	conf := &config{Overlay2: "root:dir=/x"}
	for v, want := range map[string]string{"root:self": mediumSelf, "none": mediumNone, "root:dir=/x": mediumDir, "root:dir=/y": "", "x": ""} {
		o, err := overlayOf(conf, map[string]string{annotationOverlay: v})
		if (err != nil) != (want == "") || err == nil && o.medium != want {
			t.Errorf("%q: %+v, %v", v, o, err)
		}
	}
}

func TestAnonymousFile(t *testing.T) {
	dir := t.TempDir()
	f, err := anonymousFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		t.Error(err)
	}
	if l, _ := os.ReadDir(dir); len(l) != 0 {
		t.Errorf("the file has a name: %v", l)
	}
}
