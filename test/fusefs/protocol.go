package fusefs

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Requests, enum fuse_opcode.
const (
	opLookup = 1 + iota
	opForget
	opGetattr
	opSetattr
)

const (
	opMkdir       = 9
	opUnlink      = 10
	opRmdir       = 11
	opRename      = 12
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opFsyncdir    = 30
	opAccess      = 34
	opCreate      = 35
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
	opRename2     = 45
)

// noReply is returned for requests that have none.
const noReply = unix.Errno(1 << 16)

// maxWrite is the most that one write brings.
const maxWrite = 128 << 10

// inHeader is the size of struct fuse_in_header.
const inHeader = 40

var le = binary.LittleEndian

// request is one message of the kernel.
type request struct {
	op     uint32
	unique uint64
	node   uint64
	body   []byte // after the header
}

func parse(b []byte) (*request, bool) {
	if len(b) < inHeader || int(le.Uint32(b)) != len(b) {
		return nil, false
	}
	// All numbers that a handler reads lie within the largest fixed part of a message.
	return &request{op: le.Uint32(b[4:]), unique: le.Uint64(b[8:]), node: le.Uint64(b[16:]), body: append(b[inHeader:], make([]byte, 88)...)}, true
}

func (r *request) u32(at int) uint32 { return le.Uint32(r.body[at:]) }
func (r *request) u64(at int) uint64 { return le.Uint64(r.body[at:]) }

// str is a name that ends with a zero byte.
func (r *request) str(at int) string {
	s, _, _ := bytes.Cut(r.body[at:], []byte{0})
	return string(s)
}

// rest is the data of a write, whose size its header tells.
func (r *request) rest(at int) []byte { return r.body[at:min(at+int(r.u32(16)), len(r.body))] }

func reply(unique uint64, body []byte, errno unix.Errno) []byte {
	if errno != 0 {
		body = nil
	}
	b := le.AppendUint32(nil, uint32(16+len(body)))
	b = le.AppendUint32(b, uint32(-int32(errno)))
	b = le.AppendUint64(b, unique)
	return append(b, body...)
}

// initOut is struct fuse_init_out: no feature is taken but writes of more than a page.
func initOut(*request) []byte {
	const bigWrites = 1 << 5
	b := make([]byte, 64)
	le.PutUint32(b[0:], 7)
	le.PutUint32(b[4:], 31)
	le.PutUint32(b[12:], bigWrites)
	le.PutUint16(b[16:], 32) // background requests
	le.PutUint16(b[18:], 24)
	le.PutUint32(b[20:], maxWrite)
	le.PutUint32(b[24:], 1)
	return b
}

// attr is struct fuse_attr.
func (n *node) attr() []byte {
	b := make([]byte, 88)
	le.PutUint64(b[0:], n.id)
	le.PutUint64(b[8:], uint64(len(n.data)))
	le.PutUint64(b[16:], uint64(len(n.data)+511)/512)
	le.PutUint32(b[60:], n.mode)
	le.PutUint32(b[64:], n.links)
	le.PutUint32(b[80:], 4096)
	return b
}

// attrOut is struct fuse_attr_out, valid for no time.
func (n *node) attrOut() []byte { return append(make([]byte, 16), n.attr()...) }

// entry is struct fuse_entry_out, valid for no time.
func (n *node) entry() []byte {
	return append(le.AppendUint64(nil, n.id), append(make([]byte, 32), n.attr()...)...)
}

// openOut is struct fuse_open_out.
func openOut() []byte { return make([]byte, 16) }

func writeOut(n int) []byte { return le.AppendUint64(nil, uint64(n)) }

// statfsOut is struct fuse_statfs_out: much room.
func statfsOut() []byte {
	b := make([]byte, 80)
	for i := range 5 {
		le.PutUint64(b[8*i:], 1<<30)
	}
	le.PutUint32(b[40:], 4096)
	le.PutUint32(b[44:], 255)
	le.PutUint32(b[48:], 4096)
	return b
}

// dirent is struct fuse_dirent; next is the offset to go on from.
func dirent(n *node, next uint64) []byte {
	b := le.AppendUint64(nil, n.id)
	b = le.AppendUint64(b, next)
	b = le.AppendUint32(b, uint32(len(n.name)))
	b = le.AppendUint32(b, n.mode&unix.S_IFMT>>12)
	b = append(b, n.name...)
	return append(b, make([]byte, -len(b)&7)...)
}
