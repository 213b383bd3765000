package pair

import (
	"errors"
	"fmt"
	"slices"
)

// Validate reports everything that makes the map unusable, joined.
func (m *Map) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ownership map: "+format, args...)) }
	if len(m.Stores) == 0 {
		bad("stores: want at least one")
	}
	known := func(field, store string) {
		if store != "" && !slices.Contains(m.Stores, store) {
			bad("%s: store %q: want one of %q", field, store, m.Stores)
		}
	}
	known("legacy.store", m.Legacy.Store)
	known("modern.store", m.Modern.Store)
	seen := map[string]bool{}
	for i := range m.Resources {
		r := &m.Resources[i]
		field := fmt.Sprintf("resources[%d]", i)
		if r.Key == "" {
			bad("%s.key: is empty", field)
			continue
		}
		if seen[r.Key] {
			bad("%s.key: %q is listed twice", field, r.Key)
		}
		seen[r.Key] = true
		m.validateRow(r, fmt.Sprintf("%s (%s)", field, r.Key), bad, known)
	}
	m.validateRow(&m.CustomResources, "customResources", bad, known)
	return errors.Join(errs...)
}

func (m *Map) validateRow(r *Resource, field string, bad func(string, ...any), known func(field, store string)) {
	switch r.Owner {
	case OwnerLegacy, OwnerModern, OwnerShared, OwnerSplit:
	default:
		bad("%s.owner: %q: want legacy, modern, shared or split", field, r.Owner)
	}
	if r.Owner == OwnerShared && r.Legacy.Store != r.Modern.Store && r.Legacy.Store != "" && r.Modern.Store != "" {
		bad("%s: shared, but the legacy side keeps it in %q and the modern side in %q", field, r.Legacy.Store,
			r.Modern.Store)
	}
	known(field+".legacy.store", r.Legacy.Store)
	known(field+".modern.store", r.Modern.Store)
}
