package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The exit codes of every verb.
const (
	exitDone        = 0
	exitFailed      = 1   // could not finish
	exitUsage       = 2   // bad usage or a bad input file
	exitAttention   = 3   // done, and findings, a denial or restarts were reported
	exitInterrupted = 130 // by a signal
)

// errAttention is returned by a verb that finished, after its findings were printed.
var errAttention = errors.New("findings were reported")

// usageError marks an error as the caller's: bad flags or a bad input file. The hint, if any, is printed on a line of
// its own.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// badInput marks err as the fault of what was given. It keeps nil.
func badInput(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &usageError{err: err, hint: hint}
}

// usagef is badInput of a formatted error without a hint.
func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// hintedError adds a way out to an error that is not the caller's fault.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// withHint adds a line that says what to do. It keeps nil, and without a hint the error's own.
func withHint(err error, hint string) error {
	if err == nil || hint == "" {
		return err
	}
	return &hintedError{err: err, hint: hint}
}

// hintOf finds the hint of an error, "" for none.
func hintOf(err error) string {
	var usage *usageError
	if errors.As(err, &usage) && usage.hint != "" {
		return usage.hint
	}
	var hinted *hintedError
	if errors.As(err, &hinted) {
		return hinted.hint
	}
	return ""
}

// exitCode is the one place where an error becomes an exit code.
func exitCode(ctx context.Context, err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errAttention):
		return exitAttention
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &usage):
		return exitUsage
	default:
		return exitFailed
	}
}

// errorLines are the lines of an error: each of those that it joins begins one, and what follows a line break within
// one is indented, so that no text from elsewhere looks like a line of ours.
func errorLines(err error) []string {
	text := strings.TrimRight(err.Error(), "\n")
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var lines, texts []string
		for _, inner := range e.Unwrap() {
			lines, texts = append(lines, errorLines(inner)...), append(texts, inner.Error())
		}
		if strings.Join(texts, "\n") == err.Error() {
			return lines
		}
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil && inner.Error() == err.Error() {
			return errorLines(inner)
		}
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines[1:] {
		if !strings.HasPrefix(line, "  ") {
			lines[i+1] = "  " + line
		}
	}
	return lines
}
