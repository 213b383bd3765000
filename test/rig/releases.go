package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Release is a release that `make rig` builds.
type Release struct {
	Minor    kubever.Minor
	Version  kubever.Version // the patch release that its go.mod requires
	Programs []string        // kube-apiserver ...
	// OnRequest: make rig does not build it, and not every change is tested with it.
	OnRequest bool
}

// Releases lists the folders kube-1.N of the rig, oldest first: those that `make rig` builds, whether it has or not,
// and of those on request the ones that are built. Errors: a folder that is not named for a known minor, that names no
// programs or requires no release, or whose build.yaml does not parse.
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
		required := releaseLine.FindSubmatch(data)
		if required == nil {
			return nil, fmt.Errorf("test/rig/%s/go.mod: requires no release of k8s.io/kubernetes", name)
		}
		if release.Version, err = kubever.Parse(string(required[1])); err != nil {
			return nil, fmt.Errorf("test/rig/%s/go.mod: %w", name, err)
		}
		if release.OnRequest, err = onRequest(filepath.Dir(file)); err != nil {
			return nil, err
		}
		if release.OnRequest && slices.ContainsFunc(release.Programs, func(program string) bool {
			_, err := Binary(program, release.Minor)
			return err != nil
		}) {
			continue
		}
		releases = append(releases, release)
	}
	if len(releases) == 0 {
		return nil, fmt.Errorf("test/rig: no folder kube-1.N")
	}
	slices.SortFunc(releases, func(a, b Release) int { return int(a.Minor) - int(b.Minor) })
	return releases, nil
}

// onRequest reports whether the build.yaml of a folder says that only a request builds it.
func onRequest(folder string) (bool, error) {
	file := filepath.Join(folder, "build.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	var build struct {
		OnRequest bool `json:"onRequest"`
	}
	if err := yaml.Unmarshal(data, &build); err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	return build.OnRequest, nil
}

var releaseLine = regexp.MustCompile(`(?m)^(?:require)?\s+k8s\.io/kubernetes (v\S+)`)

var programLine = regexp.MustCompile(`(?m)^(?:tool)?\s+k8s\.io/kubernetes/cmd/(\S+)$`)
