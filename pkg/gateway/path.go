package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// checkPath refuses paths that two readers could take for different ones: empty segments, dots, and segments in which a
// slash or a percent sign is hidden. What follows the proxy of a pod, a service or a node is the path of another
// program, and may have anything but dots.
func checkPath(r *http.Request) error {
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") {
		return badRequest("the path does not begin with a slash")
	}
	segments := strings.Split(path[1:], "/")
	for i := range segments {
		var err error
		if segments[i], err = url.PathUnescape(segments[i]); err != nil {
			return badRequest("the path cannot be read: %v", err)
		}
	}
	for _, prefix := range []string{"sides", "clusters"} { // it is cut off, and what follows is passed on as it is
		if segments[0] == prefix && strings.Count(path, "/") > 1 &&
			!strings.HasPrefix(path, strings.Join([]string{"", segments[0], segments[1], ""}, "/")) &&
			path != "/"+segments[0]+"/"+segments[1] {
			return badRequest("the path has escapes in /%s/NAME", prefix)
		}
	}
	foreign := foreignFrom(segments)
	for i, plain := range segments {
		last := i == len(segments)-1
		switch {
		case hasDots(plain):
			return badRequest("the path has a segment of dots")
		case strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return badRequest("the path has a control character")
		case i >= foreign:
		case plain == "" && !(last && (i == 0 || i <= discoveryDepth(segments))):
			return badRequest("the path has an empty segment")
		case strings.ContainsAny(plain, `/%\`):
			return badRequest("the path has a segment with an escaped slash, backslash or percent sign")
		}
	}
	return nil
}

// ofConnections are headers that a connection may name: they are of the connection, and none says what is asked.
var ofConnections = []string{"Upgrade", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Http2-Settings"}

// checkConnection refuses a request whose header Connection names others of its headers. A proxy takes these out, so
// that a side would be asked for something else than the gateway decides by and records: by another user, for one.
func checkConnection(r *http.Request) error {
	for name := range strings.SplitSeq(strings.Join(r.Header.Values("Connection"), ","), ",") {
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if _, has := r.Header[name]; has && !slices.Contains(ofConnections, name) {
			return badRequest("the header Connection names %s, which would not reach the side; leave it out of "+
				"Connection", name)
		}
	}
	return nil
}

// foreignFrom is the index of the first segment that belongs to a proxied program; the number of segments where there
// is none. Segments are unescaped, and read as request infos
// read them; checkPath refuses those before it in which a slash was escaped.
func foreignFrom(segments []string) int {
	at := 0
	if len(segments) > 2 && (segments[0] == "clusters" ||
		segments[0] == "sides" && slices.Contains(pair.Sides(), pair.Side(segments[1]))) {
		at = 2
	}
	switch segments[at] {
	case "api":
		at += 2
	case "apis":
		at += 3
	default:
		return len(segments)
	}
	if at < len(segments) && (segments[at] == "proxy" || segments[at] == "watch") { // verbs of old paths
		return len(segments)
	}
	// A namespace has subresources of its own, and no proxy: .../namespaces/NAME/proxy is a list of that name.
	if at+2 < len(segments) && segments[at] == "namespaces" && segments[at+2] != "status" &&
		segments[at+2] != "finalize" {
		at += 2
	}
	if at+2 < len(segments) && segments[at+2] == "proxy" {
		return at + 3
	}
	return len(segments)
}

// discoveryDepth is the index of the last segment that a path of discovery may have behind a slash at its end: /apis/
// is /apis, as for API servers.
func discoveryDepth(segments []string) int {
	at := 0
	if len(segments) > 2 && slices.Contains([]string{"clusters", "sides"}, segments[0]) {
		at = 2
	}
	switch segments[at] {
	case "api":
		return at + 2
	case "apis":
		return at + 3
	}
	return 0
}

func hasDots(text string) bool {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}
