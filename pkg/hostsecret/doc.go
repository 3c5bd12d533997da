// Package hostsecret keeps the one secret of a host from which the inode
// numbers that guests see are computed. All sandboxes of a host share it, so
// that a host file has the same number in each of them and after a restart.
package hostsecret
