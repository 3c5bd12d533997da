// Package loader fills a fresh address space from an executable: #! scripts,
// static and dynamic ELF files, the first stack with arguments, environment
// and auxiliary vector. It mirrors fs/exec.c, fs/binfmt_script.c and
// fs/binfmt_elf.c of Linux.
//
// The kernel calls Prepare, which follows #! lines to the file that will run,
// looks at that file for set-id bits and capabilities, and calls Load with a new
// MM, which only then replaces the old one: all errors are returned with the
// caller's process intact.
package loader
