// Package mem holds guest memory: the memfile with its frames and accounts,
// and the two small interfaces, UserBuf and Mappable, that join files and
// address spaces without either importing the other.
package mem
