// Package admission mutates pods in admission of the modern API server: they are connected to that server, get a token
// that the kubelets can mount and a label of their side, and the client gets warnings about fields that the legacy side
// drops.
//
// What is there is kept: a variable that a container sets, a label that an object has, a volume of the author's own. An
// object that needs nothing is not changed, and one that was changed needs nothing any more, so that asking twice is
// asking once.
package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// OptOut is an annotation of pods, templates and workloads, and a label of namespaces: with the value Off they are left
// as they are.
const (
	OptOut = "kubefusion.dev/admission"
	Off    = "off"
)

// SystemNamespace is where the control plane runs, the kit's own components too: nothing in it is touched, so that
// nothing there waits for an answer of its own.
const SystemNamespace = metav1.NamespaceSystem

// Change is what pods and templates are given. It is made by For and not changed.
type Change struct {
	host, port    string // of the service
	label, side   string
	secretTokens  bool
	unknownFields spec.UnknownFields
	templates     []template
	placesDaemons bool // binds pods of DaemonSets
}

// For is the change of a plan that has Pods.
func For(p *plan.Runtime) *Change {
	return &Change{
		host: p.Pods.Service.ClusterIP, port: strconv.Itoa(p.Pods.Service.Port), label: p.Pods.SideLabel,
		side:         spec.SideLabelModern,
		secretTokens: p.Pods.Tokens == plan.TokensSecret, unknownFields: p.Pods.UnknownFields,
		templates: templatesOf(p), placesDaemons: p.Pods.PlacesDaemonPods,
	}
}

// template is a kind of object from whose template pods are made, on the modern side alone.
type template struct {
	groups         []string // under which the modern API server serves it, by name
	resource, kind string
	path           []string // to the template
}

// templates are the kinds that make pods, by the key of their row in a plan.
var templates = []struct {
	key, kind string
	path      []string
}{
	{"controllers", "ReplicationController", []string{"spec", "template"}},
	{"cronjobs", "CronJob", []string{"spec", "jobTemplate", "spec", "template"}},
	{"daemonsets", "DaemonSet", []string{"spec", "template"}},
	{"deployments", "Deployment", []string{"spec", "template"}},
	{"jobs", "Job", []string{"spec", "template"}},
	{"podtemplates", "PodTemplate", []string{"template"}},
	{"replicasets", "ReplicaSet", []string{"spec", "template"}},
	{"statefulsets", "StatefulSet", []string{"spec", "template"}},
}

// templatesOf are the kinds whose objects the legacy side does not see: from what both see, the legacy side's
// controllers may make pods, through its own server, and a label would say otherwise.
func templatesOf(p *plan.Runtime) []template {
	var found []template
	for _, t := range templates {
		row := p.Resource(t.key)
		if row == nil || len(row.Modern.Serves) == 0 || row.VisibleToBoth() {
			continue
		}
		made := template{resource: row.Name, kind: t.kind, path: t.path}
		for _, served := range row.Modern.Serves {
			if gv, err := schema.ParseGroupVersion(served); err == nil && !slices.Contains(made.groups, gv.Group) {
				made.groups = append(made.groups, gv.Group)
			}
		}
		slices.Sort(made.groups)
		found = append(found, made)
	}
	return found
}

// Operations of a request.
const (
	Create = "CREATE"
	Update = "UPDATE"
)

// Request is what the API server asks about.
type Request struct {
	Operation   string // Create, Update; others change nothing
	Kind        schema.GroupVersionKind
	Subresource string // "" or ephemeralcontainers; others change nothing
	Namespace   string
	Object, Old json.RawMessage // JSON; Old is that of an update
	DryRun      bool
}

// Tokens finds the Secret that holds the token of a service account.
type Tokens interface {
	// Secret names it. There may be none yet: a kubelet waits for it and for the keys that a volume names. warning,
	// where it is not "", is returned to the client that creates the pod. A dry run creates no Secret.
	Secret(ctx context.Context, namespace, serviceAccount string, dryRun bool) (name, warning string, err error)
}

// Losses names the fields of an object that the legacy side drops: rules.Older.Losses.
type Losses func(object map[string]any) ([]finding.Finding, error)

// Answer is what becomes of the object.
type Answer struct {
	Patch    []Operation // empty: it is not changed
	Warnings []string
	Refusal  string // why it is refused, "" when it is not
}

// Operation is one of JSON Patch, RFC 6902.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Review answers a request. The answer depends on the request, and on what Tokens and Losses say, alone; losses may be
// nil. Errors: an object that is not JSON of the kind it is said to be; what Tokens says. They are no verdict about the
// object. Safe for concurrent use.
func (c *Change) Review(ctx context.Context, r Request, tokens Tokens, losses Losses) (Answer, error) {
	if r.Namespace == SystemNamespace || r.Operation != Create && r.Operation != Update {
		return Answer{}, nil
	}
	object, err := decode(r.Object)
	if err != nil {
		return Answer{}, fmt.Errorf("reading the %s: %w", r.Kind.Kind, err)
	}
	if leftAlone(object) {
		return Answer{}, nil
	}
	var old map[string]any
	if r.Operation == Update && len(r.Old) > 0 {
		if old, err = decode(r.Old); err != nil {
			return Answer{}, fmt.Errorf("reading the old %s: %w", r.Kind.Kind, err)
		}
	}
	p := &patch{object: object}
	var answer Answer
	switch {
	case r.Subresource == ephemeralContainers:
		c.newEphemeralContainers(p, old)
		return Answer{Patch: p.operations}, nil
	case r.Subresource != "":
		return Answer{}, nil
	case r.Kind.Group == "" && r.Kind.Kind == "Pod" && r.Operation == Create:
		if answer.Warnings, err = c.pod(ctx, p, r, tokens); err != nil {
			return Answer{}, err
		}
	default:
		c.template(p, r, old)
	}
	answer.Patch = p.operations
	for _, o := range []map[string]any{object, old} {
		if o != nil && o["kind"] == nil { // servers before 1.12 leave out what an object is
			o["apiVersion"], o["kind"] = r.Kind.GroupVersion().String(), r.Kind.Kind
		}
	}
	return c.judge(answer, object, old, losses)
}

// leftAlone reports whether the object, or the template in it, says so, or is a mirror of what a kubelet runs by
// itself.
func leftAlone(object map[string]any) bool {
	annotations := inner(object, "metadata", "annotations")
	_, mirror := annotations["kubernetes.io/config.mirror"]
	if mirror || annotations[OptOut] == Off {
		return true
	}
	for _, t := range templates {
		if template := inner(object, t.path...); template != nil &&
			inner(template, "metadata", "annotations")[OptOut] == Off {
			return true
		}
	}
	return false
}

// template puts the label into a template that a user makes. A template in an object that a controller made is that
// controller's: it compares it with the template that it was made from, and would make another. An update keeps a label
// that it does not speak of, and adds none: a changed template is rolled out.
func (c *Change) template(p *patch, r Request, old map[string]any) {
	i := slices.IndexFunc(c.templates, func(t template) bool {
		return t.kind == r.Kind.Kind && slices.Contains(t.groups, r.Kind.Group)
	})
	if i < 0 || hasController(p.object) {
		return
	}
	path := c.templates[i].path
	if r.Operation == Update && inner(inner(old, path...), "metadata", "labels")[c.label] != c.side {
		return
	}
	if template := inner(p.object, path...); template != nil {
		c.labelled(p, template, path)
	}
}

func hasController(object map[string]any) bool {
	return slices.ContainsFunc(list(inner(object, "metadata"), "ownerReferences"), func(o map[string]any) bool {
		return o["controller"] == true
	})
}

// labelled adds the side label to what has none; at is the path to it.
func (c *Change) labelled(p *patch, object map[string]any, at []string) {
	metadata := inner(object, "metadata")
	if metadata == nil {
		p.set(object, append(slices.Clone(at), "metadata"), map[string]any{"labels": map[string]any{c.label: c.side}})
		return
	}
	labels := inner(metadata, "labels")
	if labels == nil {
		p.set(metadata, append(slices.Clone(at), "metadata", "labels"), map[string]any{c.label: c.side})
	} else if _, has := labels[c.label]; !has {
		p.set(labels, append(slices.Clone(at), "metadata", "labels", c.label), c.side)
	}
}

// The bounds of what is said: servers cut off what is longer.
const (
	limitWarnings     = 16
	limitWarningBytes = 256
)

// judge says which fields of the object, as it is after the change, the legacy side drops. Of an update that is refused
// only what it adds is held against it: what is there must remain deletable.
func (c *Change) judge(answer Answer, object, old map[string]any, losses Losses) (Answer, error) {
	if losses == nil || c.unknownFields == spec.UnknownFieldsIgnore ||
		inner(object, "metadata")["deletionTimestamp"] != nil {
		return answer, nil
	}
	lost, err := said(object, losses)
	if err != nil {
		return Answer{}, err
	}
	if c.unknownFields == spec.UnknownFieldsRefuse {
		if old != nil {
			before, err := said(old, losses)
			if err != nil {
				return Answer{}, err
			}
			was := map[string]bool{}
			for _, text := range before {
				was[text] = true
			}
			lost = slices.DeleteFunc(lost, func(text string) bool { return was[text] })
		}
		if len(lost) > 0 {
			return Answer{Warnings: answer.Warnings,
				Refusal: "the legacy side drops fields of it: " + strings.Join(bounded(lost), "; ")}, nil
		}
		return answer, nil
	}
	answer.Warnings = append(answer.Warnings, bounded(lost)...)
	return answer, nil
}

// said words the losses of an object.
func said(object map[string]any, losses Losses) ([]string, error) {
	found, err := losses(object)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, f := range found {
		if f.Severity >= finding.Warning {
			lost = append(lost, f.Subject+": "+f.Message)
		}
	}
	return lost, nil
}

func bounded(texts []string) []string {
	more := len(texts) - limitWarnings
	if more > 0 {
		texts = append(slices.Clone(texts[:limitWarnings]),
			fmt.Sprintf("and %d more; fusionctl check --objects lists all", more))
	}
	for i, text := range texts {
		if len(text) > limitWarningBytes {
			texts[i] = strings.ToValidUTF8(text[:limitWarningBytes-3], "") + "..."
		}
	}
	return texts
}

// Older is the version whose losses count: the older one of the legacy side's servers and its kubelets.
func Older(p *plan.Runtime) kubever.Minor { return min(p.Legacy.Version.Minor, p.Kubelet.Minor) }

// patch collects operations and does them, so that what follows sees the object as it will be.
type patch struct {
	object     map[string]any
	operations []Operation
}

// set adds or replaces the last field of the path in the mapping that holds it.
func (p *patch) set(in map[string]any, path []string, value any) {
	in[path[len(path)-1]] = value
	p.operations = append(p.operations, Operation{Op: "add", Path: pointer(path), Value: value})
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is the path as a JSON pointer, RFC 6901.
func pointer(path []string) string {
	var b strings.Builder
	for _, part := range path {
		b.WriteByte('/')
		escape.WriteString(&b, part)
	}
	return b.String()
}

func decode(data json.RawMessage) (map[string]any, error) {
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, fmt.Errorf("want an object")
	}
	return object, nil
}

// inner is the mapping at the path, nil where there is none.
func inner(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}

// list is the mappings of a list.
func list(object map[string]any, name string) []map[string]any {
	items, _ := object[name].([]any)
	var found []map[string]any
	for _, item := range items {
		m, _ := item.(map[string]any)
		found = append(found, m) // nil for what is none, so that the places stay right
	}
	return found
}
