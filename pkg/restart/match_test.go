package restart

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func TestMatchesAcceptsWhatOlderKubeletsRecorded(t *testing.T) {
	web, _ := readVectors(t, "testdata/02-web.txtar")
	huge, _ := readVectors(t, "testdata/06-huge-quantity.txtar")
	for _, c := range []struct {
		name      string
		recorded  string
		container *v1.Container
		accept    []kubever.Minor
		want      bool
	}{
		{"of the accepted minor", "2a4a9888", web, []kubever.Minor{12}, true},
		{"of one of the accepted minors", "2a4a9888", web, []kubever.Minor{17, 12}, true},
		{"of a minor that is not accepted", "2a4a9888", web, []kubever.Minor{11, 14, 17, 36}, false},
		{"no minor accepted", "2a4a9888", web, nil, false},
		{"in capitals and padded, which the kubelet compares as a number", "002A4A9888", web, []kubever.Minor{12},
			true},
		{"as held by the kubelet of a static pod", "b17ffb25", huge, []kubever.Minor{6}, true},
		{"as it comes from the API server", "63216318", huge, []kubever.Minor{6}, true},
		{"missing", "", web, []kubever.Minor{12}, false},
		{"not a number", "0x2a4a9888", web, []kubever.Minor{12}, false},
		{"a minor without facts", "2a4a9888", web, []kubever.Minor{5, 38, -1}, false},
		{"no container", "2a4a9888", nil, []kubever.Minor{12}, false},
	} {
		if got := Matches(c.recorded, c.container, c.accept...); got != c.want {
			t.Errorf("%s: Matches(%q, %v) = %t, want %t", c.name, c.recorded, c.accept, got, c.want)
		}
	}
}

func TestMatchesLeavesTheContainerAlone(t *testing.T) {
	container := &v1.Container{
		Name: "app",
		Env: []v1.EnvVar{{Name: "MEM", ValueFrom: &v1.EnvVarSource{
			ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("8Mi")},
		}}},
	}
	before := spewConfig.Sprintf("%#v", *container)
	Matches("1", container, kubever.Minors()...)
	if after := spewConfig.Sprintf("%#v", *container); after != before {
		t.Errorf("Matches changed the container from\n%s\nto\n%s", before, after)
	}
}
