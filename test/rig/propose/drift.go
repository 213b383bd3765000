package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sources are what people read for the tables that are carried over, as paths of Kubernetes' repository.
var sources = map[string][]string{
	"access": {"cmd/kube-controller-manager/app/*.go",
		"plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go"},
	"allocators":  {"pkg/registry/core/rest/storage_core.go"},
	"annotations": {"pkg/apis/core/annotation_key_constants.go", "pkg/registry/core/pod/strategy.go"},
	"controllers": {"cmd/kube-controller-manager/names/*.go"},
	"crd-fields":  {"staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1/types.go"},
	"garbage":     {"pkg/controller/garbagecollector/*.go"},
	"implied":     {"pkg/apis/*/*/defaults.go"},
	"labels":      {"pkg/kubelet/kubelet_node_status.go", "staging/src/k8s.io/api/core/v1/well_known_labels.go"},
	"locks":       {"staging/src/k8s.io/client-go/tools/leaderelection/resourcelock/interface.go"},
	"resources":   {"pkg/kubeapiserver/default_storage_factory_builder.go"},
	"startup": {"pkg/controlplane/*.go", "pkg/controlplane/apiserver/*.go", "pkg/controlplane/controller/*/*.go",
		"pkg/registry/*/rest/*.go", "staging/src/k8s.io/kube-aggregator/pkg/apiserver/apiserver.go"},
}

// marks are lines whose coming and going says more than a changed file does: hooks, and kinds of owners.
var marks = map[string]*regexp.Regexp{
	"startup": regexp.MustCompile(`(?:AddPostStartHook\w*|PostStartHook\w*)\(.*`),
	"owners":  regexp.MustCompile(`controllerKind\s+=.*`),
}

var sourcePath = regexp.MustCompile(`\b(?:pkg|cmd|plugin|staging/src)/[\w./-]+\.go\b`)

// drift lists what changed in these sources between two releases.
func (all tables) drift(ctx context.Context, old, now release) ([]string, error) {
	watched := maps.Clone(sources)
	for _, name := range []string{"annotations", "behaviours", "labels", "values"} {
		t := all[name]
		for _, row := range t.rows {
			for _, path := range sourcePath.FindAllString(row[len(row)-1], -1) {
				if !slices.Contains(watched[name], path) {
					watched[name] = append(slices.Clone(watched[name]), path)
				}
			}
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(watched)) {
		var changed []string
		for _, pattern := range watched[name] {
			paths, err := differing(ctx, old, now, pattern)
			if err != nil {
				return nil, err
			}
			changed = append(changed, paths...)
		}
		slices.Sort(changed)
		if changed = slices.Compact(changed); len(changed) > 0 {
			lines = append(lines, fmt.Sprintf("%s.tsv: %s", name, strings.Join(changed, " ")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		gone, err := marked(old.dir, marks[name])
		if err != nil {
			return nil, err
		}
		come, err := marked(now.dir, marks[name])
		if err != nil {
			return nil, err
		}
		for _, line := range slices.Sorted(maps.Keys(come)) {
			if !gone[line] {
				lines = append(lines, fmt.Sprintf("%s.tsv: new: %s", name, line))
			}
		}
		for _, line := range slices.Sorted(maps.Keys(gone)) {
			if !come[line] {
				lines = append(lines, fmt.Sprintf("%s.tsv: gone: %s", name, line))
			}
		}
	}
	return append(lines, fmt.Sprintf("compare with: diff -ru %s %s", old.dir, now.dir)), nil
}

// differing lists the files of a pattern that are not the same in both releases; tests are none of them.
func differing(ctx context.Context, old, now release, pattern string) ([]string, error) {
	contents := [2]map[string][]byte{}
	for i, r := range []release{old, now} {
		contents[i] = map[string][]byte{}
		glob, err := r.file(ctx, pattern)
		if errors.Is(err, errNoModule) {
			continue // the files of the other release come, or are gone
		}
		if err != nil {
			return nil, fmt.Errorf("comparing %s: %w", pattern, err)
		}
		files, err := filepath.Glob(glob)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			root := strings.TrimSuffix(glob, filepath.FromSlash(pattern))
			if root == glob { // of a staging module: its path starts elsewhere
				contents[i][pattern] = data
			} else {
				contents[i][filepath.ToSlash(strings.TrimPrefix(file, root))] = data
			}
		}
	}
	var paths []string
	for path, data := range contents[1] {
		if before, ok := contents[0][path]; !ok || !bytes.Equal(before, data) {
			paths = append(paths, path)
		}
	}
	for path := range contents[0] {
		if _, ok := contents[1][path]; !ok {
			paths = append(paths, path+" (gone)")
		}
	}
	return paths, nil
}

// marked collects the matches in the sources of controllers and of the server.
func marked(dir string, mark *regexp.Regexp) (map[string]bool, error) {
	found := map[string]bool{}
	for _, below := range []string{"pkg/controller", "pkg/controlplane", "pkg/registry", "cmd/kube-apiserver"} {
		err := filepath.WalkDir(filepath.Join(dir, below), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, match := range mark.FindAll(data, -1) {
				found[strings.TrimSpace(string(match))] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
