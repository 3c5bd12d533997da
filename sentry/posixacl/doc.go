// Package posixacl is access control lists as acl(5) describes them: their
// form in extended attributes, the access check, what creation and chmod(2) do
// with them. It mirrors fs/posix_acl.c of Linux. It holds no state: lists are
// values that nobody changes.
package posixacl
