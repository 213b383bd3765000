package routes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Entry is a row as JSON and YAML show it.
type Entry struct {
	Group      string    `json:"group"`
	Version    string    `json:"version"`
	Resource   string    `json:"resource"`
	Kind       string    `json:"kind"`
	Namespaced bool      `json:"namespaced"`
	Way        string    `json:"way"`
	Read       pair.Side `json:"read,omitempty"`
	Write      pair.Side `json:"write,omitempty"`
	Stream     pair.Side `json:"stream,omitempty"`
	// As are the versions of sides that do not serve the one of the row, by side.
	As           map[pair.Side]string `json:"as,omitempty"`
	Verbs        []string             `json:"verbs"`
	Subresources []string             `json:"subresources,omitempty"`
	Why          string               `json:"why"`
}

// Entry is the row as a document shows it. It shares nothing with the row.
func (r *Row) Entry() Entry {
	entry := Entry{Group: r.Group, Version: r.Version, Resource: r.Name, Kind: r.Kind, Namespaced: r.Namespaced,
		Way: string(r.Way), Read: r.Read, Write: r.Write, Stream: r.Stream, Verbs: append([]string{}, r.Verbs...),
		Why: r.Why}
	for side, as := range r.As {
		if entry.As == nil {
			entry.As = map[pair.Side]string{}
		}
		entry.As[side] = as.GroupVersion().String()
	}
	for _, sub := range r.Subresources {
		entry.Subresources = append(entry.Subresources, sub.Name)
	}
	return entry
}

// Gaps is what discovery of the sides could not find out; nil when it found out everything.
func (s *Sources) Gaps() error {
	var gaps []string
	for _, side := range pair.Sides() {
		if s.Of(side).Result == nil { // retired
			continue
		}
		if err := s.Of(side).Gaps(); err != nil {
			gaps = append(gaps, fmt.Sprintf("the %s side: %v", side, err))
		}
	}
	if len(gaps) == 0 {
		return nil
	}
	return errors.New("not all that is served is known: " + strings.Join(gaps, "; "))
}
