package kernel

import "sync/atomic"

// user counts what RLIMIT_NPROC and RLIMIT_SIGPENDING limit per real user id
// (struct user_struct).
type user struct {
	uid        uint32
	tasks      int // k.mu guards
	sigPending atomic.Int64
}

// userLocked returns the record of a user id.
func (k *Kernel) userLocked(uid uint32) *user {
	u := k.users[uid]
	if u == nil {
		u = &user{uid: uid}
		k.users[uid] = u
	}
	return u
}

// moveUser moves a task from one user to another (setuid).
func (k *Kernel) moveUser(from, to uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.userLocked(from).tasks--
	k.userLocked(to).tasks++
}

func (k *Kernel) sigPendingOf(uid uint32) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.userLocked(uid).sigPending.Load()
}
