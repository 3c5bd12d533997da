#!/bin/bash
# What scripts of a distribution do, with bash and the GNU tools; prints the same wherever it runs.
set -u
cd "$(mktemp -d)" || exit 1
export LC_ALL=C TZ=UTC

section() { printf '== %s\n' "$*"; }

section text
for i in $(seq 1 200); do echo "line $i of the file, $((i * i % 97))"; done > lines
wc -lwc lines
grep -c '7$' lines
grep -E '^line (1|2)[0-9] ' lines | sort -t, -k2n | head -3
sed -n '10,12s/line/LINE/p' lines
awk -F', ' '{ n[$2 % 10]++ } END { for (k = 0; k < 10; k++) print k, n[k] }' lines
cut -d' ' -f2 lines | paste -sd+ | awk -F+ '{ s = 0; for (i = 1; i <= NF; i++) s += $i; print s }'
tr -cd 'aeiou' < lines | wc -c
sort -R lines | sort | sha256sum
split -l 50 lines part.
cat part.* | cmp - lines && echo "parts are whole"
comm -12 <(seq 1 7) <(seq 5 9) | tr '\n' ' '; echo
join <(printf '1 a\n2 b\n') <(printf '1 x\n2 y\n')
nl lines | tail -1
fold -w 20 lines | head -2
od -An -tx1 -N8 lines
base64 lines | md5sum
tac lines | head -1
uniq -c <(printf 'a\na\nb\n')

section bash
declare -A map=([one]=1 [two]=2 [three]=3)
for k in "${!map[@]}"; do echo "$k=${map[$k]}"; done | sort
array=(alpha beta gamma delta)
echo "${#array[@]} ${array[@]:1:2} ${array[-1]^^} ${array[0]/al/AL}"
echo {a..e}{1..2}
[[ "release-12.4" =~ ^([a-z]+)-([0-9]+)\.([0-9]+)$ ]] && echo "${BASH_REMATCH[@]:1}"
printf '%05d|%-6s|%x|%q\n' 42 ab 255 'a b'
case "$(uname -s)" in Linux) echo linux ;; *) echo other ;; esac
while read -r -d: field; do echo "field $field"; done <<< "x:y:z:"
coproc CAT { cat; }
echo "through a coprocess" >&"${CAT[1]}"; read -r reply <&"${CAT[0]}"; echo "$reply"
exec {CAT[1]}>&-; wait "$CAT_PID"; echo "coprocess gave $?"
fib() { (($1 < 2)) && echo "$1" || echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); }
fib 9
trap 'echo "trapped USR1"' USR1; kill -USR1 $$
trap 'echo "error on line"' ERR; false; trap - ERR
(exit 3); echo "subshell gave $?"
set -o pipefail; false | true; echo "pipefail gave $?"; set +o pipefail
(ulimit -n 64; ulimit -n)
time_out() { timeout 0.2 sleep 5; echo "timeout gave $?"; }; time_out
mapfile -t some < <(head -3 lines); echo "${#some[@]}"
{ sleep 0.1; echo late; } & echo early; wait
for n in 1 2 3 4 5; do (sleep "0.$n"; exit "$n") & pids[n]=$!; done
for n in 5 4 3 2 1; do wait "${pids[n]}"; echo "job $n gave $?"; done

section files
mkdir -p tree/{a,b}/{c,d}; for d in tree/*/*; do echo "$d" > "$d/file"; done
find tree -type f | sort
find tree -name file -exec cat {} + | sort | tail -1
ln -s ../b tree/a/link; readlink -f tree/a/link | sed 's|.*/tree|tree|'
cp -a tree copy; diff -r tree copy 2> /dev/null; du -s --apparent-size -b copy/a/c/file
touch -d '2001-02-03 04:05:06' old; stat -c '%y %s %a %F' old; date -r old +%s
chmod u=rwx,g=rx,o= old; stat -c %A old; test -x old && echo executable
[ lines -nt old ] && echo newer
mv tree/a moved; ls -1 tree moved; rm -r copy; ls -d copy 2> /dev/null || echo gone
dd if=/dev/zero of=zeros bs=64k count=16 status=none; sha1sum zeros
truncate -s 100 zeros; wc -c < zeros; shred -n 1 -z -u zeros; ls zeros 2> /dev/null || echo shredded
mkfifo fifo; (cat lines > fifo &); head -1 < fifo
install -m 600 lines installed; stat -c '%a %h' installed; ln installed hard; stat -c %h hard
basename /x/y.z .z; dirname /x/y; realpath -m /a/../b; pathchk ok && echo portable
tee one two < old > /dev/null; ls one two; mktemp -u abcXXXX | wc -c
ls -l /proc/self/fd | wc -l | awk '{ print ($1 >= 4) }'
df -P . | wc -l; stat -f -c %l . ; sync

section processes
ps_count() { local n=0 d; for d in /proc/[0-9]*; do n=$((n + 1)); done; echo $((n > 0)); }
ps_count
bash -c 'echo "parent is $(($PPID > 0))"; exec -a renamed bash -c "echo \$0"'
mkfifo req rep
server() {
	while read -r n; do
		[ "$n" = quit ] && break
		echo $((n * n))
	done < req > rep
	echo "server done" >&2
}
server 2> server.log & server_pid=$!
exec 8> req 9< rep
for n in 3 4 5; do echo "$n" >&8; read -r sq <&9; echo "$n squared is $sq"; done
echo quit >&8; wait "$server_pid"; exec 8>&- 9<&-; cat server.log
sleep 30 & victim=$!
kill -TERM "$victim"; wait "$victim" 2> /dev/null; echo "victim gave $?"
(trap '' TERM; : > trapped; sleep 1; echo "survived TERM") & stubborn=$!
until [ -e trapped ]; do sleep 0.02; done; kill -TERM "$stubborn"; wait "$stubborn"
bash -c 'set -m; sleep 20 & kill -STOP %1; sleep 0.1; jobs -l | grep -c Stopped; kill -KILL %1; wait' 2> /dev/null
for sig in HUP INT QUIT ALRM PIPE; do bash -c "ulimit -c 0; kill -$sig \$\$"; echo "$sig gives $?"; done 2> /dev/null
seq 1 2000 | xargs -P 4 -n 500 echo | wc -w
(echo a; sleep 0.1; echo b) | (read -r x; read -r -t 2 y; echo "$x$y")
read -r -t 0.1 z < <(sleep 1); echo "read timed out with $(($? > 128))"

section numbers
expr 6 \* 7; factor 360360; numfmt --to=iec 1048576; seq -s' ' 0 5 30; shuf -i 1-100 | sort -n | sha256sum
echo $((2 ** 62)) $((0x1f)) $((017)) $((-7 / 2)) $((-7 % 3)); printf '%.3f\n' 3.14159
date -d @1000000000 '+%F %T %A'; cksum < lines; nproc | awk '{ print ($1 >= 1) }'; id -u; env -i A=1 env
section end
