package plan

import "testing"

func TestReplaceEndpointsReplacesWholeURLs(t *testing.T) {
	moved := map[string]string{"https://10.0.0.1:2479": "https://m-0:2479"}
	for value, want := range map[string]string{
		"https://10.0.0.1:2479":                      "https://m-0:2479",
		"https://10.0.0.1:24790":                     "https://10.0.0.1:24790",
		"/pods#https://10.0.0.1:2479;https://b,/x#c": "/pods#https://m-0:2479;https://b,/x#c",
		"": "",
	} {
		if got := replaceEndpoints(value, moved); got != want {
			t.Errorf("replaceEndpoints(%q) = %q, want %q", value, got, want)
		}
	}
}
