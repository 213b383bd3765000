package admission_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cputest"
	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

// TestReviewsAreInTime: an object comes here before it is validated, and eight times as much of it takes about eight
// times as long; what grows with its square, 64 times. The time is that of this thread on a processor.
func TestReviewsAreInTime(t *testing.T) {
	p := planOf(t, "1.6.13", "1.36.3", "{unknownFields: refuse}")
	change, losses := admission.For(p), rules.Older{Minor: admission.Older(p), Sees: rules.LegacyOf(p).Sees}.Losses
	repeated := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", strconv.Itoa(i)))
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	pod := func(spec string) json.RawMessage {
		return json.RawMessage(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{` + spec + `}}`)
	}
	for name, review := range map[string]func(n int) admission.Request{
		"tokens of one volume": func(n int) admission.Request {
			return admission.Request{Operation: admission.Create, Object: pod(`"volumes":[{"name":"a","projected":{` +
				`"sources":[` + repeated(n, `{"serviceAccountToken":{"path":"token"}},`) + `,{"secret":{}}]}}]`)}
		},
		"ephemeral containers": func(n int) admission.Request {
			return admission.Request{Operation: admission.Update, Subresource: "ephemeralcontainers",
				Object: pod(`"ephemeralContainers":[` + repeated(n, `{"name":"n#"},`) + `]`),
				Old:    pod(`"ephemeralContainers":[` + repeated(n, `{"name":"o#"},`) + `]`)}
		},
		"fields that are dropped": func(n int) admission.Request {
			containers := func(of string) json.RawMessage {
				return pod(`"containers":[` + repeated(4*n, `{"name":"`+of+`#","startupProbe":{"periodSeconds":1}},`) + `]`)
			}
			return admission.Request{Operation: admission.Update, Object: containers("n"), Old: containers("o")}
		},
	} {
		reviewing := func(n int) time.Duration {
			r := review(n)
			r.Kind, r.Namespace = podKind, "demo"
			return cputest.Thread(t, func() {
				if _, err := change.Review(t.Context(), r, fixedTokens{}, losses); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			})
		}
		few, many := reviewing(500), reviewing(4000)
		t.Logf("%s: %s, %s: %.1f", name, few, many, float64(many)/float64(few))
		if many > 24*few {
			t.Errorf("%s: takes %s, and eight times as much %s", name, few, many)
		}
	}
}
