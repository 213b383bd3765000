package restart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func TestHashObjectNamesEveryContainer(t *testing.T) {
	const objects = `apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec:
  initContainers: [{name: prepare, image: busybox}]
  containers: [{name: web, image: nginx, terminationMessagePath: /dev/log, terminationMessagePolicy: File}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
---
name: bare
image: nginx
`
	version, err := kubever.Parse("1.15")
	if err != nil {
		t.Fatal(err)
	}
	var got [][]ContainerHash
	for object, err := range Objects(strings.NewReader(objects)) {
		if err != nil {
			t.Fatal(err)
		}
		hashes, err := HashObject(object, version, API)
		if err != nil {
			t.Fatal(err)
		}
		for i := range hashes {
			if hashes[i].Hash == 0 {
				t.Errorf("%s: container %s has no hash", object, hashes[i].Container)
			}
			hashes[i].Hash = 0 // of which hash_test.go says what they are
		}
		got = append(got, hashes)
	}
	want := [][]ContainerHash{{
		{Namespace: "shop", Object: "Pod/web-0", Container: "web", Defaulted: true},
		{Namespace: "shop", Object: "Pod/web-0", Container: "prepare", Kind: InitContainer},
	}, nil, {{Container: "bare"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
