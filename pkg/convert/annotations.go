package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Spell writes what an object says in the way that a minor heeds: annotations that became fields as fields, fields that
// the minor does not have yet as the annotations that came before them, labels of nodes by the names that nodes have
// there, and what an autoscaler scales in a group that has it there. It changes the object, and reports whether it did.
// An annotation that neither the minor heeds nor a field of it can say is a Loss.
func (c *Converter) Spell(in *unstructured.Unstructured, minor kubever.Minor) (changed bool, losses []Loss) {
	return c.spell(in, speller{minor: minor})
}

func (c *Converter) spell(in *unstructured.Unstructured, s speller) (changed bool, losses []Loss) {
	gvk := in.GroupVersionKind()
	if len(kubever.LifecycleOf(gvk).Minors) == 0 {
		return false, nil // a custom resource
	}
	s.namespace = in.GetNamespace()
	for _, pod := range podsIn(in.Object, gvk.Kind) {
		s.carrier("pod", pod)
		spec := object(pod.body, "spec")
		s.nodeLabels(spec)
		for _, volume := range elements(spec, "volumes") {
			s.dataSource(object(object(object(volume, "ephemeral"), "volumeClaimTemplate"), "spec"))
		}
	}
	s.carrier(gvk.Kind, carrier{body: in.Object})
	switch gvk.Kind {
	case "PersistentVolume":
		s.nodeLabels(object(in.Object, "spec"))
	case "PersistentVolumeClaim":
		s.dataSource(object(in.Object, "spec"))
	case "StatefulSet":
		for _, claim := range elements(object(in.Object, "spec"), "volumeClaimTemplates") {
			s.dataSource(object(claim, "spec"))
		}
	case "StorageClass":
		s.nodeLabels(in.Object)
	case "HorizontalPodAutoscaler":
		s.metrics(object(in.Object, "metadata"))
		s.scaleTarget(c, object(object(in.Object, "spec"), "scaleTargetRef"))
	case "CustomResourceDefinition":
		s.onlyVersion(gvk, object(in.Object, "spec"))
	case "Service":
		s.publicIPs(object(in.Object, "spec"))
	case "PodSecurityPolicy":
		s.profiles(object(object(in.Object, "metadata"), "annotations"))
	}
	return s.changed, s.losses
}

// carrier is what has metadata with annotations and, beside it, the fields.
type carrier struct {
	body map[string]any
	at   path
}

// podsIn finds the pod, or the templates of pods, in an object of a native kind.
func podsIn(in map[string]any, kind string) []carrier {
	if kind == "Pod" {
		return []carrier{{body: in}}
	}
	var found []carrier
	for _, at := range []path{{"template"}, {"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		part := in
		for _, name := range at {
			part, _ = part[name.(string)].(map[string]any)
		}
		if _, ok := part["spec"].(map[string]any); ok {
			found = append(found, carrier{part, at})
		}
	}
	return found
}

type speller struct {
	minor     kubever.Minor
	namespace string // of the object
	dry       bool   // nothing is changed: changed says whether anything would be
	changed   bool
	losses    []Loss
}

// carrier goes through the annotations that such a kind may have. Of two for one field the later one by name counts:
// beta before alpha.
func (s *speller) carrier(kind string, on carrier) {
	var gone []func()
	written := map[string]bool{}
	annotated := len(object(object(on.body, "metadata"), "annotations")) > 0
	for _, row := range slices.Backward(kubever.AnnotationsOf(kind)) {
		if !annotated && (row.Fields.Has(s.minor) || !row.Heeded.Has(s.minor)) {
			continue // the field, if it is set, stays
		}
		for _, place := range placesOf(row, on.body) {
			if del := s.place(row, on, place, written); del != nil {
				gone = append(gone, del)
			}
		}
	}
	for _, del := range gone {
		del()
	}
}

// spot is an annotation by its full name, and the object that has the field.
type spot struct {
	annotation string
	owner      map[string]any
}

func placesOf(row kubever.Annotation, body map[string]any) []spot {
	prefix, ofContainers := strings.CutSuffix(row.Name, "*")
	if !ofContainers {
		return []spot{{row.Name, body}}
	}
	var spots []spot
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range elements(object(body, "spec"), list) {
			if name, ok := container["name"].(string); ok {
				spots = append(spots, spot{prefix + name, container})
			}
		}
	}
	return spots
}

// place decides about one annotation and its field. A field that is spelled as an annotation is deleted by what is
// returned, when all rows have seen it.
func (s *speller) place(row kubever.Annotation, on carrier, at spot, written map[string]bool) func() {
	annotations := object(object(on.body, "metadata"), "annotations")
	text, annotated := annotations[at.annotation].(string)
	heeded, has := row.Heeded.Has(s.minor), row.Fields.Has(s.minor)
	value, set := fieldAt(at.owner, row.Field)
	inert := row.Form == "critical" && s.namespace != "kube-system" // the one namespace in which servers heed it
	// Of an object without a namespace, as helm template writes them, no one knows yet. A class that it says counts in
	// all of them.
	class, _ := value.(string)
	unplaced := inert && s.namespace == ""
	switch {
	case annotated && !heeded && unplaced && text == "" && class == "":
		s.lose(on, at.annotation, text, fmt.Sprintf("%s does not heed the annotation; the object names no "+
			"namespace, and in kube-system it was heeded: write %s: system-cluster-critical there", s.minor,
			append(on.at.clone(), "spec", "priorityClassName")))
	case annotated && !heeded && inert && !unplaced:
		s.lose(on, at.annotation, text, fmt.Sprintf("%s does not heed the annotation, and releases before do in the "+
			"namespace kube-system alone: here it was without effect", s.minor))
	case annotated && !heeded && has:
		said, err := decodeForm(row.Form, text, value)
		if err == nil && set && !reflect.DeepEqual(said, value) && !sameJSONValue(said, value) &&
			row.Form != "sysctls" && row.Form != "unsafe-sysctls" {
			err = fmt.Errorf("the field %s says something else", row.Field)
		}
		if err != nil {
			s.lose(on, at.annotation, text, fmt.Sprintf("%s does not heed the annotation: %v", s.minor, err))
			return nil
		}
		if s.changed = true; s.dry {
			return nil
		}
		putFieldAt(at.owner, row.Field, said)
		delete(annotations, at.annotation)
		if len(annotations) == 0 {
			delete(object(on.body, "metadata"), "annotations")
		}
	case annotated && heeded && row.Form == "seccomp" && text == "runtime/default" &&
		!kubever.Behaves(kubever.BehaviourSeccompRuntimeDefault, s.minor):
		if s.changed = true; !s.dry {
			annotations[at.annotation] = "docker/default" // the same, by the name that the release accepts
		}
	case annotated && !heeded:
		s.lose(on, at.annotation, text, s.minor.String()+
			" does not heed the annotation, and no field of it says the same")
	case !annotated && set && !has && heeded && !inert:
		text, ok := encodeForm(row.Form, value, s.minor)
		key := row.Of + " " + row.Field + " " + row.Form + " " + at.annotation[strings.LastIndex(at.annotation, "/")+1:]
		if !ok || written[key] {
			return nil
		}
		written[key] = true
		if s.changed = true; s.dry {
			return nil
		}
		if text != "" || row.Form == "critical" {
			putFieldAt(on.body, "metadata.annotations", withAnnotation(on.body, at.annotation, text))
		}
		return func() { removeFieldAt(at.owner, row.Field) }
	}
	return nil
}

// profiles names what policies say of seccomp as the minor calls it.
func (s *speller) profiles(annotations map[string]any) {
	if kubever.Behaves(kubever.BehaviourSeccompRuntimeDefault, s.minor) {
		return
	}
	for _, of := range []string{"defaultProfileName", "allowedProfileNames"} {
		name := "seccomp.security.alpha.kubernetes.io/" + of
		text, _ := annotations[name].(string)
		profiles := strings.Split(text, ",")
		for i, profile := range profiles {
			if profile == "runtime/default" {
				profiles[i] = "docker/default" // the same
			}
		}
		if changed := strings.Join(profiles, ","); changed != text {
			if s.changed = true; !s.dry {
				annotations[name] = changed
			}
		}
	}
}

// withAnnotation is the annotations of an object with one more.
func withAnnotation(body map[string]any, name, value string) map[string]any {
	annotations := object(object(body, "metadata"), "annotations")
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[name] = value
	return annotations
}

func (s *speller) lose(on carrier, annotation, value, meaning string) {
	at := append(on.at.clone(), "metadata", "annotations", annotation)
	s.losses = append(s.losses, Loss{Path: at.String(), Value: value, Meaning: meaning})
}

// fieldAt returns the value at spec.securityContext.seccompProfile.
func fieldAt(of map[string]any, at string) (any, bool) {
	if at == "" {
		return nil, false
	}
	names := strings.Split(at, ".")
	for _, name := range names[:len(names)-1] {
		of = object(of, name)
	}
	value, ok := of[names[len(names)-1]]
	return value, ok && value != nil
}

func putFieldAt(of map[string]any, at string, value any) {
	names := strings.Split(at, ".")
	for _, name := range names[:len(names)-1] {
		inner := object(of, name)
		if inner == nil {
			inner = map[string]any{}
			of[name] = inner
		}
		of = inner
	}
	of[names[len(names)-1]] = value
}

// removeFieldAt takes a field away, and a security context that is empty without it.
func removeFieldAt(of map[string]any, at string) {
	name, rest, deeper := strings.Cut(at, ".")
	if !deeper {
		delete(of, name)
		return
	}
	inner := object(of, name)
	if inner == nil {
		return
	}
	if removeFieldAt(inner, rest); len(inner) == 0 && name == "securityContext" {
		delete(of, name)
	}
}

// sameJSONValue compares values whose numbers may be of either type.
func sameJSONValue(a, b any) bool {
	return sameObject(map[string]any{"v": a}, map[string]any{"v": b}, nil)
}

// safeSysctls are those that kubelets of 1.6 to 1.10 let every pod set.
var safeSysctls = []string{"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"}

// limitAnnotated is how many objects an annotation may have in it: API servers store no more than 256 KiB of all
// annotations of an object.
const limitAnnotated = 10_000

// tooMany reports whether JSON in a string has more objects than the 256 KiB of annotations that servers store can
// have.
func tooMany(text string) bool { return strings.Count(text, "{") > 100_000 }

var errManyAnnotated = fmt.Errorf("it has more than %d objects in it", limitAnnotated)

// decodeForm reads the value of a field from an annotation; was is what the field says already.
func decodeForm(form, text string, was any) (any, error) {
	switch form {
	case "text":
		return text, nil
	case "json", "volume-affinity":
		if strings.Count(text, "{") > limitAnnotated {
			return nil, errManyAnnotated
		}
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return nil, err
		}
		value = wholeNumbers(value)
		if form == "json" {
			return value, nil
		}
		affinity, _ := value.(map[string]any)
		required, ok := affinity["requiredDuringSchedulingIgnoredDuringExecution"]
		if !ok || len(affinity) != 1 {
			return nil, fmt.Errorf("only what is required can be said by a field")
		}
		return map[string]any{"required": required}, nil
	case "seccomp", "apparmor":
		return decodeProfile(text)
	case "critical":
		if text != "" {
			return nil, fmt.Errorf("its value is not empty, and no release heeds it")
		}
		if name, ok := was.(string); ok && name != "" {
			return name, nil // a class of its own counts
		}
		return "system-cluster-critical", nil
	case "traffic":
		if value, ok := map[string]string{"OnlyLocal": "Local", "Global": "Cluster"}[text]; ok {
			return value, nil
		}
		return nil, fmt.Errorf("want OnlyLocal or Global")
	case "number":
		return strconv.ParseInt(text, 10, 32)
	case "flag":
		return strconv.ParseBool(text)
	case "commas":
		var list []any
		for word := range strings.SplitSeq(text, ",") {
			list = append(list, word)
		}
		return list, nil
	case "sysctls", "unsafe-sysctls":
		list, _ := was.([]any)
		list = slices.Clone(list)
		named := map[string]bool{}
		for _, sysctl := range list {
			of, _ := sysctl.(map[string]any)
			if name, ok := of["name"].(string); ok {
				named[name] = true
			}
		}
		for word := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(word, "=")
			if !ok || name == "" {
				return nil, fmt.Errorf("want name=value,name=value")
			}
			if !named[name] {
				named[name] = true
				list = append(list, map[string]any{"name": name, "value": value})
			}
			if len(list) > limitAnnotated {
				return nil, errManyAnnotated
			}
		}
		return list, nil
	default:
		return nil, fmt.Errorf("form %q is not known", form)
	}
}

// encodeForm spells a field as an annotation; false when the annotation cannot say it. "" needs no annotation.
func encodeForm(form string, value any, minor kubever.Minor) (string, bool) {
	switch form {
	case "text":
		text, ok := value.(string)
		return text, ok
	case "json":
		text, err := json.Marshal(value)
		return string(text), err == nil
	case "volume-affinity":
		affinity, _ := value.(map[string]any)
		required, ok := affinity["required"]
		text, err := json.Marshal(map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": required})
		return string(text), ok && err == nil
	case "seccomp":
		return encodeProfile(value, !kubever.Behaves(kubever.BehaviourSeccompRuntimeDefault, minor))
	case "apparmor":
		text, ok := encodeProfile(value, false)
		refused := text == "unconfined" && kubever.Behaves(kubever.BehaviourAppArmorUnconfinedRefused, minor)
		return text, ok && !refused
	case "critical":
		return "", value == "system-cluster-critical" || value == "system-node-critical"
	case "traffic":
		name, _ := value.(string)
		text, ok := map[string]string{"Local": "OnlyLocal", "Cluster": ""}[name]
		return text, ok
	case "number":
		n, ok := value.(int64)
		return strconv.FormatInt(n, 10), ok
	case "flag":
		b, ok := value.(bool)
		return strconv.FormatBool(b), ok
	case "commas":
		list, ok := value.([]any)
		words := make([]string, len(list))
		for i, word := range list {
			text, isText := word.(string)
			words[i], ok = text, ok && isText && !strings.Contains(text, ",")
		}
		return strings.Join(words, ","), ok
	case "sysctls", "unsafe-sysctls":
		list, ok := value.([]any)
		var words []string
		for _, entry := range list {
			sysctl, _ := entry.(map[string]any)
			name, named := sysctl["name"].(string)
			setting, isText := sysctl["value"].(string)
			ok = ok && named && isText && !strings.Contains(setting, ",")
			if slices.Contains(safeSysctls, name) == (form == "sysctls") {
				words = append(words, name+"="+setting)
			}
		}
		return strings.Join(words, ","), ok
	default:
		return "", false
	}
}

// profiles are what seccomp and AppArmor call the same things.
var profiles = map[string]string{
	"runtime/default": "RuntimeDefault", "docker/default": "RuntimeDefault", "unconfined": "Unconfined",
}

func decodeProfile(text string) (any, error) {
	if name, ok := strings.CutPrefix(text, "localhost/"); ok && name != "" {
		return map[string]any{"type": "Localhost", "localhostProfile": name}, nil
	}
	if kind, ok := profiles[text]; ok {
		return map[string]any{"type": kind}, nil
	}
	return nil, fmt.Errorf("%q is no profile", text)
}

func encodeProfile(value any, docker bool) (string, bool) {
	profile, _ := value.(map[string]any)
	switch profile["type"] {
	case "RuntimeDefault":
		if docker {
			return "docker/default", true
		}
		return "runtime/default", true
	case "Unconfined":
		return "unconfined", true
	case "Localhost":
		name, ok := profile["localhostProfile"].(string)
		return "localhost/" + name, ok
	default:
		return "", false
	}
}

// wholeNumbers makes int64 of numbers that are whole, as objects have them.
func wholeNumbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = wholeNumbers(value[key])
		}
	case []any:
		for i := range value {
			value[i] = wholeNumbers(value[i])
		}
	case float64:
		if value == float64(int64(value)) {
			return int64(value)
		}
	}
	return value
}

// publicIPs: what 1.6 also took as deprecatedPublicIPs is externalIPs.
func (s *speller) publicIPs(spec map[string]any) {
	old, ok := spec["deprecatedPublicIPs"].([]any)
	if !ok || kubever.Field("v1.ServiceSpec", "deprecatedPublicIPs").Has(s.minor) {
		return
	}
	if given, ok := spec["externalIPs"]; ok && !reflect.DeepEqual(given, any(old)) {
		return // the loss of the field is named
	}
	if s.changed = true; !s.dry {
		spec["externalIPs"] = runtime.DeepCopyJSONValue(old)
		delete(spec, "deprecatedPublicIPs")
	}
}

// dataSource says where the data of a claim come from in the older of two fields, where the minor has that alone.
// Servers that have both write each from the other.
func (s *speller) dataSource(claim map[string]any) {
	reference := object(claim, "dataSourceRef")
	if reference == nil || has(reference, "namespace") || keeps("dataSourceRef", claim, s.minor) {
		return
	}
	said, given := claim["dataSource"]
	same := func(name string) bool {
		source, _ := said.(map[string]any)
		return isEmpty(source[name]) && isEmpty(reference[name]) || reflect.DeepEqual(source[name], reference[name])
	}
	alone := map[string]any{"dataSource": reference}
	if !keeps("dataSource", alone, s.minor) || given && !(same("apiGroup") && same("kind") && same("name")) {
		return // the loss is named
	}
	if s.changed = true; !s.dry {
		claim["dataSource"] = reference
		delete(claim, "dataSourceRef")
	}
}

// metricsAnnotation is where the v1 of autoscalers keeps what it has no field for, in the shape of v2beta1.
const metricsAnnotation = "autoscaling.alpha.kubernetes.io/metrics"

// metrics names the metrics in the annotation of an autoscaler that the minor does not understand: it has the types of
// its newest beta.
func (s *speller) metrics(metadata map[string]any) {
	text, ok := object(metadata, "annotations")[metricsAnnotation].(string)
	var metrics []map[string]any
	if !ok || tooMany(text) || json.Unmarshal([]byte(text), &metrics) != nil {
		return
	}
	said := map[string]bool{}
	for _, metric := range metrics {
		for source, since := range map[string]struct {
			kind  string
			field string
		}{"External": {"external", ""}, "ContainerResource": {"containerResource", ""}, "Pods": {"pods", "selector"},
			"Object": {"object", "selector"}} {
			minors, what := kubever.Field("autoscaling.v2beta1.MetricSpec", since.kind), source+" metrics"
			if since.field != "" {
				if object(metric, since.kind)[since.field] == nil {
					continue
				}
				minors, what = kubever.Field("autoscaling.v2beta1."+source+"MetricSource", since.field),
					"selectors of "+what
			}
			if metric["type"] != source || len(minors) == 0 || s.minor >= minors[0].From || said[what] {
				continue
			}
			said[what] = true
			s.lose(carrier{}, metricsAnnotation, text,
				fmt.Sprintf("%s does not know %s, %s does", s.minor, what, minors[0].From))
		}
	}
}

// scaleTarget names what an autoscaler scales in a group that has it by default. Controllers since 1.9 look for the
// group and the kind, in whatever version they are served, and find nothing where the group does not have the kind;
// those before look for the kind alone (pkg/controller/podautoscaler/horizontal.go of every minor).
func (s *speller) scaleTarget(c *Converter, reference map[string]any) {
	text, _ := reference["apiVersion"].(string)
	kind, _ := reference["kind"].(string)
	named := schema.FromAPIVersionAndKind(text, kind)
	there := func(version schema.GroupVersionKind) bool {
		return version.GroupKind() == named.GroupKind() && kubever.LifecycleOf(version).DefaultOn.Has(s.minor)
	}
	to := c.StandingIn(named, s.minor).Target
	if to.Empty() || to.Kind != kind || there(named) || slices.ContainsFunc(c.Equivalents(named), there) {
		return
	}
	if s.changed = true; !s.dry {
		reference["apiVersion"] = to.GroupVersion().String()
	}
}

// onlyVersion leaves out the list of a CRD's versions where servers do not know it, and spec.version says the same.
func (s *speller) onlyVersion(gvk schema.GroupVersionKind, spec map[string]any) {
	versions := elements(spec, "versions")
	typeName := kubever.TypeName(gvk) + "Spec"
	if len(versions) != 1 || kubever.Field(typeName, "versions").Has(s.minor) ||
		!kubever.Field(typeName, "version").Has(s.minor) {
		return
	}
	name := spec["version"]
	if name == nil {
		name = versions[0]["name"]
	}
	alone := reflect.DeepEqual(versions[0], map[string]any{"name": name, "served": true, "storage": true})
	if spec["version"] != nil && !alone {
		return
	}
	if s.changed = true; s.dry {
		return
	}
	if spec["version"] = name; alone {
		delete(spec, "versions")
	}
}

// nodeLabels renames the labels of nodes in what chooses nodes.
func (s *speller) nodeLabels(part map[string]any) {
	names := nodeNames(s.minor)
	if selector := object(part, "nodeSelector"); selector != nil {
		for name, value := range selector {
			if other, ok := names[name]; ok && selector[other] == nil {
				if s.changed = true; !s.dry {
					delete(selector, name)
					selector[other] = value
				}
			}
		}
	}
	for _, field := range []string{"affinity", "nodeAffinity", "topologySpreadConstraints", "allowedTopologies"} {
		s.renameKeys(part[field], names, "")
	}
	s.tolerations(part, names)
}

// tolerations adds those of taints by the other names. Taints are no labels: nodes may have either, and both.
func (s *speller) tolerations(part map[string]any, names map[string]string) {
	list := elements(part, "tolerations")
	tolerated := map[string]bool{}
	for _, toleration := range list {
		tolerated[fmt.Sprint(toleration)] = true
	}
	for _, toleration := range list {
		key, _ := toleration["key"].(string)
		other, renamed := names[key]
		if !renamed {
			continue
		}
		added := maps.Clone(toleration)
		added["key"] = other
		if tolerated[fmt.Sprint(added)] {
			continue
		}
		tolerated[fmt.Sprint(added)] = true
		if s.changed = true; !s.dry {
			part["tolerations"] = append(part["tolerations"].([]any), added)
		}
	}
}

// nodeNames are the labels of nodes that have another name on nodes of a minor, and that name.
func nodeNames(minor kubever.Minor) map[string]string {
	if known, ok := nodeNamesIn.Load(minor); ok {
		return known.(map[string]string)
	}
	names := map[string]string{}
	for _, label := range kubever.NodeLabels() {
		hasOld, hasNew := label.HasOld.Has(minor), label.HasNew.Has(minor)
		switch {
		case hasNew && !hasOld:
			names[label.Old] = label.New
		case hasOld && !hasNew:
			names[label.New] = label.Old
		}
	}
	nodeNamesIn.Store(minor, names)
	return names
}

var nodeNamesIn sync.Map // kubever.Minor -> map[string]string; facts, which do not change

// renameKeys renames what stands in a field named key or topologyKey. Of the selectors of pods it leaves the keys
// alone.
func (s *speller) renameKeys(value any, names map[string]string, in string) {
	switch value := value.(type) {
	case map[string]any:
		for field, inner := range value {
			text, ok := inner.(string)
			switch {
			case ok && (field == "key" || field == "topologyKey"):
				if other, renamed := names[text]; renamed {
					if s.changed = true; !s.dry {
						value[field] = other
					}
				}
			case field != "labelSelector" && field != "namespaceSelector":
				s.renameKeys(inner, names, field)
			}
		}
	case []any:
		for _, inner := range value {
			s.renameKeys(inner, names, in)
		}
	}
}
