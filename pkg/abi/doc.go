// Package abi converts between flat structures of the Linux ABI and bytes.
package abi
