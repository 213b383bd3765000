package gateway

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/gateway/merge"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// place is what a side says of an object by its name.
type place struct {
	*answer
	meta merge.Meta
}

// locate finds the side that has the object. must: it has to be known that the other side does not have it. Beside it
// comes what was read there.
func (b *both) locate(form string, uid string, must bool) (*place, error) {
	at := b.objectPath()
	answers, errs := b.each(pair.Sides(), func(name pair.Side) question {
		q := url.Values{}
		if version := b.query.Get("resourceVersion"); version == "0" && !must { // a cache may not know a move yet
			q.Set("resourceVersion", version)
		}
		if include := string(metav1.IncludeObject); form != "" && b.query.Get("includeObject") == include {
			q.Set("includeObject", include) // whole objects in a Table, by which kubectl sorts; never none
		}
		accept := cmp.Or(form, "application/json;as="+metadataForm+";v=v1;g=meta.k8s.io")
		return question{method: http.MethodGet, path: at, query: q, accept: b.formOf(name, accept)}
	}, limitBytes)
	found := map[pair.Side]*place{}
	for name, a := range answers {
		switch a.code {
		case http.StatusOK:
			p := &place{answer: a}
			err := readMeta(a.body, &p.meta)
			if err == nil && b.reduces(name, form) {
				a.body, err = merge.MetadataAlone(a.body)
			}
			if err == nil && b.makesTable(name, form) {
				a.body, err = b.tabled(a.body, false, form)
			}
			if err != nil {
				return nil, unreachable(name, err)
			}
			found[name] = p
		case http.StatusNotFound:
			if a.lacksPath() {
				errs[name] = b.partly(a)
			}
		case http.StatusForbidden: // the object may be there
			if must {
				errs[name] = b.unseen(a)
			}
		default:
			errs[name] = b.partly(a)
		}
	}
	if uid != "" {
		for _, p := range found {
			if p.meta.Metadata.UID == uid {
				return p, nil
			}
		}
		if len(found) > 0 && len(errs) == 0 { // another object of that name is not the one that is meant
			return nil, refusal(http.StatusNotFound, metav1.StatusReasonNotFound,
				"%s %q with UID %s is on neither side",
				b.row.GroupResource(), b.info.Name, uid)
		}
		if len(errs) > 0 {
			return nil, cmp.Or(errs[pair.Legacy], errs[pair.Modern])
		}
	}
	switch {
	case len(found) == 2:
		return nil, refusal(http.StatusConflict, metav1.StatusReasonConflict, "%s %q is on both sides: UID %s on the "+
			"legacy side, %s on the modern side; fieldSelector=metadata.uid=UID names one, as do /sides/legacy and "+
			"/sides/modern", b.row.GroupResource(), b.info.Name, found[pair.Legacy].meta.Metadata.UID,
			found[pair.Modern].meta.Metadata.UID)
	case len(errs) > 0 && (must || len(found) == 0):
		return nil, cmp.Or(errs[pair.Legacy], errs[pair.Modern])
	case len(found) == 1:
		return cmp.Or(found[pair.Legacy], found[pair.Modern]), nil
	}
	for _, name := range []pair.Side{pair.Modern, pair.Legacy} {
		if a := answers[name]; a != nil && a.code == http.StatusForbidden {
			return nil, answered{a}
		}
	}
	return nil, answered{answers[pair.Modern]}
}

// readMeta reads an object's metadata, or that of the object in a Table of one. A custom resource may have fields of
// these names in another case.
func readMeta(body []byte, into *merge.Meta) error {
	if err := json.Unmarshal(body, into); err != nil || into.Kind != "Table" {
		return err
	}
	var table struct {
		Rows []struct {
			Object stdjson.RawMessage `json:"object"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(body, &table); err != nil || len(table.Rows) != 1 || table.Rows[0].Object == nil {
		return errors.Join(err, errors.New("want a Table of one object"))
	}
	return json.Unmarshal(table.Rows[0].Object, into)
}

// objectPath is the path of the object, without its subresource.
func (b *both) objectPath() string {
	path := b.r.URL.EscapedPath()
	if b.info.Subresource == "" {
		return path
	}
	parts := strings.Split(path, "/")
	return strings.Join(parts[:len(parts)-len(b.info.Parts)+2], "/")
}

// uidSelected is the UID of fieldSelector=metadata.uid=UID, which names one of two objects of a name.
func (b *both) uidSelected() (string, error) {
	selector := b.query.Get("fieldSelector")
	if selector == "" {
		return "", nil
	}
	uid, ok := strings.CutPrefix(selector, "metadata.uid=")
	if uid = strings.TrimPrefix(uid, "="); !ok || uid == "" || strings.Contains(uid, ",") {
		return "", badRequest("fieldSelector %q: of one object only metadata.uid=UID is served", selector)
	}
	return uid, nil
}

// unseen refuses a write by name: the client may not know whether the side has an object of that name.
func (b *both) unseen(a *answer) error {
	var status metav1.Status
	_ = json.Unmarshal(a.body, &status) // without a message there is ours
	return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "a write by name needs permission to get on "+
		"both sides, because each may have the object; the %s side: %s; /sides/%s writes to the other side alone",
		a.side, status.Message, a.side.Other())
}
