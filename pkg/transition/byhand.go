package transition

import (
	"crypto/sha256"
	"encoding/hex"
)

// ByHandError says what is left to a person: by a check, or by a Runner without a person.
type ByHandError struct {
	Text string // what a person does, or sees and agrees to
	// Found names what a check found, as Found does: a person agrees to what was shown, and not to what is there later.
	// "" where the step says all of it by itself.
	Found string
}

func (e *ByHandError) Error() string { return "is done by hand: " + e.Text }

// Found names what a check found, and a person is shown: 16 hexadecimal digits.
func Found(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// IsFound reports whether a name is one that Found may have made: another machine may say anything.
func IsFound(name string) bool {
	sum, err := hex.DecodeString(name)
	return err == nil && len(sum) == 8
}
