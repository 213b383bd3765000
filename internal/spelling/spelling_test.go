package spelling

import "testing"

func TestNearest(t *testing.T) {
	fields := []string{"port", "cert", "key", "bindAddress", "extraArgs", "image", "command"}
	for _, test := range []struct{ word, want string }{
		{"prt", "port"},
		{"prot", "port"}, // two neighbours swapped
		{"ports", "port"},
		{"Port", "port"},
		{"bind-address", "bindAddress"},
		{"extra_args", "extraArgs"},
		{"comand", "command"},
		{"imgae", "image"},
		{"volumes", ""},
		{"x", ""},
		{"", ""},
	} {
		got, ok := Nearest(test.word, fields)
		if got != test.want || ok != (test.want != "") {
			t.Errorf("Nearest(%q) = %q, %v, want %q", test.word, got, ok, test.want)
		}
	}
}

func TestNearestTakesTheFirstOfEquals(t *testing.T) {
	if got, _ := Nearest("cat", []string{"cut", "cot"}); got != "cut" {
		t.Errorf("Nearest(cat) = %q, want the first of two equally close words, cut", got)
	}
}
