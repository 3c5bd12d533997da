// Package dev implements the character devices that every container has:
// null, zero, full, random, urandom and the controlling terminal's node. It
// mirrors drivers/char/mem.c and drivers/char/random.c of Linux.
//
// Nodes are ordinary inodes of the file system that /dev is on; opening one
// finds its device here by number.
package dev
