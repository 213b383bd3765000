package policy

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// The server decodes a line with the universal decoder of a scheme that knows three versions of one kind. What that
// decoder accepts (YAML, protobuf framing, any case of "kind", the last of two equal keys) is too odd to write again:
// these are the same types in the same kind of scheme, read by the same library.

const groupName = "abac.authorization.kubernetes.io"

// internalPolicy is the version that rules are converted to. It is registered, so a file may name it: apiVersion
// ".../__internal". Its fields have no JSON names of their own; that is how the server has it.
type internalPolicy struct {
	metav1.TypeMeta
	Spec internalSpec
}

type internalSpec struct {
	User            string
	Group           string
	Readonly        bool
	APIGroup        string
	Resource        string
	Namespace       string
	NonResourcePath string
}

type v1beta1Policy struct {
	metav1.TypeMeta `json:",inline"`
	Spec            v1beta1Spec `json:"spec"`
}

type v1beta1Spec struct {
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"`
	APIGroup        string `json:"apiGroup,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	NonResourcePath string `json:"nonResourcePath,omitempty"`
}

// v0Policy is the version of 2014, without a spec. A line without apiVersion is read as one.
type v0Policy struct {
	metav1.TypeMeta `json:",inline"`
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
}

func (p *internalPolicy) DeepCopyObject() runtime.Object { c := *p; return &c }
func (p *v1beta1Policy) DeepCopyObject() runtime.Object  { c := *p; return &c }
func (p *v0Policy) DeepCopyObject() runtime.Object       { c := *p; return &c }

func convertV1beta1(in *v1beta1Policy, out *internalPolicy) {
	out.Spec = internalSpec(in.Spec)
	if in.Spec.User == "*" || in.Spec.Group == "*" {
		out.Spec.Group = GroupAuthenticated
		out.Spec.User = ""
	}
}

func convertV0(in *v0Policy, out *internalPolicy) {
	out.Spec = internalSpec{
		User: in.User, Group: in.Group, Readonly: in.Readonly,
		APIGroup: "*", Resource: in.Resource, Namespace: in.Namespace,
	}
	if in.User == "" && in.Group == "" {
		out.Spec.Group = GroupAuthenticated
	}
	if in.User == "*" || in.Group == "*" {
		out.Spec.Group = GroupAuthenticated
		out.Spec.User = ""
	}
	if in.Namespace == "" {
		out.Spec.Namespace = "*"
	}
	if in.Resource == "" {
		out.Spec.Resource = "*"
	}
	if in.Namespace == "" && in.Resource == "" {
		out.Spec.NonResourcePath = "*"
	}
}

// decoder decodes single lines. It is safe for concurrent use.
type decoder struct {
	scheme    *runtime.Scheme
	universal runtime.Decoder
}

func newDecoder() *decoder {
	scheme := runtime.NewScheme()
	add := func(version string, object runtime.Object) {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: groupName, Version: version, Kind: Kind}, object)
	}
	add(runtime.APIVersionInternal, &internalPolicy{})
	add("v1beta1", &v1beta1Policy{})
	add("v0", &v0Policy{})
	for _, err := range []error{
		scheme.AddConversionFunc((*v1beta1Policy)(nil), (*internalPolicy)(nil),
			func(in, out any, _ conversion.Scope) error {
				convertV1beta1(in.(*v1beta1Policy), out.(*internalPolicy))
				return nil
			}),
		scheme.AddConversionFunc((*v0Policy)(nil), (*internalPolicy)(nil), func(in, out any, _ conversion.Scope) error {
			convertV0(in.(*v0Policy), out.(*internalPolicy))
			return nil
		}),
	} {
		if err != nil {
			panic("policy: internal error: " + err.Error())
		}
	}
	return &decoder{scheme: scheme, universal: serializer.NewCodecFactory(scheme).UniversalDecoder()}
}

// decode reads one line that is neither blank nor a comment. Unversioned tells that the server took it for a v0 line,
// because it names no version or no kind.
func (d *decoder) decode(data []byte) (rule Rule, unversioned bool, err error) {
	object, _, err := d.universal.Decode(data, nil, nil)
	if err != nil {
		if !runtime.IsMissingVersion(err) && !runtime.IsMissingKind(err) && !runtime.IsNotRegisteredError(err) {
			return Rule{}, false, err
		}
		old := &v0Policy{}
		if err := runtime.DecodeInto(d.universal, data, old); err != nil {
			return Rule{}, true, err
		}
		converted := &internalPolicy{}
		convertV0(old, converted)
		return ruleOf(converted.Spec), true, nil
	}
	policy, ok := object.(*internalPolicy)
	if !ok {
		return Rule{}, false, fmt.Errorf("unrecognized object %T", object)
	}
	return ruleOf(policy.Spec), false, nil
}

func ruleOf(spec internalSpec) Rule {
	return Rule{
		User: spec.User, Group: spec.Group, Readonly: spec.Readonly,
		APIGroup: spec.APIGroup, Resource: spec.Resource, Namespace: spec.Namespace,
		NonResourcePath: spec.NonResourcePath,
	}
}
