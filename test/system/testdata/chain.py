# A program whose state is easily seen to be right: patterned memory, threads that pass a number on, a file without a
# name, a directory that is being read. For each file /go/check-N it checks all and answers in /go/answer-N.
import hashlib, os, queue, sys, threading, time

mib = int(sys.argv[1])
block = bytearray(hashlib.shake_256(b"pattern").digest(1 << 20))
memory = []
for i in range(mib):
    block[0:4] = i.to_bytes(4, "little")
    memory.append(bytes(block))
want = hashlib.sha256(b"".join(hashlib.sha256(m).digest() for m in memory)).hexdigest()

file = open("/tmp/nameless", "w+b")
os.unlink("/tmp/nameless")
lines = 0

names = {"entry-%d-with-some-more-to-it" % i for i in range(3000)}
os.mkdir("/tmp/dir")
for name in names:
    open("/tmp/dir/" + name, "w").close()
reading, seen = os.scandir("/tmp/dir"), []

queues = [queue.Queue() for _ in range(4)]
rounds = 0


def pass_on(i):
    global rounds
    while True:
        n = queues[i].get()
        if i == 3:
            rounds = n + 1
        time.sleep(0.005)
        queues[(i + 1) % 4].put(n + 1 if i == 3 else n)


for i in range(4):
    threading.Thread(target=pass_on, args=(i,), daemon=True).start()
queues[0].put(0)
started, last = time.monotonic(), 0.0


def check():
    global lines, last, seen
    wrong = []
    if hashlib.sha256(b"".join(hashlib.sha256(m).digest() for m in memory)).hexdigest() != want:
        wrong.append("memory")
    file.write(b"line %d\n" % lines)
    lines += 1
    file.flush()
    file.seek(0)
    if file.read() != b"".join(b"line %d\n" % i for i in range(lines)):
        wrong.append("file")
    for entry in reading:
        seen.append(entry.name)
        if len(seen) % 100 == 0:
            break
    if len(set(seen)) != len(seen) or not names.issuperset(seen) or len(seen) != min(100 * lines, 3000):
        wrong.append("directory")
    now, before = time.monotonic(), rounds
    if now < last:
        wrong.append("clock")
    last = now
    for _ in range(500):
        if rounds > before:
            break
        time.sleep(0.01)
    else:
        wrong.append("threads")
    return " ".join(wrong) or "right"


n = 0
while True:
    if os.path.exists("/go/check-%d" % n):
        answer = check()
        with open("/go/answer.new", "w") as f:
            f.write(answer)
        os.rename("/go/answer.new", "/go/answer-%d" % n)
        n += 1
    time.sleep(0.02)
