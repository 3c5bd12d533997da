// Package cred holds credentials: user and group ids, capability sets and
// user namespaces, as credentials(7) and capabilities(7) describe them.
package cred
