package transition

import (
	"bytes"
	"strings"
	"testing"
)

func TestFilesAreReadAsTheyWereWritten(t *testing.T) {
	eachJourney(t, func(t *testing.T, _, _ Setup, tr *Transition) {
		written, err := tr.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		read, err := Parse(written)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := read.Marshal(); err != nil || !bytes.Equal(again, written) {
			t.Errorf("what was read is not what was written, or %v", err)
		}
	})
}

// small is a file of one step.
const small = `{"schema":"fusionctl/transition/v1","from":"a","to":"b",` +
	`"hosts":[{"name":"cp-1","address":"192.0.2.1"}],"steps":[{"id":"001","phase":"prepare","host":"cp-1",` +
	`"title":"put /etc/a","do":{"kind":"put file","file":{"path":"/etc/a","mode":384,"data":"QQ=="}}}]}` + "\n"

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	if _, err := Parse([]byte(small)); err != nil {
		t.Fatalf("Parse of a file of steps: %v", err)
	}
	for want, text := range map[string]string{
		"is no file of steps":    strings.Replace(small, "transition/v1", "transition/v2", 1),
		"no file of steps":       "spec: {}",
		`unknown field "unless"`: strings.Replace(small, `"kind"`, `"unless":"x","kind"`, 1),
		`unknown field "first"`:  strings.Replace(small, `"from"`, `"first":"x","from"`, 1),
		"trailing data":          small + small,
		"none of the hosts":      strings.Replace(small, `"host":"cp-1"`, `"host":"cp-2"`, 1),
	} {
		if got, err := Parse([]byte(text)); err == nil || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%s) = %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

// What can be read can be written, and is then the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := Parse(data)
		if err != nil {
			return
		}
		once, err := read.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(once)
		if err != nil {
			t.Fatalf("Parse(%s): %v", once, err)
		}
		if twice, err := again.Marshal(); err != nil || !bytes.Equal(twice, once) {
			t.Errorf("%s becomes %s, or %v", once, twice, err)
		}
	})
}
