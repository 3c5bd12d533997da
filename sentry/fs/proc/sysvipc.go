package proc

import (
	"bytes"
	"fmt"

	"runsc/sentry/kernel"
	"runsc/sentry/sysvipc"
	"runsc/sentry/vfs"
)

// Headings of the files of /proc/sysvipc (sysvipc_msg_proc_show and its like).
const (
	msgHead = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n"
	semHead = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n"
	shmHead = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n"
)

// sysv returns the System V objects that the reader sees, those of its own
// namespace; nil for the Sentry.
func sysv(c vfs.Caller) *sysvipc.Namespace {
	if t, ok := c.(*kernel.Task); ok {
		return t.IPC().SysV()
	}
	return nil
}

func (in *instance) sysvMsg(c vfs.Caller, b *bytes.Buffer) error {
	b.WriteString(msgHead)
	if n := sysv(c); n != nil {
		for _, q := range n.MsgQueues() {
			p := &q.Perm
			fmt.Fprintf(b, "%10d %10d  %4o  %10d %10d %5d %5d %5d %5d %5d %5d %10d %10d %10d\n",
				p.Key, q.ID, p.Mode, q.Bytes, q.Messages, q.LSPID, q.LRPID, p.UID, p.GID, p.CUID, p.CGID, q.Stime, q.Rtime, q.Ctime)
		}
	}
	return nil
}

func (in *instance) sysvSem(c vfs.Caller, b *bytes.Buffer) error {
	b.WriteString(semHead)
	if n := sysv(c); n != nil {
		for _, s := range n.Sets() {
			p := &s.Perm
			fmt.Fprintf(b, "%10d %10d  %4o %10d %5d %5d %5d %5d %10d %10d\n",
				p.Key, s.ID, p.Mode, s.Count, p.UID, p.GID, p.CUID, p.CGID, s.Otime, s.Ctime)
		}
	}
	return nil
}

func (in *instance) sysvShm(c vfs.Caller, b *bytes.Buffer) error {
	b.WriteString(shmHead)
	if n := sysv(c); n != nil {
		for _, s := range n.Segments() {
			p := &s.Perm
			fmt.Fprintf(b, "%10d %10d  %4o %21d %5d %5d  %5d %5d %5d %5d %5d %10d %10d %10d %21d %21d\n",
				p.Key, s.ID, p.Mode, s.Size, s.CPID, s.LPID, s.Attached, p.UID, p.GID, p.CUID, p.CGID, s.Atime, s.Dtime, s.Ctime, s.Resident, 0)
		}
	}
	return nil
}
