//go:build !linux

package filetree

import "errors"

// exchange is Linux' alone.
func exchange(string, string) error { return errors.ErrUnsupported }
