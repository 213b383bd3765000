package rig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHelpOfEveryFormatIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		help string
		want map[string]HelpFlag
	}{
		"one list, lines without indentation": {
			help: `Usage of ./server:
      --enabled                    If true (default is false), work.
      --gates mapStringBool        Gates. Options are:
One=true|false (ALPHA - default=false)
Two=true|false (BETA - default=true)
      --log-dir string             A folder
  -v, --v Level                    How much (default 2)
pflag: help requested
`,
			want: map[string]HelpFlag{
				"enabled": {Text: "If true (default is false), work."},
				"gates": {Text: "Gates. Options are:\nOne=true|false (ALPHA - default=false)\nTwo=true|false (BETA " +
					"- default=true)"},
				"log-dir": {Text: "A folder"},
				"v":       {Default: "2", Text: "How much (default 2)"},
			},
		},
		"sections, indented lines": {
			help: `A server.

Usage:
  server [flags]

Generic flags:

      --names strings     Names; '*' for all.
                          All: a, b (default [*])
      --old string        Old. (default "a (b) \"c\"") (DEPRECATED: use --new)
      --address ip        Where. (default 0.0.0.0)

Misc flags:

  -h, --help              help for server
      --odd string        Odd (default: what (default 3s) says). (default "x")
`,
			want: map[string]HelpFlag{
				"names":   {Default: "[*]", Text: "Names; '*' for all.\nAll: a, b (default [*])"},
				"old":     {Default: `a (b) "c"`, Text: `Old. (default "a (b) \"c\"") (DEPRECATED: use --new)`},
				"address": {Default: "0.0.0.0", Text: "Where. (default 0.0.0.0)"},
				"help":    {Text: "help for server"},
				"odd":     {Default: "x", Text: `Odd (default: what (default 3s) says). (default "x")`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ParseHelp(test.help)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
