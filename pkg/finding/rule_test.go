package finding

import "testing"

func TestWrapBreaksAtSpaces(t *testing.T) {
	for _, test := range []struct {
		text string
		want string
	}{
		{"one two three four", "one two\nthree four"},
		{"  one\n two ", "one two"},
		{"incomprehensibilities are long", "incomprehensibilities\nare long"},
		{"", ""},
	} {
		if got := wrap(test.text, 10); got != test.want {
			t.Errorf("wrap(%q, 10) = %q, want %q", test.text, got, test.want)
		}
	}
}
