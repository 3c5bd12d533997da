//go:build system

package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runsc/test/rig"
)

// sh is the arguments of a shell script.
func sh(script string) []string { return []string{"sh", "-c", script} }

// jobs exercises what a shell does with processes: background jobs, wait, traps, here-documents,
// fifos, subshells, pipelines, redirections.
const jobs = `
cd /tmp
trap 'echo leaving with $?' EXIT
trap 'echo got usr1' USR1
mkfifo go
(read x < go; echo first) & a=$!
(sleep 0.1; exit 3) & b=$!
wait $b; echo "second said $?"
echo > go
wait $a; echo "first said $?"
cat <<EOT
here is $((6 * 7))
EOT
cat <<'EOT' | tr a-z A-Z
quoted $HOME
EOT
mkfifo pipe
(for i in 1 2 3; do echo line $i; done > pipe) &
while read l; do echo "fifo: $l"; done < pipe
wait
kill -USR1 $$
(x=inner; cd /; (x=deeper; echo $x $PWD); echo $x $PWD)
echo "$x $PWD"
echo one two three | { read p q; echo "$q/$p"; }
{ echo out; echo err >&2; } 2>&1 >/dev/null | sed 's/^/captured /'
set -- a b c; shift; echo $# $*
f() { local v=$1; [ $v -gt 0 ] && { f $((v - 1)); return $v; }; return 0; }
f 5; echo "f gave $?"
yes | head -n 100000 | wc -l
{ sleep 100 & kill $!; wait $!; } 2> /dev/null; echo "killed gives $?"
sh -c 'kill -STOP $$; echo continued' & c=$!; sleep 0.3; kill -CONT $c; wait $c
exec 3> out3; echo through three >&3; exec 3>&-; cat out3
false || true && ! false && echo logic
exit 5
`

// TestRun compares commands with runc.
func TestRun(t *testing.T) {
	begin(t)
	tests := []struct {
		name string
		args []string
	}{
		{"echo", []string{"echo", "hi"}},
		{"exit code", sh("exit 7")},
		{"stderr", sh("echo to stderr >&2; exit 1")},
		{"pipeline", sh("seq 100000 | sort -rn | head -3")},
		{"find", sh("find / -xdev | wc -l")},
		{"find listing", sh("find / -xdev -path /proc -prune -o -print | grep -v '^/dev' | sort | sha256sum")},
		{"copy and hash", sh("cp -r /bin /tmp/x && find /tmp/x -type f | wc -l && sha256sum /tmp/x/busybox")},
		{"dd", sh("dd if=/dev/zero of=/tmp/f bs=1M count=64 2>/dev/null && wc -c < /tmp/f && sha256sum /tmp/f")},
		{"jobs", sh(jobs)},
		{"kill a child", sh(`sh -c "kill -9 \$\$"; echo $?`)},
		{"kill -9 by init to itself", sh("kill -9 $$; echo alive")},
		{"pid", sh("echo $$; sh -c 'echo $PPID'")},
		{"identity", sh("id; cat /proc/self/status | grep -E '^(Uid|Gid|Groups|CapEff|CapBnd|NoNewPrivs)'")},
		{"hostname", []string{"hostname"}},
		{"uid of files", sh("stat -c '%a %u %g %h %s %n' /bin/busybox /etc/passwd /tmp /home/user /proc/1/exe /dev/null")},
		{"devices", sh("stat -c '%n %F %a %u %g %t %T' /dev/* | grep -v -e shm -e mqueue | sort")},
		{"mounts", sh("cut -d' ' -f2,3 /proc/mounts | grep -v '^/proc/' | sort")}, // what is masked depends on what there is
		{"ps", sh("ps -o pid,args | grep -v ps")},
		{"environment", sh("env | sort")},
		{"ulimit", sh("ulimit -n; ulimit -Hn")},
		{"umask", sh("umask; touch /tmp/a; mkdir /tmp/b; stat -c %a /tmp/a /tmp/b")},
		{"links", sh("cd /tmp; echo x > a; ln a b; ln -s a c; stat -c '%h %F' a c; rm a; cat b; cat c; readlink c")},
		{"rename over", sh("cd /tmp; echo 1 > a; echo 2 > b; mv a b; cat b; ls; mkdir d; mv b d/; ls d; rmdir d; echo $?")},
		{"whiteout", sh("rm /etc/passwd; ls /etc; echo new > /etc/passwd; cat /etc/passwd; rm -r /etc/group; mkdir /etc/group; ls -F /etc")},
		{"permissions", sh("chmod 000 /etc/passwd; su user -c 'cat /etc/passwd' 2>&1; chown 1000:1000 /etc/group; stat -c %u:%g /etc/group")},
		{"tar", sh("tar c /bin/busybox /etc 2>/dev/null | tar t | sort")},
		{"gzip", sh("gzip -c /bin/busybox | gunzip -c | cmp - /bin/busybox && echo same")},
		{"awk", sh("seq 1 1000 | awk '{s+=$1} END {print s}'")},
		{"sleep and date", sh("a=$(date +%s); sleep 1.1; b=$(date +%s); [ $((b-a)) -ge 1 ] && [ $((b-a)) -le 3 ] && echo ok")},
		{"timeout", sh("timeout 0.3 sleep 10; echo $?")},
		{"urandom", sh("head -c 100000 /dev/urandom | wc -c; head -c 10 /dev/zero | od -An -tx1; echo x > /dev/full; echo $?")},
		{"no such command", sh("nosuch; echo $?")},
		{"not executable", sh("/etc/passwd; echo $?")},
		{"xargs", sh("seq 1 50 | xargs -n 1 -P 4 sh -c 'echo $0' | sort -n | tail -1")},
		{"sysctl", sh("cat /proc/sys/kernel/ostype /proc/sys/kernel/hostname; cat /proc/1/comm")},
		{"many files", sh("cd /tmp; i=0; while [ $i -lt 2000 ]; do : > f$i; i=$((i+1)); done; ls | wc -l; rm f*; ls | wc -l")},
		{"sparse file", sh("cd /tmp; truncate -s 128M big; stat -c '%s %b' big; dd if=/dev/zero of=big bs=1 seek=100M count=1 conv=notrunc 2>/dev/null; wc -c < big")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { same(t, rig.Container{Args: tt.args}) })
	}
}

// TestGuestPrograms runs C programs that look at single parts of the kernel.
func TestGuestPrograms(t *testing.T) {
	begin(t)
	tests := []struct {
		name string
		args []string
	}{
		{"garbage", []string{"/guest/garbage"}},
		{"memory", []string{"/guest/memhog", "256"}},
		{"memory calls", []string{"/guest/memory", "256"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { same(t, rig.Container{Image: rig.Guest, Args: tt.args}) })
	}
}

// TestFlags compares what ctr run's flags do.
func TestFlags(t *testing.T) {
	begin(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "host"), []byte("from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mount := func(options string) []string {
		return []string{"--mount", "type=bind,src=" + dir + ",dst=/data,options=" + options}
	}
	tests := []struct {
		name  string
		flags []string
		args  []string
	}{
		{"env", []string{"--env", "A=b c", "--env", "EMPTY="}, sh("env | sort")},
		{"cwd", []string{"--cwd", "/usr"}, sh("pwd; ls -d ../etc")},
		{"user", []string{"--user", "1000:1000"}, sh("id; touch /tmp/a /a; stat -c %u:%g /tmp/a; cat /proc/self/status | grep -E '^Cap(Eff|Prm|Bnd)'; kill -0 1; echo $?")},
		{"user by name", []string{"--user", "user"}, sh("id; echo $HOME")},
		{"read-only", []string{"--read-only"}, sh("touch /a; echo $?; touch /tmp/a; echo $?; touch /dev/shm/x; echo $?; grep ' / ' /proc/mounts | cut -d' ' -f4 | cut -d, -f1")},
		{"bind ro", mount("rbind:ro"), sh("cat /data/host; touch /data/x; echo $?; echo y > /data/host; echo $?; rm /data/host; echo $?")},
		{"bind rw", mount("rbind:rw"), sh("cat /data/host; echo guest > /data/g; mkdir -p /data/d/e; mv /data/g /data/d/e/; ls -lR /data | grep -v total | awk '{print $1, $3, $9}'; rm -r /data/d; ls /data")},
		{"tmpfs", []string{"--mount", "type=tmpfs,dst=/t,options=size=1048576:mode=700"}, sh("stat -c %a /t; dd if=/dev/zero of=/t/f bs=4096 count=1000 2>/dev/null; echo $?; wc -c < /t/f")},
		{"hostname", []string{"--hostname", "somewhere"}, sh("hostname; cat /proc/sys/kernel/hostname")},
		{"no capabilities", []string{"--cap-drop", "CAP_CHOWN", "--cap-drop", "CAP_DAC_OVERRIDE"}, sh("chown 5 /etc/passwd; echo $?; chmod 0 /etc/passwd; cat /etc/passwd; grep CapEff /proc/self/status")},
		{"more capabilities", []string{"--cap-add", "CAP_SYS_ADMIN"}, sh("grep CapEff /proc/self/status; hostname other && hostname")},
		{"privileges allowed", []string{"--allow-new-privs"}, sh("grep NoNewPrivs /proc/self/status")},
		{"seccomp", []string{"--seccomp"}, sh("echo fine; grep Seccomp: /proc/self/status")},
		{"device", []string{"--device", "/dev/null"}, sh("echo x > /dev/null; echo $?; cat /dev/null | wc -c")},
		{"host network", []string{"--net-host"}, sh("echo ok; hostname | wc -l")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { same(t, rig.Container{Flags: tt.flags, Args: tt.args}) })
	}
}

// TestBindIsShared sees a host's change of a bind mount while the container runs, and the reverse.
func TestBindIsShared(t *testing.T) {
	begin(t)
	dir := t.TempDir()
	id := detached(t, rig.Container{
		Flags: []string{"--mount", "type=bind,src=" + dir + ",dst=/data,options=rbind:rw"},
		Args:  sh("until [ -f /data/go ]; do sleep 0.05; done; cat /data/go; echo back > /data/back; sleep 100"),
	})
	if err := os.WriteFile(filepath.Join(dir, "go.tmp"), []byte("changed on the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "go.tmp"), filepath.Join(dir, "go")); err != nil {
		t.Fatal(err)
	}
	awaitOutput(t, id, "changed on the host")
	await(t, "the guest's file", 5*time.Second, func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "back"))
		return string(data) == "back\n"
	})
}

// TestCannotStart compares how a command that cannot be started fails: with the same exit code, and
// one sentence that says why.
func TestCannotStart(t *testing.T) {
	begin(t)
	tests := []struct {
		name string
		args []string
		flag []string
		says []string // one of these
	}{
		{"missing binary", []string{"/no/such"}, nil, []string{"no such file or directory"}},
		{"missing in PATH", []string{"nosuch"}, nil, []string{"executable file not found in $PATH", "no such file or directory"}},
		{"other architecture", []string{"/guest/foreign"}, nil, []string{"exec format error"}},
		{"no program", []string{"/guest/notaprogram"}, nil, []string{"exec format error"}},
		{"a directory", []string{"/etc"}, nil, []string{"permission denied", "is a directory"}},
		{"not executable", []string{"/etc/passwd"}, nil, []string{"permission denied"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := rig.Container{Runtime: rig.Runc, Image: rig.Guest, Args: tt.args, Flags: tt.flag}
			want := R.Run(c)
			c.Runtime = runtime
			got := R.Run(c)
			if got.Code != want.Code || got.TimedOut || got.Stdout != want.Stdout {
				t.Errorf("%q %s\n--- runc: %s", c.Args, got, want)
			}
			if lines := strings.Count(got.Stderr, "\n"); lines != 1 {
				t.Errorf("%d lines on stderr, want one:\n%s", lines, got.Stderr)
			}
			said := false
			for _, s := range tt.says {
				said = said || strings.Contains(got.Stderr, s)
			}
			if !said || !strings.Contains(got.Stderr, tt.args[0]) {
				t.Errorf("stderr does not say %q of %q: %s", tt.says, tt.args[0], got.Stderr)
			}
		})
	}
}

// TestDebian runs a script of dynamic programs.
func TestDebian(t *testing.T) {
	begin(t)
	script, err := os.ReadFile("testdata/debian.sh")
	if err != nil {
		t.Fatal(err)
	}
	same(t, rig.Container{Image: rig.Debian, Args: []string{"bash", "-c", string(script)}, Timeout: 2 * time.Minute})
}
