package gateway

import (
	"net/http"
	"net/url"
	"strings"
)

// checkPath refuses paths that two readers could take for different ones: empty segments, dots, and segments in which a
// slash or a percent sign is hidden. What follows /proxy/ is the path of another program, and may have anything but
// dots.
func checkPath(r *http.Request) error {
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") {
		return badRequest("the path does not begin with a slash")
	}
	segments := strings.Split(path[1:], "/")
	proxied := false
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		last := i == len(segments)-1
		switch {
		case err != nil:
			return badRequest("the path cannot be read: %v", err)
		case hasDots(plain):
			return badRequest("the path has a segment of dots")
		case strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return badRequest("the path has a control character")
		case proxied:
		case plain == "" && !(last && i == 0):
			return badRequest("the path has an empty segment")
		case strings.ContainsAny(plain, `/%\`):
			return badRequest("the path has a segment with an escaped slash, backslash or percent sign")
		}
		proxied = proxied || plain == "proxy" && i >= 4
	}
	return nil
}

func hasDots(text string) bool {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}
