package etcdsplit_test

import (
	"context"
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// The map of two stores: pods are in core for both sides, and the modern side has its own deployments.
func exampleMap() *etcdsplit.Map {
	in := func(store, version string) etcdsplit.View {
		return etcdsplit.View{Store: store, StoredAs: version, Decodes: []string{version}, Serves: []string{version}}
	}
	custom := etcdsplit.Resource{Key: "*", Owner: "split", Legacy: in("core", ""), Modern: in("modern", "")}
	pods := etcdsplit.Resource{Key: "pods", Kind: "Pod", Namespaced: true, Owner: "shared",
		Legacy: in("core", "v1"), Modern: in("core", "v1")}
	deployments := etcdsplit.Resource{Key: "deployments", Kind: "Deployment", Namespaced: true, Owner: "modern",
		Modern: in("modern", "apps/v1")}
	return &etcdsplit.Map{Prefix: "/registry", Stores: []string{"core", "modern"},
		Resources: []etcdsplit.Resource{pods, deployments}, CustomResources: custom}
}

func ExampleRowOf() {
	m := exampleMap()
	k := etcdsplit.NewClassifier(m).Classify("/registry/deployments/default/web")
	fmt.Println(k.Namespace, k.Name, etcdsplit.RowOf(m, k).Owner)
	// Output: default web modern
}

func ExampleScan() {
	file, err := snapshot.Open("../etcd/snapshot/testdata/split-1.10-1.36-core.db")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	report, err := etcdsplit.Scan(context.Background(), exampleMap(), []etcdsplit.Store{{Name: "core", Walker: file}},
		etcdsplit.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		if f.Rule == "FUS004" {
			fmt.Println(f.Severity, f.Subject, f.Related)
		}
	}
	// Output: error core:deployments [deployments/default/d-legacy]
}
