package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kubefusion/fusionctl/pkg/journal"
)

// readPlan reads a plan that is carried out with the user's rights: journal.OpenPlan says whose file it may be.
func readPlan(file string, limitBytes int64, hint string) ([]byte, error) {
	in, err := journal.OpenPlan(file)
	if err != nil {
		return nil, badInput(err, hint)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, limitBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", file, err)
	case int64(len(data)) > limitBytes:
		return nil, usagef("%s: larger than %d bytes", file, limitBytes)
	}
	return data, nil
}

// writePlan writes a plan that apply and undo go by.
func writePlan(file string, data []byte) error {
	return planError(journal.WritePlan(file, func(w *bufio.Writer) error { _, err := w.Write(data); return err }))
}

// planError is an error of journal.WritePlan with its way out.
func planError(err error) error {
	if errors.Is(err, journal.ErrBegun) {
		return badInput(err, "give the new plan another name")
	}
	return err
}

// journalError is an error of journal.Open with its way out; other says how to name another journal.
func journalError(err error, other string) error {
	var opening *fs.PathError
	switch {
	case errors.Is(err, journal.ErrLocked):
		return withHint(err, "wait until that one ends, or stop it: the journal records its progress")
	case errors.Is(err, journal.ErrOtherPlan):
		return badInput(err, other)
	case errors.As(err, &opening) && opening.Op == "open":
		return badInput(opening, "")
	}
	return err
}
