package cred

// Secure bits of capabilities(7).
const (
	SecNoRoot        = 1 << 0
	SecNoSetuidFixup = 1 << 2
	SecKeepCaps      = 1 << 4
	SecNoAmbient     = 1 << 6
)

// Root returns the credentials of user 0 with every capability.
func Root() *Creds {
	return &Creds{Permitted: AllCaps, Effective: AllCaps, Bounding: AllCaps}
}
