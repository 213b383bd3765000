package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/kubefusion/fusionctl/internal/tlsserver"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// fileLimitBytes bounds the policy files that are read: more than a million rules.
const fileLimitBytes = 256 << 20

// Source holds the last good policy of a file. Policy is safe for concurrent use, Check is not.
type Source struct {
	file    string
	lenient bool
	metrics *Metrics
	current atomic.Pointer[Policy]

	loaded  os.FileInfo // of the file that was last loaded or refused
	waiting os.FileInfo // of a changed file, until it has stayed the same for one check
}

// Open loads a policy file. Unless lenient, a policy with a finding of severity error is refused, such as a line that allows
// everything; policy.Validate finds those.
func Open(file string, lenient bool, metrics *Metrics) (*Source, error) {
	s := &Source{file: file, lenient: lenient, metrics: metrics}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if err := s.load(info); err != nil {
		return nil, err
	}
	return s, nil
}

// Policy is the policy of the moment.
func (s *Source) Policy() Policy { return *s.current.Load() }

// Check looks whether the file has changed and loads it then. A file that has just changed is loaded by the next check that
// finds it the same: whoever writes it in place may be in the middle. An error tells why the file was not loaded; it is
// reported once per change, and the policy of before stays in use.
func (s *Source) Check() (loaded bool, err error) {
	info, err := os.Stat(s.file)
	if err != nil {
		if s.loaded == nil {
			return false, nil // known to be gone
		}
		s.loaded, s.waiting = nil, nil
		s.metrics.keep()
		return false, err
	}
	if s.loaded != nil && tlsserver.SameFile(info, s.loaded) {
		s.waiting = nil
		return false, nil
	}
	if s.waiting == nil || !tlsserver.SameFile(info, s.waiting) {
		s.waiting = info
		return false, nil
	}
	s.waiting = nil
	if err := s.load(info); err != nil {
		s.metrics.keep()
		return false, err
	}
	return true, nil
}

// load reads the file and takes it into use if it is good. Either way it is not looked at again until it changes.
func (s *Source) load(info os.FileInfo) error {
	s.loaded = info
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: want a file", s.file)
	}
	data, err := readFile(s.file)
	if err != nil {
		return err
	}
	rules, err := policy.Parse(s.file, bytes.NewReader(data))
	if err != nil {
		return err
	}
	if !s.lenient {
		if err := refuseErrors(s.file, data); err != nil {
			return err
		}
	}
	s.current.Store(&Policy{Name: s.file, Authorizer: policy.NewAuthorizer(rules)})
	s.metrics.load(len(rules), time.Now())
	return nil
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileLimitBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > fileLimitBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, fileLimitBytes)
	}
	return data, nil
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

// Watch checks the file at every tick until the context ends.
func (s *Source) Watch(ctx context.Context, ticks <-chan time.Time, logger *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		switch loaded, err := s.Check(); {
		case err != nil:
			logger.Error("the policy file is not loaded, the one of before stays in use", "file", s.file, "error", err)
		case loaded:
			logger.Info("loaded the policy file", "file", s.file)
		}
	}
}
