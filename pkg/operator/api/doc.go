// Package api is FusedControlPlane as an object of a cluster: its definition, whose schema follows from the types of
// pkg/spec, its status, and the manifests that run the operator.
package api

import (
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// The names of the resource.
const (
	Group    = "kubefusion.dev"
	Version  = "v1alpha1"
	Plural   = "fusedcontrolplanes"
	Singular = "fusedcontrolplane"
	Short    = "fcp"
	Kind     = spec.Kind
)
