package storage

import (
	"encoding/json"
	"strings"
	"testing"
)

func FuzzJSONMembers(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":["}",{}]},"d":"\"","e":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil {
			// must only not fall over
			_ = JSONMembers(data, func(_, value []byte) bool { jsonString(value); return true })
			return
		}
		got := map[string]string{}
		if err := JSONMembers(data, func(key, value []byte) bool {
			got[string(key)] = string(value)
			return true
		}); err != nil {
			t.Fatalf("JSONMembers(%q) = %v, and encoding/json reads it", data, err)
		}
		for key, value := range want {
			if got[key] != string(value) && !strings.Contains(string(data), `\u`) &&
				strings.ToValidUTF8(string(data), "") == string(data) {
				t.Errorf("JSONMembers(%q)[%q] = %q, want %q", data, key, got[key], value)
			}
		}
	})
}
