package imagefmt

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
)

// archiveDir is the directory of the image's files in an archive made by
// "crictl checkpoint".
const archiveDir = "checkpoint"

// maxArchiveEntries bounds the entries of an archive that are looked at.
const maxArchiveEntries = 4096

// OpenArchive opens the image in an archive, which may be hostile: of its
// entries only regular files with the names of an image's files are unpacked,
// into a new directory below scratch, which is gone when the call returns: the
// files live as long as they are open.
func OpenArchive(ctx context.Context, f *os.File, scratch string) (*Opened, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(scratch, "restore-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	dir, err := os.OpenRoot(tmp)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := unpack(ctx, dir, f, st.Size()); err != nil {
		return nil, fmt.Errorf("archive %s: %w", f.Name(), err)
	}
	d, err := os.Open(tmp)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	o, err := OpenIn(d)
	if err != nil {
		// The directory's name says nothing to who gave the archive.
		return nil, fmt.Errorf("archive %s: %w", f.Name(), errors.Unwrap(err))
	}
	return o, nil
}

// unpack copies the image's files out of an archive of size bytes.
func unpack(ctx context.Context, dir *os.Root, r io.Reader, size int64) error {
	tr := tar.NewReader(ctxReader{ctx, r})
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, tar.ErrHeader) && n == 0 {
			return errors.New("it is not a tar archive")
		}
		if err != nil {
			return fmt.Errorf("it is cut off or damaged: %w", err)
		}
		if n == maxArchiveEntries {
			return fmt.Errorf("it has more than %d entries", maxArchiveEntries)
		}
		d, name := path.Split(path.Clean(h.Name))
		if path.Clean(d) != archiveDir || name != ManifestFile && !slices.Contains(StateFiles[:], name) {
			continue
		}
		switch {
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%s is not a regular file", h.Name)
		case h.Size > size:
			// A sparse entry could claim any size.
			return fmt.Errorf("%s claims %d bytes, more than the archive has", h.Name, h.Size)
		case name == ManifestFile && h.Size > maxManifest:
			return fmt.Errorf("%s is too large", h.Name)
		}
		out, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s is there twice", h.Name)
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(out, tr)
		if cerr := out.Close(); err == nil {
			err = cerr
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("it is cut off in %s", h.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// ctxReader fails when the context has ended.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
