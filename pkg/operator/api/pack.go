package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// limitPacked bounds what an entry of a Secret unpacks to: a Secret holds 1 MiB of it, compressed.
const limitPacked = 64 << 20

// Pack writes a value for an entry of the Secret of a host, and names it by its digest. Equal values have one.
func Pack(value any) (data []byte, digest string, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, "", err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil {
		return nil, "", err
	}
	if err := z.Close(); err != nil {
		return nil, "", err
	}
	return packed.Bytes(), digestOf(packed.Bytes()), nil
}

// Unpack reads what Pack wrote. Errors: another digest; what is none of the type, or has fields that this program does
// not know, by which a newer one means something.
func Unpack(data []byte, digest string, into any) error {
	if got := digestOf(data); got != digest {
		return fmt.Errorf("its digest is %s, want %s", got, digest)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(z, limitPacked+1))
	if err != nil {
		return err
	}
	if len(text) > limitPacked {
		return fmt.Errorf("has more than %d MiB", limitPacked>>20)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
