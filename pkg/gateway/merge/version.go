// Package merge makes one answer of those of two API servers: composite resource versions and continue tokens, lists
// and tables, and objects that say which side has them. It turns bytes into bytes; nothing here sends a request.
package merge

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Version is a resource version of objects of which each side has its own: one number for each side. A part may be
// missing: an object has a version on its own side alone.
// Shape: "l1042m77", "l1042", "m77", "0", "".
type Version struct{ Legacy, Modern string }

// Of is the side's part, "" where there is none.
func (v Version) Of(side pair.Side) string {
	if side == pair.Legacy {
		return v.Legacy
	}
	return v.Modern
}

// With is the version with another part for the side.
func (v Version) With(side pair.Side, part string) Version {
	if side == pair.Legacy {
		v.Legacy = part
	} else {
		v.Modern = part
	}
	return v
}

// String is the version as clients see it.
func (v Version) String() string {
	if v.Legacy == "0" && v.Modern == "0" {
		return "0"
	}
	text := ""
	if v.Legacy != "" {
		text = "l" + v.Legacy
	}
	if v.Modern != "" {
		text += "m" + v.Modern
	}
	return text
}

var versionForm = regexp.MustCompile(`^(?:l([0-9]{1,20}))?(?:m([0-9]{1,20}))?$`)

var serverVersionForm = regexp.MustCompile(`^[0-9]{1,20}$`)

// ErrForeignVersion: the version is that of one API server, or of the side that is not meant: "1042" does not say of
// which side. What was read so has to be read again.
var ErrForeignVersion = errors.New("is no resource version of this endpoint")

// ParseVersion reads what String made; "0" is any version of either side.
// Errors: ErrForeignVersion, wrapped; what no API server has as a version.
func ParseVersion(text string) (Version, error) {
	if text == "0" {
		return Version{"0", "0"}, nil
	}
	parts := versionForm.FindStringSubmatch(text)
	switch {
	case parts != nil:
		return Version{parts[1], parts[2]}, nil
	case serverVersionForm.MatchString(text):
		return Version{}, fmt.Errorf("%q %w", text, ErrForeignVersion)
	}
	return Version{}, fmt.Errorf("%q is no resource version", text)
}

// IsComposite reports whether the text is a version of objects of both sides, which no API server knows.
func IsComposite(text string) bool { return text != "" && versionForm.MatchString(text) }

// Token says where a list of both sides goes on.
type Token struct {
	Legacy  string  `json:"l,omitempty"` // the side's own token; "" at the end of its list
	Modern  string  `json:"m,omitempty"`
	Version Version `json:"v"` // of the whole list
}

// Of is the side's token.
func (t Token) Of(side pair.Side) string {
	if side == pair.Legacy {
		return t.Legacy
	}
	return t.Modern
}

// String is the token as clients see it; "" at the end of the list.
func (t Token) String() string {
	if t.Legacy == "" && t.Modern == "" {
		return ""
	}
	text, err := json.Marshal(t)
	if err != nil {
		panic("merge: internal error: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParseToken reads what String made of a token that is not at the end.
func ParseToken(text string) (Token, error) {
	var t Token
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err == nil {
		_, err = ParseVersion(t.Version.String())
	}
	if err != nil || t.String() != text {
		return Token{}, errors.New("continue: is no token of this endpoint")
	}
	return t, nil
}
