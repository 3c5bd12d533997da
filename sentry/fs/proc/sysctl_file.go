package proc

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

const (
	// maxSysctlText bounds a text; one page bounds what a write of numbers
	// looks at.
	maxSysctlText = 4096
	maxSysctlInts = pageSize - 1
)

// sysctlFile is an open file below /proc/sys. Numbers are read and written at
// offset 0 only: a second read is the end of the file, whatever the first one
// took, and a second write is ignored (__do_proc_dointvec with
// sysctl_writes_strict). Texts have positions (_proc_do_string).
type sysctlFile struct{ sysctlNode }

// Release implements vfs.FileOps.
func (sysctlFile) Release() {}

// Ready implements vfs.FileOps (DEFAULT_POLLMASK).
func (sysctlFile) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// ReadAt implements vfs.ReaderAt.
func (f sysctlFile) ReadAt(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	if f.perm&0o444 == 0 {
		return 0, unix.EPERM // proc_sys_call_handler
	}
	if off != 0 && f.numbers > 0 {
		return 0, nil
	}
	text := f.current(c) + "\n"
	if off >= int64(len(text)) {
		return 0, nil
	}
	text = text[off:]
	return dst.CopyOut([]byte(text[:min(len(text), dst.Len())]))
}

// WriteAt implements vfs.WriterAt.
func (f sysctlFile) WriteAt(c vfs.Caller, _ *vfs.File, src *mem.UserBuf, off int64) (int, int64, error) {
	if f.perm&0o222 == 0 {
		return 0, 0, unix.EPERM
	}
	total := src.Len()
	if total >= maxSysctlWrite {
		return 0, 0, unix.ENOMEM
	}
	data := make([]byte, min(total, maxSysctlText))
	n, err := src.CopyIn(data)
	if err != nil {
		return 0, 0, err
	}
	data = data[:n]
	took := total
	switch {
	case total == 0:
	case f.numbers == 0:
		err = f.writeText(c, data, off)
	case off == 0:
		if n > maxSysctlInts {
			data = data[:maxSysctlInts]
		}
		var left int
		left, err = f.writeInts(c, data)
		took = len(data) - left
	}
	if err != nil {
		return 0, 0, err
	}
	return took, off + int64(took), nil
}

// maxSysctlWrite is KMALLOC_MAX_SIZE, the most that one write brings.
const maxSysctlWrite = 4 << 20

// writeText stores what comes before a zero byte or the end of the line, at a
// position in the old text.
func (f sysctlFile) writeText(c vfs.Caller, data []byte, off int64) error {
	most := f.textMax
	if most == 0 {
		most = maxSysctlText
	}
	old := ""
	if off > 0 {
		if old = f.current(c); off > int64(len(old)) {
			return nil
		}
		old = old[:off]
	}
	for i, b := range data {
		if b == 0 || b == '\n' {
			data = data[:i]
			break
		}
	}
	text := old + string(data)
	return f.put(c, text[:min(len(text), most)])
}

// writeInts stores as many numbers as there are, and tells how many bytes it
// left: those after the last number.
func (f sysctlFile) writeInts(c vfs.Caller, data []byte) (left int, err error) {
	values := strings.Fields(f.current(c))
	text, stored := string(data), 0
	for i := 0; i < f.numbers; i++ {
		if text = strings.TrimLeft(text, sysctlSpace); text == "" {
			break
		}
		var v string
		if v, text, err = f.parse(text); err != nil {
			break
		}
		stored++
		if v == "" {
			continue
		}
		if i < len(values) {
			values[i] = v
		} else {
			values = append(values, v)
		}
	}
	if stored > 0 {
		// What came before a bad number has been stored.
		if e := f.put(c, strings.Join(values, "\t")); err == nil {
			err = e
		}
	} else if err == nil {
		err = unix.EINVAL
	}
	return len(strings.TrimLeft(text, sysctlSpace)), err
}

// sysctlSpace is what proc_skip_spaces passes over.
const sysctlSpace = " \t\n\v\f\r"

// parse takes a number off the front of a text that begins with no space
// (proc_get_long). An empty number is one to pass over.
func (f sysctlFile) parse(text string) (number, rest string, err error) {
	const most = 21 // bytes of a number
	head := text[:min(len(text), most)]
	digits, neg := strings.CutPrefix(head, "-")
	n, base := 0, 10
	if len(digits) > 1 && digits[0] == '0' {
		base = 8
		if len(digits) > 2 && digits[1]|0x20 == 'x' && isHex(digits[2]) {
			base, n = 16, 2
		}
	}
	from := n
	for n < len(digits) && (digits[n] >= '0' && digits[n] <= '7' || base >= 10 && digits[n] >= '0' && digits[n] <= '9' || base == 16 && isHex(digits[n])) {
		n++
	}
	end := len(head) - len(digits) + n
	if n == from || end == most || end < len(text) && !strings.ContainsRune(" \t\n", rune(text[end])) {
		return "", text, unix.EINVAL
	}
	v, e := strconv.ParseUint(digits[from:n], base, 64)
	if e != nil {
		return "", text, unix.EINVAL
	}
	number, ok := f.check(v, neg)
	if !ok {
		return "", text, unix.EINVAL
	}
	return number, text[end:], nil
}

func isHex(b byte) bool {
	b |= 0x20
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'f'
}

// check applies the bounds to a number.
func (f sysctlFile) check(v uint64, neg bool) (string, bool) {
	if f.long {
		if neg {
			return "", true
		}
		if v < uint64(f.min) || f.max != maxLong && v > uint64(f.max) {
			return "", false
		}
		return strconv.FormatUint(v, 10), true
	}
	if v > maxLong {
		return "", false
	}
	n := int64(v)
	if neg {
		n = -n
	}
	if f.round != nil && !neg {
		if n = f.round(n); n == 0 {
			return "", false
		}
	}
	if n < f.min || n > f.max {
		return "", false
	}
	return strconv.FormatInt(n, 10), true
}
