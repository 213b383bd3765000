package gateway

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// form is one of the forms that a client takes, of JSON: an object as it is, or as something else.
type form struct{ as, group, version string }

// forms lists the forms of JSON that the client takes, the one it likes best first.
func forms(r *http.Request) []form {
	type liked struct {
		form
		quality float64
	}
	var list []liked
	for clause := range strings.SplitSeq(cmp.Or(strings.Join(r.Header.Values("Accept"), ","), "*/*"), ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil || !slices.Contains([]string{"application/json", "application/*", "*/*"}, media) {
			continue
		}
		if stream := params["stream"]; stream != "" && stream != "watch" {
			continue
		}
		quality, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
		if err != nil || quality <= 0 {
			continue
		}
		list = append(list, liked{form{params["as"], params["g"], params["v"]}, quality})
	}
	slices.SortStableFunc(list, func(a, b liked) int { return cmp.Compare(b.quality, a.quality) })
	found := make([]form, len(list))
	for i, l := range list {
		found[i] = l.form
	}
	return found
}

// accept is the form in which objects of both sides are requested: the first that the client takes and that there is.
// tables: there are Tables, of both versions of meta.k8s.io, for kubectl before 1.16; alone: there is metadata alone,
// of version v1.
func accept(r *http.Request, tables, alone bool) (string, error) {
	for _, f := range forms(r) {
		is := f.group == "meta.k8s.io" && f.version == "v1"
		switch {
		case f.as == "":
			return "application/json", nil
		case tables && f.as == "Table" && f.group == "meta.k8s.io" && f.version == "v1beta1":
			return "application/json;as=Table;v=v1beta1;g=meta.k8s.io", nil
		case is && (tables && f.as == "Table" || alone && strings.HasPrefix(f.as, metadataForm) &&
			slices.Contains([]string{"", "List"}, f.as[len(metadataForm):])):
			return "application/json;as=" + f.as + ";v=v1;g=meta.k8s.io", nil
		}
	}
	return "", refusal(http.StatusNotAcceptable, "NotAcceptable",
		"objects that are merged or converted are served as application/json alone, not as %q", r.Header.Get("Accept"))
}

// metadataForm begins the name of the forms that are metadata alone.
const metadataForm = "PartialObjectMetadata"

// isMetadata reports whether a form is one of metadata alone.
func isMetadata(form string) bool { return strings.Contains(form, "as="+metadataForm) }
