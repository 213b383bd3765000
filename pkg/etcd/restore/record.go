package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/kubefusion/fusionctl/internal/filetree"
)

// RecordFile lies beside the snapshots of a backup.
const RecordFile = "backup.json"

// limitRecordBytes is far above what a record of all stores has.
const limitRecordBytes = 1 << 20

// unchanged compares a snapshot with the record beside it. One that is no backup's has none, and those of releases
// before have no digests in it.
func unchanged(ctx context.Context, snapshot string) error {
	beside := filepath.Join(filepath.Dir(snapshot), RecordFile)
	data, err := filetree.ReadFile(beside, limitRecordBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var r struct {
		SHA256 map[string]string `json:"sha256"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("%s: %w", beside, err)
	}
	if r.SHA256 == nil {
		return nil
	}
	want, known := r.SHA256[filepath.Base(snapshot)]
	if !known {
		return fmt.Errorf("%s: is no snapshot of the backup: %s does not name it; move it elsewhere if it is to be "+
			"restored", snapshot, beside)
	}
	switch got, err := Digest(ctx, snapshot); {
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%s: was changed since the backup was made: its SHA-256 is %s, and %s has %s; restore "+
			"another backup", snapshot, got, beside, want)
	}
	return nil
}

// Digest is the SHA-256 of a file, whatever its size.
func Digest(ctx context.Context, name string) (string, error) {
	f, err := filetree.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	const chunk = 1 << 24
	for {
		if _, err := io.CopyN(hash, f, chunk); errors.Is(err, io.EOF) {
			return hex.EncodeToString(hash.Sum(nil)), nil
		} else if err != nil {
			return "", err
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
	}
}
