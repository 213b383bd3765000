package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Standing is what a version of a kind is to servers of one minor.
type Standing struct {
	kubever.Lifecycle
	Known  bool // the tables know the kind; false for custom resources
	Served bool // by default, without --runtime-config
	There  bool // compiled in; alpha versions need --runtime-config
	Gone   bool // not there, or no longer served by default
	// what to write instead, the kind itself when it is there; zero when there is nothing
	Target schema.GroupVersionKind
	Reason string // why there is nothing
}

// StandingIn tells what a minor makes of a kind. The target is what negotiate answers of a plain server: the kind
// itself while the minor serves it by default, deprecated or not, otherwise the equivalent of which it serves most; and
// the kind itself where only --runtime-config turns any of them on.
func (c *Converter) StandingIn(gvk schema.GroupVersionKind, minor kubever.Minor) Standing {
	at := standingKey{gvk, minor}
	if known, ok := c.standings.Load(at); ok {
		return known.(Standing)
	}
	s := c.standingIn(gvk, minor)
	if s.Known { // of which there are as many as the tables have
		c.standings.Store(at, s)
	}
	return s
}

type standingKey struct {
	kind  schema.GroupVersionKind
	minor kubever.Minor
}

func (c *Converter) standingIn(gvk schema.GroupVersionKind, minor kubever.Minor) Standing {
	s := Standing{Lifecycle: kubever.LifecycleOf(gvk)}
	s.Known = len(s.Minors) > 0
	s.Served, s.There = s.DefaultOn.Has(minor), s.Minors.Has(minor)
	ended := s.Ended()
	s.Gone = !s.There || !s.Served && ended != 0 && ended <= minor
	if s.Served {
		s.Target = gvk
		return s
	}
	answer, err := serverOf(minor).Negotiate(gvk, c.Equivalents(gvk))
	if err == nil && answer.Verdict == negotiate.Convert {
		s.Target = answer.As
		return s
	}
	if s.There {
		s.Gone, s.Target = false, gvk
		return s
	}
	switch {
	case s.Began() > minor:
		s.Reason = "it comes with " + s.Began().String()
	case alone[gvk] != "":
		s.Reason = alone[gvk]
	case newAlone[gvk] != "":
		s.Reason = newAlone[gvk]
	case deadEnds[gvk] != "":
		s.Reason = deadEnds[gvk]
	case s.Known:
		s.Reason = "no version of it is served by default"
	default:
		s.Reason = "the tables do not know this kind; custom resources are up to their definitions"
	}
	return s
}

// serverOf is a plain server of a minor.
func serverOf(minor kubever.Minor) *negotiate.Server {
	if server, ok := servers.Load(minor); ok {
		return server.(*negotiate.Server)
	}
	server, _ := servers.LoadOrStore(minor, negotiate.FromFacts(minor))
	return server.(*negotiate.Server)
}

var servers sync.Map // kubever.Minor -> *negotiate.Server; facts, which do not change

// Misnamed says why no release of Kubernetes has a kind in one of Kubernetes' own groups: "" for kinds that some
// release has, and for custom resources.
func (c *Converter) Misnamed(gvk schema.GroupVersionKind) string {
	item := gvk
	item.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if gvk == item || item.Kind == "" {
		item = gvk
	}
	for _, kind := range []schema.GroupVersionKind{gvk, item} {
		if len(kubever.LifecycleOf(kind).Minors) > 0 || c.Knows(kind) || c.scheme.Recognizes(kind) {
			return ""
		}
	}
	if gvk.Group == "" && slices.Contains(notServed, gvk.Kind) {
		return ""
	}
	var kinds, versions, versionsOfKind []string
	for _, api := range kubever.AllAPIResources() {
		if api.Group != gvk.Group {
			continue
		}
		versions = append(versions, api.GroupVersion.String())
		if api.Kind == item.Kind {
			versionsOfKind = append(versionsOfKind, api.GroupVersion.String())
		}
		if api.Version == gvk.Version {
			kinds = append(kinds, api.Kind)
		}
	}
	switch {
	case len(versions) == 0:
		return "" // a custom resource
	case len(versionsOfKind) > 0:
		return fmt.Sprintf("no release has it in %s; it is in %s", gvk.GroupVersion(), listed(versionsOfKind))
	case len(kinds) == 0:
		return fmt.Sprintf("no release has %s; there are %s", gvk.GroupVersion(), listed(versions))
	}
	if near, ok := spelling.Nearest(item.Kind, kinds); ok {
		return fmt.Sprintf("no release has the kind in %s; did you mean %s?", gvk.GroupVersion(), near)
	}
	return fmt.Sprintf("no release has the kind in %s", gvk.GroupVersion())
}

// MisnamedVersion says why no release of Kubernetes has a version of one of its own groups; "" otherwise.
func (c *Converter) MisnamedVersion(gv schema.GroupVersion) string {
	var versions []string
	for _, api := range kubever.AllAPIResources() {
		switch {
		case api.GroupVersion == gv:
			return ""
		case api.Group == gv.Group:
			versions = append(versions, api.GroupVersion.String())
		}
	}
	for from := range c.edges {
		if from.GroupVersion() == gv {
			return ""
		}
	}
	if len(versions) == 0 {
		return "no conversion to it is known"
	}
	return "no release has it; there are " + listed(versions)
}

// listed prints versions, each once.
func listed(versions []string) string {
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), ", ")
}

// notServed are kinds of files that name the core group and are no objects: kubeconfigs, lists, policies of schedulers,
// and the encryption of stores by the name that apiserver pkg/apis/apiserver/v1/register.go@0.36.3 keeps for it.
var notServed = []string{"Config", "EncryptionConfig", "List", "Policy"}

// Replacement is what to write instead of a kind that a minor deprecates or no longer has: the first of Equivalents
// that the minor serves by default and does not deprecate; false when there is none.
func (c *Converter) Replacement(gvk schema.GroupVersionKind, minor kubever.Minor) (schema.GroupVersionKind, bool) {
	at := standingKey{gvk, minor}
	if known, ok := c.replacements.Load(at); ok {
		kind := known.(schema.GroupVersionKind)
		return kind, !kind.Empty()
	}
	found := c.replacement(gvk, minor)
	if len(kubever.LifecycleOf(gvk).Minors) > 0 {
		c.replacements.Store(at, found)
	}
	return found, !found.Empty()
}

func (c *Converter) replacement(gvk schema.GroupVersionKind, minor kubever.Minor) schema.GroupVersionKind {
	for _, equivalent := range c.Equivalents(gvk) {
		life := kubever.LifecycleOf(equivalent)
		if life.DefaultOn.Has(minor) && (life.Deprecated == 0 || life.Deprecated > minor) {
			return equivalent
		}
	}
	return schema.GroupVersionKind{}
}

// LossesIn names the fields of an object that a minor does not know in this version: its server silently drops them.
// What servers fill in themselves, status and managedFields, is left out.
func (c *Converter) LossesIn(object *unstructured.Unstructured, minor kubever.Minor) []Loss {
	return c.Read(object, minor).Losses()
}

// AsRead is what a server of a minor reads of an object: without the fields that it does not know. It is the object
// itself when there are none, or when nothing is known of its kind.
func (c *Converter) AsRead(object *unstructured.Unstructured, minor kubever.Minor) *unstructured.Unstructured {
	return c.Read(object, minor).AsRead()
}

// Reading is an object as a server of a minor reads it: AsRead and LossesIn in one.
type Reading struct {
	converter *Converter
	object    *unstructured.Unstructured
	minor     kubever.Minor
	known     *shape // of the kind, nil when the minor does not have it
	unknown   []difference
	lacking   []difference

	misdescribed bool
	null         bool
}

// Read looks for what a minor does not know of an object, which may not be changed while the Reading is used.
func (c *Converter) Read(object *unstructured.Unstructured, minor kubever.Minor) Reading {
	known := c.shapeIn(object.GroupVersionKind(), minor)
	return c.read(object, minor, known, known)
}

// read looks at what the shape doubtful has of the shape known: at all of it, or at what is in doubt.
func (c *Converter) read(object *unstructured.Unstructured, minor kubever.Minor, known, doubtful *shape) Reading {
	r := Reading{converter: c, object: object, minor: minor, known: known}
	if known != nil {
		var i inspection
		i.inspect(object.Object, nil, doubtful)
		r.unknown, r.lacking, r.misdescribed, r.null = i.unknown, i.lacking, i.misdescribed, i.null
	}
	return r
}

// AsRead is as Converter.AsRead.
func (r Reading) AsRead() *unstructured.Unstructured {
	if len(r.unknown) == 0 {
		return r.object
	}
	read := r.object.DeepCopy()
	remove(read.Object, r.unknown)
	return read
}

// Losses is as Converter.LossesIn.
func (r Reading) Losses() []Loss {
	if r.known == nil {
		return nil
	}
	object, minor, gvk := r.object, r.minor, r.object.GroupVersionKind()
	var losses []Loss
	for _, d := range r.unknown {
		if d.at[0] == "status" || len(d.at) > 1 && d.at[0] == "metadata" && d.at[1] == "managedFields" ||
			d.value == nil {
			continue
		}
		losses = append(losses, Loss{Path: d.at.String(), Value: d.value,
			Meaning: ofTemplates(gvk, d, r.converter.unknownIn(gvk, d, minor), minor)})
	}
	if namespaced, known := kubever.Namespaced(gvk); known && !namespaced && object.GetNamespace() != "" {
		losses = append(losses, Loss{Path: "metadata.namespace", Value: object.GetNamespace(),
			Meaning: "servers drop it: objects of this kind are in no namespace"})
	}
	if gvk == kind("discovery.k8s.io", "v1", "EndpointSlice") {
		losses = append(losses, topologies(object.Object)...)
	}
	if gvk == kind("", "v1", "Endpoints") && kubever.Behaves(kubever.BehaviourEndpointsPortlessDropped, minor) {
		losses = append(losses, portless(object.Object, minor)...)
	}
	slices.SortFunc(losses, func(a, b Loss) int { return cmp.Compare(a.Path, b.Path) })
	return losses
}

// CameLater reports whether a field of a kind, by its path as errors print it, is one that a minor does not know and a
// later one does: its server cannot refuse anything of it.
func (c *Converter) CameLater(gvk schema.GroupVersionKind, printed string, minor kubever.Minor) bool {
	at := parsePath(printed)
	known := c.shapeIn(gvk, minor)
	return known != nil && len(at) > 0 && !known.has(at) && c.knownSince(gvk, at, minor) != 0
}

// parsePath reads the path of a field as Kubernetes' errors print it: a.b[0].c[key].
func parsePath(printed string) path {
	var at path
	for part := range strings.SplitSeq(strings.ReplaceAll(printed, "[", "."), ".") {
		inner, index := strings.CutSuffix(part, "]")
		if number, err := strconv.Atoi(inner); index && err == nil {
			at = append(at, number)
		} else if inner != "" {
			at = append(at, inner)
		}
	}
	return at
}

// RefusedValue is a value of a field that a minor does not accept yet, or a field that it forbids.
type RefusedValue struct {
	Path, Value string
	Since       kubever.Minor // 0 for never
	Gate        string        // the feature gate that forbids the field; "" for a value
}

// RefusedValues names the values that a minor does not accept though it has their fields; its server refuses the
// object.
func (c *Converter) RefusedValues(object *unstructured.Unstructured, minor kubever.Minor) []RefusedValue {
	r := refusing{minor: minor}
	r.walk(object.Object, c.shapeIn(object.GroupVersionKind(), minor))
	if text, ok := object.GetAnnotations()[metricsAnnotation]; ok && object.GetKind() == "HorizontalPodAutoscaler" &&
		!tooMany(text) {
		var metrics []map[string]any
		if json.Unmarshal([]byte(text), &metrics) == nil {
			r.at = trailOf(path{"metadata", "annotations", metricsAnnotation})
			for _, metric := range metrics {
				r.refuse(kubever.LateValues("autoscaling.v2beta1.MetricSpec", "type"), metric["type"])
			}
		}
	}
	slices.SortFunc(r.found, func(a, b RefusedValue) int { return cmp.Compare(a.Path, b.Path) })
	return r.found
}

// refusing walks an object for what a minor refuses.
type refusing struct {
	minor kubever.Minor
	at    trail
	found []RefusedValue
}

func (r *refusing) walk(value any, s *shape) {
	if s == nil || s.either || !s.judged {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			r.at = append(r.at, trailPart{name, -1})
			if refused, ok := s.refused[name]; ok {
				r.field(refused, inner)
			}
			r.walk(inner, s.at(name))
			r.at = r.at[:len(r.at)-1]
		}
	case []any:
		for i, inner := range value {
			r.at = append(r.at, trailPart{"", i})
			r.walk(inner, s.ofElements())
			r.at = r.at[:len(r.at)-1]
		}
	}
}

// field looks at a field, its elements and its names.
func (r *refusing) field(refused refusals, value any) {
	if refused.gate != "" {
		r.found = append(r.found, RefusedValue{Path: r.at.path().String(), Gate: refused.gate})
	}
	if refused.late == nil {
		return
	}
	r.refuse(refused.late, value)
	inside := func(part trailPart, value any) {
		r.at = append(r.at, part)
		r.refuse(refused.late, value)
		r.at = r.at[:len(r.at)-1]
	}
	switch value := value.(type) {
	case []any:
		for i, element := range value {
			inside(trailPart{"", i}, element)
		}
	case map[string]any:
		for name := range value {
			inside(trailPart{name, -1}, name)
		}
	}
}

func (r *refusing) refuse(late map[string]kubever.Ranges, value any) {
	text, _ := value.(string)
	if minors, ok := late[text]; ok && !minors.Has(r.minor) {
		refused := RefusedValue{Path: r.at.path().String(), Value: text}
		if len(minors) > 0 && minors[0].From > r.minor {
			refused.Since = minors[0].From
		}
		r.found = append(r.found, refused)
	}
}

func isDefinition(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
}

func portless(endpoints map[string]any, minor kubever.Minor) []Loss {
	var losses []Loss
	subsets := elements(endpoints, "subsets")
	for i, subset := range subsets {
		if ports, _ := subset["ports"].([]any); len(ports) == 0 {
			losses = append(losses, Loss{Path: fmt.Sprintf("subsets[%d]", i), Value: subset,
				Meaning: minor.String() + " drops subsets without ports"})
		}
	}
	if len(losses) > 0 && len(losses) == len(subsets) {
		return []Loss{{Path: "subsets", Value: endpoints["subsets"], Meaning: losses[0].Meaning}}
	}
	return losses
}

// topologies are what servers drop of new slices of v1, which has the field for those that were written before
// (pkg/registry/discovery/endpointslice/strategy.go dropTopologyOnV1).
func topologies(slice map[string]any) []Loss {
	var losses []Loss
	for i, endpoint := range elements(slice, "endpoints") {
		if value, ok := endpoint["deprecatedTopology"]; ok {
			losses = append(losses, Loss{Path: fmt.Sprintf("endpoints[%d].deprecatedTopology", i), Value: value,
				Meaning: "servers drop it of objects that are created as v1"})
		}
	}
	return losses
}

// unknownIn says since or until when a field is known that a minor does not know: in this version of the kind, or in
// another one, for a version may end before the field comes.
func (c *Converter) unknownIn(gvk schema.GroupVersionKind, d difference, minor kubever.Minor) string {
	if d.why != "" {
		return d.why
	}
	name, _ := d.at[len(d.at)-1].(string)
	if name == "namespace" && d.in.typeName == "v1.TypedLocalObjectReference" {
		return minor.String() +
			" does not know the field, and takes the reference for one to the object's own namespace"
	}
	if gate, off := kubever.DisabledField(d.in.typeName, name, minor); off &&
		kubever.FieldType(d.in.typeName, name, minor) != "" {
		return offByDefault(minor, gate.Name)
	}
	own := strings.TrimSuffix(kubever.TypeName(gvk), gvk.Kind)
	rest, ofVersion := strings.CutPrefix(d.in.typeName, own)
	for _, kind := range append([]schema.GroupVersionKind{gvk}, c.Equivalents(gvk)...) {
		typeName, in := d.in.typeName, ""
		if kind != gvk {
			if !ofVersion {
				break
			}
			typeName = strings.TrimSuffix(kubever.TypeName(kind), kind.Kind) + rest
			in = " in " + kind.GroupVersion().String()
		}
		minors := kubever.Field(typeName, name)
		switch {
		case len(minors) == 0:
		case minors[len(minors)-1].To < minor:
			return fmt.Sprintf("%s does not know the field%s, which ended with %s", minor, in, minors[len(minors)-1].To)
		default:
			return fmt.Sprintf("%s does not know the field, %s does%s", minor, minors[len(minors)-1].From, in)
		}
	}
	for _, kind := range append([]schema.GroupVersionKind{gvk}, c.Equivalents(gvk)...) { // by another name of its type
		if since := c.knownSince(kind, d.at, minor); since != 0 && kind == gvk {
			return fmt.Sprintf("%s does not know the field, %s does", minor, since)
		} else if since != 0 {
			return fmt.Sprintf("%s does not know the field, %s does in %s", minor, since, kind.GroupVersion())
		}
	}
	return "no version knows the field"
}

// knownSince is the first minor after one whose API description of a kind has the path, 0 when none has: the type that
// a field is in may have got another name since.
func (c *Converter) knownSince(gvk schema.GroupVersionKind, at path, minor kubever.Minor) kubever.Minor {
	for later := minor + 1; later <= kubever.Newest; later++ {
		if known := c.shapeIn(gvk, later); known != nil && known.has(at) {
			return later
		}
	}
	return 0
}

// doubtful is shapeIn for objects of which Kubernetes' type has every field: what the minor knows all of is a value in
// it, which is not looked into.
func (c *Converter) doubtful(gvk schema.GroupVersionKind, minor kubever.Minor) *shape {
	at := standingKey{gvk, minor}
	if doubtful, ok := c.doubts.Load(at); ok {
		return doubtful.(*shape)
	}
	doubtful := c.shapeIn(gvk, minor).besides(c.shapes.of(gvk), map[*shape]bool{})
	c.doubts.Store(at, doubtful)
	return doubtful
}

// shapeIn is the shape that a minor's API description gives a kind, nil when it has none.
func (c *Converter) shapeIn(gvk schema.GroupVersionKind, minor kubever.Minor) *shape {
	c.minorsMu.Lock()
	defer c.minorsMu.Unlock()
	if c.minors[minor] == nil {
		c.minors[minor] = newShapes(c.scheme)
		c.minors[minor].ofMinor = true
	}
	return c.minors[minor].tabled(gvk, minor)
}
