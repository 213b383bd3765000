package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// commandLines are the words of every process of this machine.
func commandLines() ([][]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var commands [][]string
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil { // otherwise it has ended
			commands = append(commands, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"))
		}
	}
	return commands, nil
}

// runs checks that there are processes of the program, and that each of them has the arguments; those of the other side
// are none of them.
func runs(c *transition.Check, commands [][]string) error {
	found := false
	var problems []error
	for _, words := range commands {
		if !isProgram(words, c.Program) {
			continue
		}
		given := settings(words)
		isOther := slices.ContainsFunc(c.Others, func(args []string) bool { return len(lacking(given, args)) == 0 })
		if isOther {
			continue
		}
		found = true
		if missing := lacking(given, c.Args); len(missing) > 0 {
			problems = append(problems, fmt.Errorf("a process %s runs without %s", c.Program,
				strings.Join(missing, " ")))
		}
	}
	if !found {
		return fmt.Errorf("no process %s, which has to run with %s", c.Program, strings.Join(c.Args, " "))
	}
	return errors.Join(problems...)
}

// ended checks that no process has all of the arguments.
func ended(c *transition.Check, commands [][]string) error {
	if slices.ContainsFunc(commands, func(words []string) bool { return len(lacking(settings(words), c.Args)) == 0 }) {
		return fmt.Errorf("a process %s listens no more, or not yet, and has not ended", c.Program)
	}
	return nil
}

// isProgram reports whether a command line is one of a program: /usr/bin/kube-apiserver, or /hyperkube apiserver.
func isProgram(words []string, program string) bool {
	return slices.ContainsFunc(words[:min(2, len(words))], func(w string) bool {
		base := filepath.Base(w)
		return base == program || base == strings.TrimPrefix(program, "kube-")
	})
}

// settings are the words of a command line, and its flags as --name=value however they are written.
func settings(words []string) []string {
	given := slices.Clone(words)
	for i, w := range words {
		if !strings.HasPrefix(w, "--") || strings.Contains(w, "=") {
			continue
		}
		given = append(given, w+"=true")
		if i+1 < len(words) {
			given = append(given, w+"="+words[i+1])
		}
	}
	return given
}

func lacking(given, args []string) []string {
	var missing []string
	for _, a := range args {
		if !slices.Contains(given, a) {
			missing = append(missing, a)
		}
	}
	return missing
}
