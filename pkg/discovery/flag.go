package discovery

import (
	"net/url"
	"strings"
)

// Flag reports whether a parameter of a request is true as API servers read it: whatever is given but "false" and "0"
// is. The first value counts.
// Source: runtime.Convert_Slice_string_To_bool of the API machinery, since 1.6.
func Flag(query url.Values, name string) bool {
	values := query[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
