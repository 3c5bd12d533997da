package tmpfs

import (
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// FSType is tmpfs for mount(2) with frames of mf charged to what account
// gives for the caller (nil: the memfile's own).
func FSType(mf *mem.File, account func(c vfs.Caller) *mem.Account) vfs.FSType {
	return vfs.FSType{
		Name: "tmpfs", NoDev: true, Check: CheckOption,
		New: func(c vfs.Caller, source, options string, _ vfs.MountFlags) (vfs.Filesystem, error) {
			cr := c.Cred()
			cfg := Config{Memory: mf, Source: source, UID: cr.FSUID, GID: cr.FSGID}
			if account != nil {
				cfg.Account = account(c)
			}
			if err := ParseOptions(&cfg, options); err != nil {
				return nil, err
			}
			return New(c, cfg), nil
		},
	}
}
