//go:build system

package system

import (
	"strings"
	"testing"
	"time"

	"runsc/test/rig"
)

// TestProcAndSys reads every file below /proc and /sys of a container and
// writes nonsense to those that can be written: nothing hangs, nothing ends,
// and settings have their effect.
func TestProcAndSys(t *testing.T) {
	begin(t)
	script := `
find /proc /sys -type f ! -name kmsg ! -name mem ! -name pagemap > /list 2>/dev/null
n=$(wc -l < /list)
[ $n -gt 500 ] || echo "only $n files"
tr '\n' '\0' < /list | xargs -0 cat > /dev/null 2>&1
head -c 65536 /dev/zero | tr '\0' 7 > /garbage
grep -v -e oom_ -e hostname < /list | while read f; do
	[ -w $f ] || continue
	printf x > $f
	cat /garbage > $f
done 2> /dev/null
[ "$(cat /proc/self/cgroup)" = 0::/ ] || cat /proc/self/cgroup
dd if=/list of=/dev/null bs=64 count=10 2> /dev/null
[ "$(sed -n 's/^voluntary_ctxt_switches:.//p' /proc/1/status)" -gt 0 ] || echo "no sleeps"
[ "$(sed -n 's/^rchar: //p' /proc/1/io)" -gt 100 ] || cat /proc/1/io
[ $(awk '{print NF}' /proc/1/stat) = 52 ] || cat /proc/1/stat
echo ok
`
	c := rig.Container{Runtime: runtime, ID: R.NewID(), Image: rig.Busybox, Args: []string{"sh", "-c", script}, Timeout: 120 * time.Second}
	if res := R.Run(c); res.Code != 0 || strings.TrimSpace(res.Stdout) != "ok" {
		t.Errorf("%s", res)
	}
}
