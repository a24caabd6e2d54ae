package logcleanup

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// keepError is a reason to keep a file that was found while working on it.
type keepError Reason

// Error gives the reason.
func (e keepError) Error() string { return string(e) }

const tempPrefix, tempSuffix = ".fanjet-", ".gz.tmp"

// isTemp tells a half-made copy by its name.
func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// tempName is never the same twice: what one worker wrote, no other takes for its own.
func tempName() string { return tempPrefix + rand.Text() + tempSuffix }

// compressed tells by the name whether another compression would gain nothing.
func compressed(name string) bool {
	return slices.Contains([]string{".gz", ".tgz", ".bz2", ".xz", ".zst", ".lz4", ".br", ".zip", ".7z"}, strings.ToLower(path.Ext(name)))
}

// compress puts NAME.gz in the place of NAME and gives what that freed. A crash at any moment
// leaves the original or a complete, synced copy: written under another name, synced, given its
// name only if nobody has it, the folder synced, and only then the original removed.
func (s *sweep) compress(ctx context.Context, d *dir, name string, info fs.FileInfo) (freed int64, err error) {
	target := name + ".gz"
	if len(target) > 255 {
		return 0, fmt.Errorf("%w once .gz is added", errNameTooLong)
	}
	src, err := d.root.OpenFile(name, openFlags, 0)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	if now, err := src.Stat(); err != nil || !unchanged(info, now) {
		return 0, errors.Join(keepError(ReasonChanged), err)
	}
	// The lock only saves work, where the disk has locks: workers that share it and compress the
	// same file at once do no harm.
	if !lock(src) {
		return 0, keepError(ReasonInProgress)
	}
	if _, err := d.root.Lstat(name); err != nil {
		return 0, err // done by the one who had the lock
	}
	before := footprintOf(info).freed()
	if at, err := d.root.Lstat(target); err == nil {
		if err := sameContent(ctx, d, target, at, src); err != nil {
			return 0, err
		}
		if err := d.file.Sync(); err != nil {
			return 0, fmt.Errorf("sync the folder: %w", err)
		}
		return before, s.replaced(d, name, info, src) // a crash came between copy and removal
	}
	temp := tempName()
	out, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // its owner's until it is complete
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.sys.unlink(d, temp, false) }() // it is a second name of the copy by then
	if err = fill(ctx, out, src, info); err == nil {
		// The time of the original, so that a retention by age goes on to work.
		err = errors.Join(d.root.Chtimes(temp, info.ModTime(), info.ModTime()), out.Sync())
	}
	after, serr := out.Stat()
	if err := errors.Join(err, serr, out.Close()); err != nil {
		return 0, err
	}
	if now, err := src.Stat(); err != nil || !unchanged(info, now) {
		return 0, errors.Join(keepError(ReasonChanged), err)
	}
	if err := publish(d, temp, target); err != nil {
		return 0, err
	}
	if err := d.file.Sync(); err != nil {
		return 0, fmt.Errorf("sync the folder: %w", err)
	}
	// From here on the copy stays whatever happens: another worker of the same disk may have found
	// it complete and removed the original already.
	if err := s.replaced(d, name, info, src); err != nil {
		return 0, err
	}
	return before - footprintOf(after).bytes, nil
}

var errNameTooLong = errors.New("the name is too long")

// replaced removes the original if it still is what was compressed.
func (s *sweep) replaced(d *dir, name string, info fs.FileInfo, src *os.File) error {
	open, err := src.Stat()
	if err != nil {
		return err
	}
	at, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	if !unchanged(info, open) || !unchanged(info, at) {
		return keepError(ReasonChanged)
	}
	return s.sys.unlink(d, name, false)
}

// fill writes the copy with the mode and the owner of the original.
func fill(ctx context.Context, out, src *os.File, like fs.FileInfo) error {
	zip := gzip.NewWriter(out)
	zip.ModTime = like.ModTime()
	n, err := io.Copy(zip, &until{ctx, src})
	if err != nil {
		return err
	}
	if n != like.Size() {
		return keepError(ReasonChanged)
	}
	if err := zip.Close(); err != nil {
		return err
	}
	chown(out, like)
	return out.Chmod(like.Mode().Perm())
}

// publish gives the copy its name, never that of something else.
func publish(d *dir, temp, target string) error {
	err := d.root.Link(temp, target)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return keepError(ReasonExists)
	}
	// This filesystem has no hard links.
	if _, err := d.root.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return keepError(ReasonExists)
	}
	return d.root.Rename(temp, target)
}

// sameContent tells whether the .gz file holds what src does: then it is a complete copy.
func sameContent(ctx context.Context, d *dir, target string, at fs.FileInfo, src *os.File) error {
	if !at.Mode().IsRegular() {
		return keepError(ReasonExists)
	}
	f, err := d.root.OpenFile(target, openFlags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(at, now) {
		return errors.Join(keepError(ReasonExists), err)
	}
	zip, err := gzip.NewReader(&until{ctx, f})
	if err != nil {
		return keepError(ReasonExists)
	}
	var a, b [32 << 10]byte
	for {
		n, aerr := io.ReadFull(src, a[:])
		m, berr := io.ReadFull(zip, b[:])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case n != m || string(a[:n]) != string(b[:m]):
			return keepError(ReasonExists)
		case ended(aerr) && ended(berr):
			if _, err := zip.Read(b[:1]); !errors.Is(err, io.EOF) {
				return keepError(ReasonExists) // cut off behind its last byte of content
			}
			return f.Sync()
		case aerr != nil || berr != nil:
			return keepError(ReasonExists)
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// until is a reader that ends with the context.
type until struct {
	ctx context.Context
	r   io.Reader
}

// Read reads unless the context has ended.
func (u *until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
