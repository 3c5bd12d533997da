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

// addTasksLocked changes a user's number of tasks. The record goes with the
// last one, since a guest can change its user id as often as it likes; signals
// that are still charged to it keep theirs.
func (k *Kernel) addTasksLocked(uid uint32, n int) {
	u := k.userLocked(uid)
	if u.tasks += n; u.tasks <= 0 {
		delete(k.users, uid)
	}
}

// moveUser moves a task from one user to another (setuid).
func (k *Kernel) moveUser(from, to uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addTasksLocked(from, -1)
	k.addTasksLocked(to, 1)
}

func (k *Kernel) sigPendingOf(uid uint32) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u := k.users[uid]; u != nil {
		return u.sigPending.Load()
	}
	return 0
}
