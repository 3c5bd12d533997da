// mkimg writes the images of the tests as OCI archives for `ctr images import`, out of programs
// of this host; no registry is asked.
//
//	mkimg OUTDIR GUESTDIR [NAME...]
//
// OUTDIR gets one NAME.tar for each image localhost/NAME:1, or for those named (the host part keeps containerd's CRI
// from reading a default registry into the name):
//
//	busybox  Debian's static busybox with every applet a hard link
//	guest    busybox, and the programs of GUESTDIR under /guest
//	debian   bash, coreutils, grep, sed, findutils and awk with the libraries they load
//	pause    GUESTDIR/pause as a pod's root process
//
// An archive that is newer than all of its inputs is left alone.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const busybox = "/usr/bin/busybox"

// epoch dates every file, so that equal inputs give equal digests.
var epoch = time.Unix(1700000000, 0).UTC()

// file is one entry of a layer: a directory with neither data nor link, else a regular file, a
// hard link (link) or a symbolic link (symlink).
type file struct {
	name    string
	mode    int64
	data    []byte
	link    string
	symlink string
}

const passwd = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
user:x:1000:1000:user:/home/user:/bin/sh
nobody:x:65534:65534:nobody:/home:/bin/false
`

const group = `root:x:0:
daemon:x:1:
www-data:x:33:
user:x:1000:
extra:x:2000:user
nogroup:x:65534:
`

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("mkimg: ")
	if len(os.Args) < 3 {
		log.Fatal("usage: mkimg OUTDIR GUESTDIR [NAME...]")
	}
	out, guests := os.Args[1], os.Args[2]
	newest := modTime(busybox)
	for _, p := range append(must(filepath.Glob(guests+"/*")), must(os.Executable())) {
		if t := modTime(p); t.After(newest) {
			newest = t
		}
	}
	shell := v1.Config{Cmd: []string{"sh"}}
	images := map[string]func() v1.Image{
		"busybox": func() v1.Image { return image(shell, layer(busyboxFiles())) },
		"guest":   func() v1.Image { return image(shell, layer(busyboxFiles()), layer(guestFiles(guests))) },
		"debian":  func() v1.Image { return image(v1.Config{Cmd: []string{"bash"}}, layer(debianFiles())) },
		"pause": func() v1.Image {
			pause := file{name: "pause", mode: 0o755, data: must(os.ReadFile(guests + "/pause"))}
			return image(v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"}, layer([]file{pause}))
		},
	}
	names := os.Args[3:]
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(images))
	}
	for _, name := range names {
		build, ok := images[name]
		if !ok {
			log.Fatalf("no image %s", name)
		}
		dst := filepath.Join(out, name+".tar")
		if fi, err := os.Stat(dst); err == nil && fi.ModTime().After(newest) {
			continue
		}
		write(dst, "localhost/"+name+":1", build())
	}
}

func modTime(path string) time.Time { return must(os.Stat(path)).ModTime() }

// skeleton is the directories and the two account files of every root file system.
func skeleton(usrMerged bool) []file {
	var fs []file
	dirs := []string{"dev", "etc", "home", "home/user", "mnt", "proc", "root", "run", "sys", "tmp", "usr", "usr/bin", "usr/sbin", "usr/lib", "var", "var/log"}
	if !usrMerged {
		dirs = append(dirs, "bin", "sbin", "lib")
	}
	for _, d := range dirs {
		mode := int64(0o755)
		if d == "tmp" {
			mode = 0o1777
		}
		fs = append(fs, file{name: d, mode: mode})
	}
	return append(fs,
		file{name: "etc/passwd", mode: 0o644, data: []byte(passwd)},
		file{name: "etc/group", mode: 0o644, data: []byte(group)})
}

func busyboxFiles() []file {
	fs := append(skeleton(false), file{name: "bin/busybox", mode: 0o755, data: must(os.ReadFile(busybox))})
	for _, applet := range strings.Fields(string(must(exec.Command(busybox, "--list").Output()))) {
		if applet != "busybox" {
			// Hard links, so that masking one applet's path masks that one only.
			fs = append(fs, file{name: "bin/" + applet, mode: 0o755, link: "bin/busybox"})
		}
	}
	return fs
}

// guestFiles holds the test programs, and two that cannot run: a binary of another architecture
// and a file that is no program at all.
func guestFiles(dir string) []file {
	fs := []file{{name: "guest", mode: 0o755}}
	for _, p := range must(filepath.Glob(dir + "/*")) {
		fs = append(fs, file{name: "guest/" + filepath.Base(p), mode: 0o755, data: must(os.ReadFile(p))})
	}
	foreign := bytes.Clone(must(os.ReadFile(busybox)))
	binary.LittleEndian.PutUint16(foreign[18:], 183) // e_machine = EM_AARCH64
	return append(fs,
		file{name: "guest/foreign", mode: 0o755, data: foreign},
		file{name: "guest/notaprogram", mode: 0o755, data: []byte("\x01\x02\x03 this is no program\n")})
}

// debianPackages are those whose programs the debian image holds.
var debianPackages = []string{"bash", "coreutils", "diffutils", "grep", "sed", "findutils", "mawk"}

var lddLine = regexp.MustCompile(`(/\S+) \(0x`)

// debianFiles collects programs from this host's installed packages, and by ldd the libraries.
func debianFiles() []file {
	fs := skeleton(true)
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		fs = append(fs, file{name: d, mode: 0o777, symlink: "usr/" + d})
	}
	fs = append(fs, file{name: "usr/lib64", mode: 0o755}, file{name: "usr/bin/awk", mode: 0o777, symlink: "mawk"}, file{name: "usr/bin/sh", mode: 0o777, symlink: "bash"})
	have := map[string]bool{}
	for _, f := range fs {
		have[f.name] = true
	}
	add := func(p string) {
		name := strings.TrimPrefix(p, "/")
		for _, d := range []string{"bin/", "sbin/", "lib/", "lib64/"} {
			if strings.HasPrefix(name, d) {
				name = "usr/" + name
			}
		}
		if have[name] {
			return
		}
		have[name] = true
		fi := must(os.Lstat(p))
		if fi.Mode()&os.ModeSymlink != 0 && strings.Contains(name, "/bin/") {
			fs = append(fs, file{name: name, mode: 0o777, symlink: must(os.Readlink(p))})
			return
		}
		fs = append(fs, file{name: name, mode: int64(must(os.Stat(p)).Mode().Perm()), data: must(os.ReadFile(p))})
	}
	for _, p := range debianPackages {
		list := must(exec.Command("dpkg", "-L", p).Output())
		for _, f := range strings.Fields(string(list)) {
			if d := path.Dir(f); d != "/bin" && d != "/usr/bin" {
				continue
			}
			add(f)
			libs, _ := exec.Command("ldd", f).Output() // fails for scripts: nothing to add
			for _, m := range lddLine.FindAllStringSubmatch(string(libs), -1) {
				add(m[1])
			}
		}
	}
	// A layer lists a directory before what is in it.
	for _, f := range fs {
		for d := path.Dir(f.name); d != "." && !have[d]; d = path.Dir(d) {
			have[d] = true
			fs = append(fs, file{name: d, mode: 0o755})
		}
	}
	sort.SliceStable(fs, func(i, j int) bool { return fs[i].name < fs[j].name })
	return fs
}

func layer(files []file) v1.Layer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, ModTime: epoch, Format: tar.FormatPAX}
		switch {
		case f.symlink != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.symlink
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeLink, f.link
		case f.data != nil:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.data))
		default:
			h.Typeflag = tar.TypeDir
			h.Name += "/"
		}
		if f.name == "home/user" {
			h.Uid, h.Gid = 1000, 1000
		}
		if err := w.WriteHeader(h); err != nil {
			log.Fatal(err)
		}
		must(w.Write(f.data))
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	return must(tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer)))
}

func image(cfg v1.Config, layers ...v1.Layer) v1.Image {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img = must(mutate.AppendLayers(img, layers...))
	cf := must(img.ConfigFile()).DeepCopy()
	cf.OS, cf.Architecture, cf.Created = "linux", "amd64", v1.Time{Time: epoch}
	cfg.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cf.Config = cfg
	return must(mutate.ConfigFile(img, cf))
}

// write puts img into the OCI archive dst under name.
func write(dst, name string, img v1.Image) {
	dir := must(os.MkdirTemp(filepath.Dir(dst), ".oci"))
	defer os.RemoveAll(dir)
	p := must(layout.Write(dir, empty.Index))
	err := p.AppendImage(img,
		layout.WithAnnotations(map[string]string{
			"io.containerd.image.name":          name,
			"org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:],
		}),
		layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		log.Fatal(err)
	}
	tmp := dst + ".tmp"
	if out, err := exec.Command("tar", "-C", dir, "-cf", tmp, "oci-layout", "index.json", "blobs").CombinedOutput(); err != nil {
		log.Fatalf("tar: %v: %s", err, out)
	}
	if err := os.Rename(tmp, dst); err != nil {
		log.Fatal(err)
	}
	fmt.Println(name, must(img.Digest()))
}
