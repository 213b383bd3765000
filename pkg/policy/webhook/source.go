package webhook

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// fileLimitBytes bounds the policy files that are read: more than a million rules.
const fileLimitBytes = 256 << 20

// Source holds the last good policy of a file. Current is safe for concurrent use, Check and Watch are not.
type Source = webserver.Source[Policy]

// Open loads a policy file. Unless lenient, a policy without a rule is refused, and one with a finding of severity
// error, such as a line that allows everything; policy.Validate finds those.
func Open(file string, lenient bool, metrics *Metrics) (*Source, error) {
	read := func(files []webserver.File) (Policy, int, error) {
		data, err := files[0].Read(fileLimitBytes)
		if err != nil {
			return Policy{}, 0, err
		}
		rules, err := policy.Parse(file, bytes.NewReader(data))
		if err != nil {
			return Policy{}, 0, err
		}
		if len(rules) == 0 && !lenient {
			return Policy{}, 0, fmt.Errorf("%s: no rule in it: no request would be allowed", file)
		}
		if !lenient {
			if err := refuseErrors(file, data); err != nil {
				return Policy{}, 0, err
			}
		}
		return Policy{Name: file, Authorizer: policy.NewAuthorizer(rules)}, len(rules), nil
	}
	return webserver.Open(webserver.OneFile(file), read, metrics.Metrics)
}

// refuseErrors turns the findings of severity error into one error.
func refuseErrors(file string, data []byte) error {
	report, err := policy.Validate(file, bytes.NewReader(data), policy.Options{})
	if err != nil {
		return err
	}
	var problems []error
	for _, f := range report.Findings {
		if f.Severity == finding.Error {
			problems = append(problems, fmt.Errorf("%s:%d:%d: %s %s", f.File, f.Line, f.Column, f.Rule, f.Message))
		}
	}
	return errors.Join(problems...)
}
