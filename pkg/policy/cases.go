package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// Want is what a test case expects.
type Want string

const (
	WantAllow Want = "allow"
	WantDeny  Want = "deny"
)

// Case is a request and what a policy should say to it. Shape: {"name":"no
// secrets","user":"alice","groups":["devs"],"verb":"get","resource":"secrets","namespace":"a","want":"deny"}
type Case struct {
	Name string `json:"name"`
	Request
	Want Want `json:"want"`
}

// CaseResult is what a policy says to a case.
type CaseResult struct {
	Case   Case `json:"case"`
	Got    Want `json:"got"`
	Line   int  `json:"line,omitempty"` // of the first rule that allows the request
	Passed bool `json:"passed"`
}

// ParseCases reads cases: JSON objects one after another, or YAML or JSON lists of them. The name is used in errors,
// and a case without a name is called after its number. Errors: a field that is not known, a case without a verb, with
// neither or both of resource and path, or that wants something else than allow or deny; all are reported, joined. A
// file without cases is an error.
func ParseCases(name string, data []byte) ([]Case, error) {
	if err := yamltext.BoundAliases(data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var cases []Case
	var problems []error
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var document json.RawMessage
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(append(problems, fmt.Errorf("%s: case %d: %w", name, len(cases)+1, brief(err)))...)
		}
		elements := []json.RawMessage{document}
		if document = bytes.TrimSpace(document); len(document) > 0 && document[0] == '[' {
			if err := json.Unmarshal(document, &elements); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		for _, element := range elements {
			if string(element) == "null" { // an empty YAML document
				continue
			}
			c, err := parseCase(element)
			if c.Name == "" {
				c.Name = fmt.Sprintf("case %d", len(cases)+1)
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: case %d (%s): %w", name, len(cases)+1, c.Name, err))
			}
			cases = append(cases, c)
		}
	}
	if len(cases) == 0 {
		problems = append(problems, fmt.Errorf("%s: no cases in it", name))
	}
	return cases, errors.Join(problems...)
}

func parseCase(data []byte) (Case, error) {
	var c Case
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, brief(err)
	}
	switch {
	case c.Want != WantAllow && c.Want != WantDeny:
		return c, fmt.Errorf("want %q: want allow or deny", c.Want)
	case c.Verb == "":
		return c, errors.New("no verb")
	case c.Resource == "" && c.Path == "":
		return c, errors.New("neither resource nor path")
	case c.Path != "" && (c.Resource != "" || c.APIGroup != "" || c.Namespace != "" || c.Subresource != "" ||
		c.ObjectName != ""):
		return c, errors.New("a path and a resource: a request is for one of them")
	case c.User == "" && len(c.Groups) == 0:
		return c, errors.New("neither user nor groups")
	}
	return c, nil
}

// RunCases asks the policy every case. Unless exactGroups, requests are in the groups that a server adds
// (Request.Authenticated).
func RunCases(by *Authorizer, cases []Case, exactGroups bool) []CaseResult {
	results := make([]CaseResult, len(cases))
	for i, c := range cases {
		q := c.Request
		if !exactGroups {
			q = q.Authenticated()
		}
		results[i] = CaseResult{Case: c, Got: WantDeny}
		if rule, ok := by.Match(q.Attributes()); ok {
			results[i].Got, results[i].Line = WantAllow, rule.Line
		}
		results[i].Passed = results[i].Got == c.Want
	}
	return results
}
