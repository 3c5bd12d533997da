// Package pseudo builds file systems whose files are computed when they are
// looked at: proc, sys and the like.
//
// Such a file system is a set of Node values, which say what a name means. A
// Node is made by its directory's Lookup and has no state of its own; an inode
// is put around it while vfs holds it, and nothing stays afterwards. Inode
// numbers are computed from the path of names, so that getdents and stat agree
// without remembering anything.
//
// A readable file's content is generated at the first read, and again at each
// read from offset 0, like Linux's seq_file; reads at other offsets see the
// same content.
package pseudo
