package spec

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"text/template"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:embed skeleton.yaml.tmpl
var skeletonText string

// etcdRelease is the release of etcd that a new store gets. API servers from 1.6 to 1.36 were run on it.
const etcdRelease = "3.6.8"

// Skeleton writes a commented spec of the layout for a pair of versions, to start from; Load accepts it as it is. A
// version without a patch becomes the release that the tables were read from. Errors: a modern version that is older
// than the legacy one, an unknown layout.
func Skeleton(layout Layout, legacy, modern kubever.Version) ([]byte, error) {
	if !slices.Contains(Layouts, string(layout)) {
		return nil, fmt.Errorf("layout %q: want shared or split", layout)
	}
	if modern.Minor < legacy.Minor {
		return nil, fmt.Errorf("modern version %s is older than legacy version %s", modern, legacy)
	}
	alike := storedAlike(legacy.Minor, modern.Minor)
	example := "configmaps"
	if len(alike) > 0 {
		example = alike[0]
	}
	var out bytes.Buffer
	err := template.Must(template.New("skeleton").Parse(skeletonText)).Execute(&out, map[string]any{
		"Layout":       string(layout),
		"Legacy":       release(legacy),
		"Modern":       release(modern),
		"Etcd":         etcdRelease,
		"OwnRange":     NeedsOwnRange(legacy.Minor, modern.Minor),
		"NeedsPods":    NeedsPods(layout, legacy.Minor, modern.Minor),
		"Alike":        alike,
		"OwnerExample": example,
	})
	if err != nil {
		return nil, fmt.Errorf("spec: internal error: %w", err)
	}
	return out.Bytes(), nil
}

// NeedsOwnRange reports whether the modern side needs a service range of its own: the legacy version finds free
// addresses in a bitmap that the modern one cannot be made to write.
func NeedsOwnRange(legacy, modern kubever.Minor) bool {
	notes := kubever.AllocatorsIn(modern)
	return !kubever.AllocatorsIn(legacy).FromObjects && !notes.Bitmap && notes.KeepBitmap == ""
}

// NeedsPods reports whether pods of the modern side never start unless they are given another token: kubelets of the
// legacy version know the projected one and refuse to mount it, and the modern API server cannot be told to leave it
// out.
func NeedsPods(layout Layout, legacy, modern kubever.Minor) bool {
	gate, known := kubever.Gate("BoundServiceAccountTokenVolume").At(modern)
	return layout == LayoutSplit && kubever.Behaves(kubever.BehaviourTokenVolumeProjected, modern) &&
		(!known || gate.Locked) &&
		kubever.Behaves(kubever.BehaviourTokenProjectionKept, legacy) &&
		!kubever.Behaves(kubever.BehaviourTokenProjectionMountable, legacy)
}

// release names a release of the version: itself when it has a patch.
func release(v kubever.Version) string {
	if v.HasPatch || v.Suffix != "" {
		return v.String()
	}
	return kubever.Release(v.Minor)
}

// storedAlike lists the resources outside the core group that both minors serve and write to etcd in one group and
// version, as RESOURCE.GROUP, sorted.
func storedAlike(legacy, modern kubever.Minor) []string {
	var names []string
	for _, r := range kubever.Resources() {
		inLegacy, ok := r.StoredAs(legacy)
		inModern, both := r.StoredAs(modern)
		if ok && both && inLegacy == inModern && inLegacy.Group != "" && r.Overridable() && !r.Pseudo() &&
			r.OnByDefault(legacy) && r.OnByDefault(modern) {
			names = append(names, schema.GroupResource{Group: inLegacy.Group, Resource: r.Name}.String())
		}
	}
	slices.Sort(names)
	return names
}
