package licenses

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/golden"
)

// kinds are the licenses that a dependency may have, each with what its text says and no other's; the first that fits
// counts. A license that is missing here is read by a person before it is added. All of these let a program be
// distributed with its dependencies when their texts come along; the source of MPL-2.0 code, which is not changed, is
// public.
var kinds = []struct {
	name string
	says []string
	lack string // what a text of this kind does not say
}{
	{"Apache-2.0", []string{"apache license version 2.0, january 2004", "grant of copyright license",
		"grant of patent license"}, ""},
	{"MPL-2.0", []string{"mozilla public license version 2.0", "1.1. contributor"}, ""},
	{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy",
		"the software is provided as is"}, ""},
	{"ISC", []string{"permission to use, copy, modify, and distribute this software for any purpose",
		"the software is provided as is"}, ""},
	{"ISC", []string{"permission to use, copy, modify, and/or distribute this software for any purpose",
		"the software is provided as is"}, ""},
	{"BSD-3-Clause", []string{"redistribution and use in source and binary forms",
		"redistributions in binary form must reproduce", "may be used to endorse or promote"}, "advertising"},
	{"BSD-2-Clause", []string{"redistribution and use in source and binary forms",
		"redistributions in binary form must reproduce"}, "advertising"},
	{"HPND", []string{"permission to use, copy, modify, and distribute this software and its documentation for any " +
		"purpose and without fee"}, ""},
	{"FTL", []string{"subject to your choice of exactly one of the following two licenses",
		"the freetype license, which",
		"the gnu general public license (gpl), version 2"}, ""},
	{"FTL", []string{"the freetype project license", "grants a worldwide, royalty-free, perpetual and",
		"redistribution of source code must retain this license"}, ""},
	{"patent grant of Go", []string{"additional ip rights grant (patents)", "hereby grants to you a perpetual"}, ""},
}

// besides are texts that the license of a module names, and that come along too.
var besides = map[string][]string{"github.com/golang/freetype": {"licenses/ftl.txt"}}

// refused is what no text may say, whatever else it says.
var refused = []string{
	"commons clause", "business source license", "server side public license", "non-commercial", "noncommercial",
	"elastic license",
	"gnu affero general public license version 3 19 november", "gnu general public license version",
	"gnu lesser general public license version 3, 29",
}

var (
	licenseFile = regexp.MustCompile(`(?i)^(un)?licen[cs]e|^copying|^patents$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice(\.|$)`)
	marks       = regexp.MustCompile(`[^a-z0-9.,()/:-]+`)
)

// classify names the license of a text. A text of several, such as a license with those of what was copied in, has all
// their names.
func classify(text string) ([]string, error) {
	words := strings.TrimSpace(marks.ReplaceAllString(strings.ToLower(text), " "))
	for _, phrase := range refused {
		if strings.Contains(words, phrase) {
			return nil, fmt.Errorf("says %q", phrase)
		}
	}
	var names []string
	for _, kind := range kinds {
		fits := !slices.ContainsFunc(kind.says, func(phrase string) bool { return !strings.Contains(words, phrase) })
		covered := kind.name == "BSD-2-Clause" && slices.Contains(names, "BSD-3-Clause")
		if fits && !covered && (kind.lack == "" || !strings.Contains(words, kind.lack)) &&
			!slices.Contains(names, kind.name) {
			names = append(names, kind.name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("is none of the licenses that are known")
	}
	return names, nil
}

// file is a text that has to come along with a module.
type file struct {
	path string // with the module's
	text string
}

// TestLicensesOfDependencies walks the packages that the program contains, up to the root of their modules, and holds
// every license found there against kinds. make golden writes the file anew.
func TestLicensesOfDependencies(t *testing.T) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	goroot := strings.TrimSpace(string(out))
	byModule := map[string][]file{
		"the standard library of Go": {read(t, filepath.Join(goroot, "LICENSE"), "go/LICENSE"),
			read(t, filepath.Join(goroot, "PATENTS"), "go/PATENTS")}}
	for module, dirs := range dependencies(t) {
		found := map[string]file{}
		for dir := range dirs {
			for ; len(dir) >= len(module.Dir); dir = filepath.Dir(dir) {
				collect(t, module, dir, found)
			}
		}
		for _, name := range besides[module.Path] {
			path := module.Path + "/" + name
			found[path] = read(t, filepath.Join(module.Dir, name), path)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(path string) bool {
			return filepath.Dir(path) == module.Path && licenseFile.MatchString(filepath.Base(path))
		}) {
			t.Errorf("%s has no license", module.Path)
		}
		for _, path := range slices.Sorted(maps.Keys(found)) {
			byModule[module.Path] = append(byModule[module.Path], found[path])
		}
	}
	if len(byModule) < 50 {
		t.Fatalf("go list named %d modules", len(byModule))
	}
	golden.File(t, "THIRD_PARTY_LICENSES", render(t, byModule))
}

// render lists the modules, and behind them each text once.
func render(t *testing.T, byModule map[string][]file) []byte {
	t.Helper()
	var list, texts bytes.Buffer
	list.WriteString("fusionctl contains the following modules under the following licenses, whose texts and notices " +
		"stand below.\n" +
		"Portions of this software are based in part on the work of the FreeType Team (www.freetype.org), under the " +
		"FreeType License.\n\n")
	of := map[[sha256.Size]byte][]string{}
	var order []file
	for _, module := range slices.Sorted(maps.Keys(byModule)) {
		var names []string
		for _, f := range byModule[module] {
			if !noticeFile.MatchString(filepath.Base(f.path)) {
				kinds, err := classify(f.text)
				if err != nil {
					t.Errorf("%s %v: a person has to read it", f.path, err)
				}
				names = append(names, kinds...)
			}
			sum := sha256.Sum256([]byte(f.text))
			if of[sum] == nil {
				order = append(order, f)
			}
			of[sum] = append(of[sum], f.path)
		}
		slices.Sort(names)
		fmt.Fprintf(&list, "%s: %s\n", module, strings.Join(slices.Compact(names), ", "))
	}
	for _, f := range order {
		fmt.Fprintf(&texts, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80),
			strings.Join(of[sha256.Sum256([]byte(f.text))], "\n"), f.text)
	}
	return append(list.Bytes(), texts.Bytes()...)
}

func collect(t *testing.T, of module, dir string, found map[string]file) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".docs") ||
			!licenseFile.MatchString(name) && !noticeFile.MatchString(name) {
			continue
		}
		path := of.Path + filepath.ToSlash(strings.TrimPrefix(filepath.Join(dir, name), of.Dir))
		found[path] = read(t, filepath.Join(dir, name), path)
	}
}

func read(t *testing.T, from, path string) file {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\r", "")) {
		lines = append(lines, strings.TrimRight(line, " \t\n\f"))
	}
	return file{path, strings.Trim(strings.Join(lines, "\n"), "\n")}
}

type module struct{ Path, Dir string }

// dependencies lists the folders of the packages that the program contains, by module, on every platform that is built
// for.
func dependencies(t *testing.T) map[module]map[string]bool {
	t.Helper()
	found := map[module]map[string]bool{}
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/arm64"} {
		system, architecture, _ := strings.Cut(platform, "/")
		cmd := exec.Command("go", "list", "-deps", "-json=Dir,Module", "../../cmd/fusionctl")
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				Dir    string
				Module *struct {
					Path, Dir string
					Main      bool
				}
			}
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if p.Module == nil || p.Module.Main {
				continue
			}
			m := module{p.Module.Path, p.Module.Dir}
			if found[m] == nil {
				found[m] = map[string]bool{}
			}
			found[m][p.Dir] = true
		}
	}
	return found
}

func TestUnknownLicensesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"All rights reserved. You may read this source.": "",
		"Permission is hereby granted, free of charge, to any person obtaining a copy ... THE SOFTWARE IS PROVIDED " +
			"\"AS IS\"": "MIT",
		"\"Commons Clause\" License Condition v1.0. Permission is hereby granted, free of charge, to any person " +
			"obtaining a copy; the software is provided \"as is\"": "",
		"GNU GENERAL PUBLIC LICENSE\n Version 2, June 1991": "",
		"Redistribution and use in source and binary forms ... Redistributions in binary form must reproduce ... All " +
			"advertising materials must display": "",
		"Redistribution and use in source and binary forms ... Redistributions in binary form must reproduce ... may " +
			"be used to endorse or promote products": "BSD-3-Clause",
		"Redistribution and use in source and binary forms ... Redistributions in binary form must reproduce the " +
			"above": "BSD-2-Clause",
	} {
		if got, err := classify(text); strings.Join(got, ", ") != want || (err == nil) != (want != "") {
			t.Errorf("classify(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}
