package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Release is a release that `make rig` builds.
type Release struct {
	Minor    kubever.Minor
	Programs []string // kube-apiserver ...
}

// Releases lists the folders kube-1.N of the rig, oldest first, whether they have been built or not.
// Errors: a folder that is not named for a known minor, or that names no programs.
func Releases() ([]Release, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "test", "rig", "kube-*", "go.mod"))
	if err != nil {
		return nil, err
	}
	var releases []Release
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		version, err := kubever.Parse(strings.TrimPrefix(name, "kube-"))
		if err != nil {
			return nil, fmt.Errorf("test/rig/%s: %w", name, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		release := Release{Minor: version.Minor}
		for _, match := range programLine.FindAllStringSubmatch(string(data), -1) {
			release.Programs = append(release.Programs, match[1])
		}
		if len(release.Programs) == 0 {
			return nil, fmt.Errorf("test/rig/%s/go.mod: no tool below k8s.io/kubernetes/cmd", name)
		}
		releases = append(releases, release)
	}
	if len(releases) == 0 {
		return nil, fmt.Errorf("test/rig: no folder kube-1.N")
	}
	slices.SortFunc(releases, func(a, b Release) int { return int(a.Minor) - int(b.Minor) })
	return releases, nil
}

var programLine = regexp.MustCompile(`(?m)^(?:tool)?\s+k8s\.io/kubernetes/cmd/(\S+)$`)
