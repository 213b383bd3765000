package restart_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

func ExampleHash() {
	container := &v1.Container{
		Name:                     "app",
		Image:                    "registry.example/app:1.0",
		TerminationMessagePath:   "/dev/termination-log",
		TerminationMessagePolicy: v1.TerminationMessageReadFile,
		ImagePullPolicy:          v1.PullIfNotPresent,
	}
	for _, minor := range []kubever.Minor{8, 9, 15, 16, 30, 31} {
		sum, err := restart.Hash(container, minor, restart.API)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(minor, sum)
	}
	// Output:
	// 1.8 68cbd736
	// 1.9 48c72f38
	// 1.15 48c72f38
	// 1.16 8e92c487
	// 1.30 8e92c487
	// 1.31 89e10412
}

// A kubelet of 1.17 that keeps what kubelets of 1.12 started.
func ExampleMatches() {
	container := &v1.Container{
		Name:                     "app",
		Image:                    "registry.example/app:1.0",
		TerminationMessagePath:   "/dev/termination-log",
		TerminationMessagePolicy: v1.TerminationMessageReadFile,
		ImagePullPolicy:          v1.PullIfNotPresent,
	}
	recorded := "48c72f38" // the annotation io.kubernetes.container.hash

	fmt.Println(restart.Matches(recorded, container, 17))
	fmt.Println(restart.Matches(recorded, container, 17, 12))
	// Output:
	// false
	// true
}
