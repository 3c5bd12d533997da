// Package mem holds guest memory: the memfile with its frames and accounts,
// and the two small interfaces, UserBuf and Mappable, that join files and
// address spaces without either importing the other.
//
// # Memfile
//
// File is one memfd per sandbox. Its offsets are cheap and plentiful (the
// file is sparse), its pages are not: a page is charged to an Account when it
// is allocated, is zero-filled, and carries a reference count. Space is
// handed out in windows of 2 MiB. A window belongs to one account and one
// kind, so that no page needs to remember whom it was charged to. An address
// space reserves a window for each 2 MiB of addresses that it touches and
// allocates pages in it congruent with the address, so that neighbouring host
// mappings merge whatever the order of the touches.
//
// Freed pages are dirty until they are punched out of the file in the
// background, in batches. A dirty page may be taken at once by an allocation
// that overwrites it entirely (copy-on-write does).
//
// The Sentry reads and writes a page that it has seldom used through
// pread(2)/pwrite(2), and a hot one through its own mapping of the file: the
// first touch of each page of a mapping costs as much as several system calls.
//
// # Images
//
// A FrameSet says which frames an image has, WritePages or a Snapshot writes
// them. A FrameMap brings them back, their contents when they are first used.
//
// # Locks
//
// File.reclaimMu comes before File.mu, which is a leaf. File.gate is held for reading around each write by the
// Sentry (BeginWrite), and nothing is locked inside it. Snapshot.mu is held
// while a piece is written to the image, FrameMap.mu and pendingWindow.mu
// while frames are found and placed: all are leaves. OnLimit hooks run
// without any lock of this package, but with those of the caller.
package mem
