package image

// Kinds of records of file systems.
const (
	KindTmpfs        Kind = 60
	KindTmpfsInode   Kind = 61
	KindTmpfsFile    Kind = 62
	KindOverlay      Kind = 63
	KindOverlayInode Kind = 64
	KindOverlayDir   Kind = 65
	KindGofer        Kind = 66
	KindGoferInode   Kind = 67
	KindPseudo       Kind = 68
	KindErofs        Kind = 69
	KindErofsInode   Kind = 70
)

// Tmpfs is a tmpfs.
type Tmpfs struct {
	ID        ID     `cbor:"1,keyasint"`
	Source    string `cbor:"2,keyasint,omitempty"`
	Options   string `cbor:"3,keyasint,omitempty"`
	Dev       uint64 `cbor:"4,keyasint"`
	MaxPages  int64  `cbor:"5,keyasint,omitempty"`
	MaxInodes int64  `cbor:"6,keyasint,omitempty"`
	LastIno   uint64 `cbor:"7,keyasint"`
	Root      ID     `cbor:"8,keyasint"` // KindTmpfsInode
	// Inodes are all that have a name, each directory before what is in it,
	// the root first.
	Inodes []ID `cbor:"9,keyasint"`
	// NoAccount is set if the data is not charged to the container.
	NoAccount bool `cbor:"10,keyasint,omitempty"`
	// SharedDev is set if another file system has the device number too.
	SharedDev bool `cbor:"11,keyasint,omitempty"`
	// Upper is set if it is the upper layer of the container's root, whose
	// data may be in a file of the host.
	Upper bool `cbor:"12,keyasint,omitempty"`
}

// TmpfsInode is an inode of a tmpfs.
type TmpfsInode struct {
	ID    ID     `cbor:"1,keyasint"`
	FS    ID     `cbor:"2,keyasint"` // KindTmpfs
	Ino   uint64 `cbor:"3,keyasint"`
	Mode  uint32 `cbor:"4,keyasint"`
	UID   uint32 `cbor:"5,keyasint,omitempty"`
	GID   uint32 `cbor:"6,keyasint,omitempty"`
	Rdev  uint64 `cbor:"7,keyasint,omitempty"`
	Atime Time   `cbor:"8,keyasint"`
	Mtime Time   `cbor:"9,keyasint"`
	Ctime Time   `cbor:"10,keyasint"`
	Btime Time   `cbor:"11,keyasint"`
	// Xattrs are in the order of their names.
	Xattrs []Xattr `cbor:"12,keyasint,omitempty"`
	Target string  `cbor:"13,keyasint,omitempty"` // of a symbolic link
	// Of a directory:
	Entries []TmpfsEntry `cbor:"14,keyasint,omitempty"` // by cookie
	Cookie  int64        `cbor:"15,keyasint,omitempty"` // the newest
	Removed bool         `cbor:"16,keyasint,omitempty"`
	// Of a regular file:
	Size  int64     `cbor:"17,keyasint,omitempty"`
	Pages []FileRun `cbor:"18,keyasint,omitempty"`
	Seals uint32    `cbor:"19,keyasint,omitempty"`
	// Data are records of kind KindFileData, for a host file carried along.
	Data []ID `cbor:"20,keyasint,omitempty"`
	// Attributes are STATX_ATTR_IMMUTABLE and its like.
	Attributes uint64 `cbor:"21,keyasint,omitempty"`
}

// Xattr is an extended attribute.
type Xattr struct {
	_     struct{} `cbor:",toarray"`
	Name  string
	Value []byte
}

// TmpfsEntry is a name in a directory.
type TmpfsEntry struct {
	_      struct{} `cbor:",toarray"`
	Name   string
	Inode  ID
	Cookie int64
}

// FileRun says which frames pages of a file are in, one after the other.
type FileRun struct {
	_     struct{} `cbor:",toarray"`
	Page  int64    // the first
	Count int64    // how many
	Frame uint64   // offset of the first's frame in the memory of the sandbox
}

// TmpfsFile is the file system's part of an open regular file.
type TmpfsFile struct {
	ID     ID   `cbor:"1,keyasint"`
	Inode  ID   `cbor:"2,keyasint"`
	Writes bool `cbor:"3,keyasint,omitempty"`
}

// Overlay is an overlay.
type Overlay struct {
	ID      ID     `cbor:"1,keyasint"`
	Source  string `cbor:"2,keyasint,omitempty"`
	Options string `cbor:"3,keyasint,omitempty"`
	Dev     uint64 `cbor:"4,keyasint"`
	// Lower and Upper are file systems of the overlay's own.
	Lower []Ref `cbor:"5,keyasint,omitempty"`
	Upper Ref   `cbor:"6,keyasint,omitempty"`
	// Held are the directories of a mount by the guest: the lower ones, then
	// the upper one if HasUpper is set.
	Held     []Path `cbor:"7,keyasint,omitempty"`
	HasUpper bool   `cbor:"8,keyasint,omitempty"`
}

// OverlayInode is an inode of an overlay that has no name any more.
type OverlayInode struct {
	ID     ID     `cbor:"1,keyasint"`
	FS     ID     `cbor:"2,keyasint"`
	Mode   uint32 `cbor:"3,keyasint"` // the type
	Orphan bool   `cbor:"4,keyasint,omitempty"`
	Upper  Ref    `cbor:"5,keyasint,omitempty"`
	Lower  []Ref  `cbor:"6,keyasint,omitempty"`
}

// OverlayDir is a directory of several layers that is being listed.
type OverlayDir struct {
	ID      ID       `cbor:"1,keyasint"`
	Entries []Dirent `cbor:"2,keyasint"`
}

// Dirent is an entry of a listing.
type Dirent struct {
	_    struct{} `cbor:",toarray"`
	Name string
	Ino  uint64
	Type uint8
}

// Gofer is a tree of the host's files.
type Gofer struct {
	ID ID `cbor:"1,keyasint"`
	// Destination is that of the mount in the container's specification, "/"
	// for the root.
	Destination string `cbor:"2,keyasint"`
	Dev         uint64 `cbor:"3,keyasint"`
}

// GoferInode is a file of the host.
type GoferInode struct {
	ID    ID     `cbor:"1,keyasint"`
	FS    ID     `cbor:"2,keyasint"` // KindGofer
	Names string `cbor:"3,keyasint,omitempty"`
	Ino   uint64 `cbor:"4,keyasint"`
	Mode  uint32 `cbor:"5,keyasint"` // the type
}

// Pseudo is a file system whose files are computed.
type Pseudo struct {
	ID      ID     `cbor:"1,keyasint"`
	Type    string `cbor:"2,keyasint"`
	Source  string `cbor:"3,keyasint,omitempty"`
	Options string `cbor:"4,keyasint,omitempty"`
	Dev     uint64 `cbor:"5,keyasint"`
	// Values are what was written to its files and stays (/proc/sys), in the
	// order of the names.
	Values []NamedValue `cbor:"6,keyasint,omitempty"`
}

// NamedValue is the value of a setting.
type NamedValue struct {
	_     struct{} `cbor:",toarray"`
	Name  string
	Value string
}

// Erofs is an EROFS image of the host.
type Erofs struct {
	ID ID `cbor:"1,keyasint"`
	// Destination is that of the mount in the container's specification, "/"
	// for the root.
	Destination string `cbor:"2,keyasint"`
	// Identity is the image's superblock in hexadecimal: a restore takes no
	// other image.
	Identity string `cbor:"3,keyasint"`
	Dev      uint64 `cbor:"4,keyasint"`
}

// ErofsInode is a file of an EROFS image.
type ErofsInode struct {
	ID  ID     `cbor:"1,keyasint"`
	FS  ID     `cbor:"2,keyasint"` // KindErofs
	Nid uint64 `cbor:"3,keyasint"` // where the image has it
}
