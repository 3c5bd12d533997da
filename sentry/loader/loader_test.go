package loader

import (
	"encoding/binary"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/mm"
)

func newMM(t testing.TB) (*mm.MM, *mem.Account) {
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	acct := mem.NewAccount(nil, 0)
	m := mm.New(mf, acct, nil, testLimits)
	t.Cleanup(mf.Close)
	return m, acct
}

func TestScripts(t *testing.T) {
	files := map[string]string{
		"/bin/elf":  "\x7fELF",
		"/bin/s1":   "#! /bin/elf -x  y \nrest",
		"/bin/s2":   "#!/bin/s1\n",
		"/bin/loop": "#!/bin/loop\n",
	}
	open := func(path string) (Executable, error) {
		if f, ok := files[path]; ok {
			return &memExe{data: f, hostExe: hostExe{path: path}}, nil
		}
		return nil, unix.ENOENT
	}
	tests := []struct {
		name, text string
		argv       []string
		want       []string
		err        error
	}{
		{"plain", "#!/bin/elf\n", []string{"a", "b"}, []string{"/bin/elf", "file", "b"}, nil},
		{"argument", "#! \t/bin/elf  one two \t\nx", []string{"a"}, []string{"/bin/elf", "one two", "file"}, nil},
		{"no newline", "#!/bin/elf", []string{"a"}, []string{"/bin/elf", "file"}, nil},
		{"nested", "#!/bin/s2 q\n", []string{"a", "z"}, []string{"/bin/elf", "-x  y", "/bin/s1", "/bin/s2", "q", "file", "z"}, nil},
		{"empty", "#!\n", nil, nil, unix.ENOEXEC},
		{"blank", "#!   \n", nil, nil, unix.ENOEXEC},
		{"missing", "#!/nowhere\n", nil, nil, unix.ENOENT},
		{"loop", "#!/bin/loop\n", nil, nil, unix.ELOOP},
		{"long name", "#!/" + strings.Repeat("x", 300) + "\n", nil, nil, unix.ENOEXEC},
		{"long argument", "#!/bin/elf " + strings.Repeat("x", 300) + "\n", []string{"a"}, []string{"/bin/elf", strings.Repeat("x", 254-len("/bin/elf ")-1), "file"}, nil},
		{"nul", "#!/bin/elf\x00junk\n", []string{"a"}, []string{"/bin/elf", "file"}, nil},
		{"no script", "\x7fELF", nil, []string{""}, nil},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			e := &Exec{File: script(c.text), Filename: "file", Argv: c.argv, Open: open, StackLimit: 8 << 20}
			err := e.Prepare()
			if err != c.err || err == nil && !reflect.DeepEqual(e.Argv, c.want) {
				t.Errorf("got %q, %v, want %q, %v", e.Argv, err, c.want, c.err)
			}
		})
	}
	e := &Exec{File: script("#!/bin/elf\n"), Filename: "/dev/fd/3", Inaccessible: true, Open: open, StackLimit: 8 << 20}
	if err := e.Prepare(); err != unix.ENOENT {
		t.Errorf("inaccessible: %v", err)
	}
}

func TestArgLimits(t *testing.T) {
	long := strings.Repeat("x", 131071)
	tests := []struct {
		name  string
		argv  []string
		stack uint64
		want  error
	}{
		{"longest", []string{long}, 8 << 20, nil},
		{"too long", []string{long + "x"}, 8 << 20, unix.E2BIG},
		{"a quarter of the stack", []string{long, long, long}, 1 << 20, unix.E2BIG},
		{"small stack", []string{long[:131060]}, 4096, nil},
		{"small stack, more", []string{long, "x"}, 4096, unix.E2BIG},
		{"no limit", make([]string, 900000), ^uint64(0), unix.E2BIG},
		{"many", make([]string, 600000), ^uint64(0), nil},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			if err := CheckArgs(c.argv, nil, c.stack); err != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// TestStack checks the first stack of a real program.
func TestStack(t *testing.T) {
	m, acct := newMM(t)
	exe, err := openHost("/usr/bin/busybox")
	if err != nil {
		t.Skip(err)
	}
	e := &Exec{
		File: exe, Filename: "/bin/x", Argv: []string{"x", "", "arg two"}, Envv: []string{"A=1", "B=2"},
		StackLimit: 8 << 20, UID: 1, EUID: 2, GID: 3, EGID: 4, Secure: true, Open: openHost,
	}
	if err := e.Prepare(); err != nil {
		t.Fatal(err)
	}
	img, err := e.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	word := func(a uint64) uint64 {
		var b [8]byte
		if _, err := m.CopyIn(b[:], a); err != nil {
			t.Fatalf("%#x: %v", a, err)
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	str := func(a uint64) string {
		b := make([]byte, 64)
		n, _ := m.CopyIn(b, a)
		s, _, _ := strings.Cut(string(b[:n]), "\x00")
		return s
	}
	if img.SP%16 != 0 || word(img.SP) != 3 {
		t.Fatalf("sp %#x argc %d", img.SP, word(img.SP))
	}
	var got []string
	p := img.SP + 8
	for _, n := range []int{3, 2} {
		for i := 0; i < n; i++ {
			got = append(got, str(word(p)))
			p += 8
		}
		if word(p) != 0 {
			t.Fatal("no end of vector")
		}
		p += 8
	}
	if !reflect.DeepEqual(got, []string{"x", "", "arg two", "A=1", "B=2"}) {
		t.Errorf("strings %q", got)
	}
	aux := map[uint64]uint64{}
	for ; word(p) != atNull; p += 16 {
		aux[word(p)] = word(p + 8)
	}
	if aux[atUID] != 1 || aux[atEGID] != 4 || aux[atSecure] != 1 || aux[atPagesz] != 4096 || aux[atPhent] != 56 || aux[atHwcap2]&2 != 0 {
		t.Errorf("aux %v", aux)
	}
	if str(aux[atExecfn]) != "/bin/x" || str(aux[atPlatformName]) != "x86_64" || word(aux[atRandom]) == 0 {
		t.Error("aux strings")
	}
	if k := word(aux[atPhdr]); uint32(k) == 0 || aux[atEntry] != img.Entry {
		t.Errorf("phdr %#x entry %#x", k, aux[atEntry])
	}
	info := m.Info()
	b := make([]byte, info.ArgEnd-info.ArgStart)
	m.CopyIn(b, info.ArgStart)
	if string(b) != "x\x00\x00arg two\x00" {
		t.Errorf("cmdline %q", b)
	}
	if start, end := m.BrkStart(); start == 0 || start != end {
		t.Errorf("brk %#x %#x", start, end)
	}
	names := ""
	m.MapsFor(func(v mm.VMAInfo) { names += v.Name + " " })
	if !strings.Contains(names, "/usr/bin/busybox") || !strings.Contains(names, "[stack]") {
		t.Errorf("maps %q", names)
	}
	m.DecUsers()
	if acct.Total() != 0 {
		t.Errorf("%d bytes left", acct.Total())
	}
}

func elfWith(change func(b []byte)) string {
	b, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		return ""
	}
	change(b)
	return string(b)
}

func TestBadELF(t *testing.T) {
	le := binary.LittleEndian
	tests := []struct {
		name string
		data string
		want error
	}{
		{"empty", "", unix.ENOEXEC},
		{"text", "hello", unix.ENOEXEC},
		{"magic only", "\x7fELF", unix.ENOEXEC},
		{"arm64", elfWith(func(b []byte) { le.PutUint16(b[18:], 183) }), unix.ENOEXEC},
		{"32 bit", elfWith(func(b []byte) { b[4] = 1 }), unix.ENOEXEC},
		{"relocatable", elfWith(func(b []byte) { le.PutUint16(b[16:], 1) }), unix.ENOEXEC},
		{"no segments", elfWith(func(b []byte) { le.PutUint16(b[56:], 0) }), unix.ENOEXEC},
		{"phoff", elfWith(func(b []byte) { le.PutUint64(b[32:], 1<<63) }), unix.ENOEXEC},
		{"phoff beyond", elfWith(func(b []byte) { le.PutUint64(b[32:], 1<<40) }), unix.ENOEXEC},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			m, acct := newMM(t)
			e := &Exec{File: script(c.data), Filename: "f", Open: openHost, StackLimit: 8 << 20}
			err := e.Prepare()
			if err == nil {
				_, err = e.Load(m)
			}
			if err != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
			m.DecUsers()
			if acct.Total() != 0 {
				t.Errorf("%d bytes left", acct.Total())
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	head := elfWith(func([]byte) {})
	if len(head) > 4096 {
		f.Add([]byte(head[:4096]))
	}
	if b, err := os.ReadFile("/usr/bin/true"); err == nil {
		f.Add(b[:min(len(b), 4096)])
	}
	f.Add([]byte("#!/bin/sh -x\n"))
	mf, err := mem.New()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		acct := mem.NewAccount(nil, 16<<20)
		m := mm.New(mf, acct, nil, testLimits)
		e := &Exec{
			File: script(string(data)), Filename: "f", Argv: []string{"f"}, StackLimit: 8 << 20,
			Open: func(string) (Executable, error) { return script(string(data)), nil },
		}
		if e.Prepare() == nil {
			_, err = e.Load(m)
		}
		if err != nil {
			if _, ok := err.(unix.Errno); !ok {
				t.Errorf("error %v", err)
			}
		}
		m.DecUsers()
		if acct.Total() != 0 {
			t.Errorf("%d bytes left", acct.Total())
		}
	})
}
