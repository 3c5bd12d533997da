// Package ref counts references where Linux acts at the last one: open files,
// dentries, mounts. Memory itself is left to the garbage collector. A Kind
// counts the living objects of one sort, so that tests can report leaks.
package ref
