// Package migrate brings the objects of a resource to another storage version, and retires versions of
// CustomResourceDefinitions: a plan of steps, each with its check and its inverse; the steps, applied so that they can
// be killed and resumed anywhere; and the proof, before anything is forgotten, that nothing is stored in the old
// version any more. It also says what a change of a CRD breaks, and who still uses a version.
//
// The package is pure: it acts on servers and stores only through what it is handed. Package live is an API server
// behind it.
package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/crdfile"
)

// GroupCRD is the API group of CustomResourceDefinitions.
const GroupCRD = "apiextensions.k8s.io"

const versionBeta = GroupCRD + "/v1beta1"

// Definition is a CustomResourceDefinition with all its fields, known ones and others. It is read from v1 or v1beta1
// and is held in the shape of v1: what v1beta1 says once for all versions is said of each version, and MarshalJSON
// takes it back. Not safe for concurrent use while it is changed.
type Definition struct {
	object map[string]any
	beta   bool
}

// Version is one entry of spec.versions.
type Version struct {
	Name    string `json:"name"`
	Served  bool   `json:"served"`
	Storage bool   `json:"storage"`
}

// perVersion are the fields that v1beta1 has once for all versions or, from 1.13 on, in each of them.
var perVersion = []struct{ shared, own string }{
	{"validation", "schema"}, {"subresources", "subresources"},
	{"additionalPrinterColumns", "additionalPrinterColumns"},
}

// ParseDefinition reads a CustomResourceDefinition in JSON, of apiextensions.k8s.io/v1 or v1beta1.
// Errors: no JSON, another kind, or none of the fields without which it is none.
func ParseDefinition(data []byte) (*Definition, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	return newDefinition(object)
}

// ParseDefinitions reads the CRDs of a YAML or JSON text, by name. What else is in it is skipped.
// Errors: a CRD that cannot be read or is there twice, with its place in the text.
func ParseDefinitions(data []byte) (map[string]*Definition, error) {
	definitions := map[string]*Definition{}
	err := crdfile.Read(data, func(text []byte) error {
		d, err := ParseDefinition(text)
		if err != nil {
			return err
		}
		if definitions[d.Name()] != nil {
			return fmt.Errorf("%s: is defined twice", d.Name())
		}
		definitions[d.Name()] = d
		return nil
	})
	return definitions, err
}

func newDefinition(object map[string]any) (*Definition, error) {
	d := &Definition{object: object}
	switch apiVersion := text(object, "apiVersion"); {
	case text(object, "kind") != "CustomResourceDefinition":
		return nil, fmt.Errorf("kind %q: want CustomResourceDefinition", text(object, "kind"))
	case apiVersion == versionBeta:
		d.beta = true
	case apiVersion != GroupCRD+"/v1":
		return nil, fmt.Errorf("apiVersion %q: want %s/v1 or %s", apiVersion, GroupCRD, versionBeta)
	}
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return nil, errors.New("spec: is missing")
	}
	if d.beta {
		fromBeta(spec)
	}
	for _, field := range []string{"group", "scope"} {
		if text(spec, field) == "" {
			return nil, fmt.Errorf("spec.%s: is missing", field)
		}
	}
	for _, field := range []string{"plural", "kind"} {
		if text(spec, "names", field) == "" {
			return nil, fmt.Errorf("spec.names.%s: is missing", field)
		}
	}
	storage := 0
	for i, entry := range list(spec, "versions") {
		v, ok := entry.(map[string]any)
		if !ok || text(v, "name") == "" {
			return nil, fmt.Errorf("spec.versions[%d].name: is missing", i)
		}
		if flag(v, "storage") {
			storage++
		}
	}
	if storage != 1 {
		return nil, fmt.Errorf("spec.versions: %d of them have storage: true, want one", storage)
	}
	return d, nil
}

// fromBeta brings the spec of v1beta1 to the shape of v1.
func fromBeta(spec map[string]any) {
	if len(list(spec, "versions")) == 0 && text(spec, "version") != "" {
		spec["versions"] = []any{map[string]any{"name": text(spec, "version"), "served": true, "storage": true}}
	}
	for _, field := range perVersion {
		shared, ok := spec[field.shared]
		delete(spec, field.shared)
		for _, entry := range list(spec, "versions") {
			if v, isMap := entry.(map[string]any); isMap && ok && v[field.own] == nil {
				v[field.own] = clone(shared)
			}
		}
	}
	delete(spec, "version")
	for _, entry := range list(spec, "versions") {
		renameColumns(entry, "JSONPath", "jsonPath")
	}
	if spec["preserveUnknownFields"] == nil {
		spec["preserveUnknownFields"] = true // the default of v1beta1
	}
	if conversion, ok := spec["conversion"].(map[string]any); ok {
		webhook := map[string]any{}
		move(conversion, "webhookClientConfig", webhook, "clientConfig")
		move(conversion, "conversionReviewVersions", webhook, "conversionReviewVersions")
		if webhook["clientConfig"] != nil {
			conversion["webhook"] = webhook
		}
	}
}

// toBeta is the inverse of fromBeta. Servers refuse fields that all versions have alike in each of them.
func toBeta(spec map[string]any) {
	versions := list(spec, "versions")
	for _, entry := range versions {
		renameColumns(entry, "jsonPath", "JSONPath")
	}
	for _, field := range perVersion {
		var values []any
		for _, entry := range versions {
			values = append(values, entry.(map[string]any)[field.own])
		}
		alike := !slices.ContainsFunc(values, func(v any) bool { return !reflect.DeepEqual(v, values[0]) })
		if len(values) == 0 || !alike || values[0] == nil {
			continue
		}
		spec[field.shared] = values[0]
		for _, entry := range versions {
			delete(entry.(map[string]any), field.own)
		}
	}
	if len(versions) > 0 {
		spec["version"] = text(versions[0], "name") // servers want the first
	}
	if conversion, ok := spec["conversion"].(map[string]any); ok {
		if webhook, ok := conversion["webhook"].(map[string]any); ok {
			move(webhook, "clientConfig", conversion, "webhookClientConfig")
			move(webhook, "conversionReviewVersions", conversion, "conversionReviewVersions")
			delete(conversion, "webhook")
		}
	}
}

func renameColumns(version any, from, to string) {
	for _, entry := range list(version, "additionalPrinterColumns") {
		if column, ok := entry.(map[string]any); ok {
			move(column, from, column, to)
		}
	}
}

func move(from map[string]any, name string, to map[string]any, as string) {
	if value, ok := from[name]; ok {
		delete(from, name)
		to[as] = value
	}
}

// MarshalJSON writes the definition in the version that it was read in.
func (d *Definition) MarshalJSON() ([]byte, error) {
	object := clone(d.object).(map[string]any)
	if d.beta {
		toBeta(object["spec"].(map[string]any))
	}
	return json.Marshal(object)
}

// UnmarshalJSON is ParseDefinition.
func (d *Definition) UnmarshalJSON(data []byte) error {
	parsed, err := ParseDefinition(data)
	if err == nil {
		*d = *parsed
	}
	return err
}

// Clone copies the definition whole.
func (d *Definition) Clone() *Definition {
	return &Definition{object: clone(d.object).(map[string]any), beta: d.beta}
}

func (d *Definition) spec() map[string]any { return d.object["spec"].(map[string]any) }

// Name is that of the definition: "pizzas.restaurant.example".
func (d *Definition) Name() string {
	if name := text(d.object, "metadata", "name"); name != "" {
		return name
	}
	return text(d.spec(), "names", "plural") + "." + text(d.spec(), "group")
}

// UID is that of the definition in its cluster, "" in a file.
func (d *Definition) UID() string { return text(d.object, "metadata", "uid") }

// ResourceVersion is that of the definition in its cluster, "" in a file.
func (d *Definition) ResourceVersion() string { return text(d.object, "metadata", "resourceVersion") }

// Generation counts the changes of the spec.
func (d *Definition) Generation() int64 {
	n, _ := at(d.object, "metadata", "generation").(int64)
	return n
}

// Deleting reports whether the definition is being deleted, and all objects with it.
func (d *Definition) Deleting() bool { return at(d.object, "metadata", "deletionTimestamp") != nil }

// Resource is what the definition defines.
func (d *Definition) Resource() Resource {
	spec := d.spec()
	group, plural := text(spec, "group"), text(spec, "names", "plural")
	return Resource{
		Name: d.Name(), Group: group, Plural: plural, Kind: text(spec, "names", "kind"),
		Namespaced: text(spec, "scope") == "Namespaced", Key: group + "/" + plural,
	}
}

// Versions lists spec.versions in its order.
func (d *Definition) Versions() []Version {
	var versions []Version
	for _, entry := range list(d.spec(), "versions") {
		versions = append(versions, Version{Name: text(entry, "name"), Served: flag(entry, "served"),
			Storage: flag(entry, "storage")})
	}
	return versions
}

// Version finds an entry of spec.versions by name.
func (d *Definition) Version(name string) (Version, bool) {
	for _, v := range d.Versions() {
		if v.Name == name {
			return v, true
		}
	}
	return Version{}, false
}

// Storage is the version in which objects are written.
func (d *Definition) Storage() string {
	for _, v := range d.Versions() {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// Served lists the versions that are served.
func (d *Definition) Served() []string {
	var names []string
	for _, v := range d.Versions() {
		if v.Served {
			names = append(names, v.Name)
		}
	}
	return names
}

// StoredVersions is status.storedVersions: what may be stored, as far as the server remembers.
func (d *Definition) StoredVersions() []string {
	var names []string
	for _, entry := range list(d.object, "status", "storedVersions") {
		if name, ok := entry.(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// Condition is the status of a condition: "True", "False", "Unknown", "" without it.
func (d *Definition) Condition(name string) string {
	for _, entry := range list(d.object, "status", "conditions") {
		if text(entry, "type") == name {
			return text(entry, "status")
		}
	}
	return ""
}

// Webhook says where conversions are requested.
type Webhook struct {
	URL       string `json:"url,omitempty"`
	Namespace string `json:"namespace,omitempty"` // of a service, with its Name
	Name      string `json:"name,omitempty"`
}

func (w Webhook) String() string {
	if w.URL != "" {
		return w.URL
	}
	return "service " + w.Namespace + "/" + w.Name
}

// Conversion is how objects get from one version to another: "None", which only changes apiVersion, or "Webhook" and
// which.
func (d *Definition) Conversion() (strategy string, webhook Webhook) {
	conversion := at(d.spec(), "conversion")
	if strategy = text(conversion, "strategy"); strategy == "" {
		strategy = StrategyNone
	}
	config := at(conversion, "webhook", "clientConfig")
	return strategy, Webhook{URL: text(config, "url"), Namespace: text(config, "service", "namespace"),
		Name: text(config, "service", "name")}
}

// The strategies of conversion.
const (
	StrategyNone    = "None"
	StrategyWebhook = "Webhook"
)

func (d *Definition) entry(name string) (map[string]any, error) {
	for _, entry := range list(d.spec(), "versions") {
		if text(entry, "name") == name {
			return entry.(map[string]any), nil
		}
	}
	return nil, fmt.Errorf("%s has no version %q; its versions are %s", d.Name(), name, strings.Join(d.names(), ", "))
}

func (d *Definition) names() []string {
	var names []string
	for _, v := range d.Versions() {
		names = append(names, v.Name)
	}
	return names
}

// setServed starts or ends the serving of a version.
func (d *Definition) setServed(name string, served bool) error {
	entry, err := d.entry(name)
	if err == nil {
		entry["served"] = served
	}
	return err
}

// setStorage makes the version the one in which objects are written.
func (d *Definition) setStorage(name string) error {
	if _, err := d.entry(name); err != nil {
		return err
	}
	for _, entry := range list(d.spec(), "versions") {
		entry.(map[string]any)["storage"] = text(entry, "name") == name
	}
	return nil
}

// addVersion adds the version of another definition with everything that it says of it, neither served nor stored. Of a
// version that is there already, nothing changes.
func (d *Definition) addVersion(from *Definition, name string) error {
	if _, err := d.entry(name); err == nil {
		return nil
	}
	entry, err := from.entry(name)
	if err != nil {
		return err
	}
	added := clone(entry).(map[string]any)
	added["served"], added["storage"] = false, false
	d.spec()["versions"] = append(list(d.spec(), "versions"), added)
	return nil
}

// removeVersion takes a version out of the definition.
func (d *Definition) removeVersion(name string) {
	d.spec()["versions"] = slices.DeleteFunc(list(d.spec(), "versions"), func(entry any) bool {
		return text(entry, "name") == name
	})
}

// setConversion takes over how another definition converts.
func (d *Definition) setConversion(from *Definition) {
	delete(d.spec(), "conversion")
	if conversion := at(from.spec(), "conversion"); conversion != nil {
		d.spec()["conversion"] = clone(conversion)
	} else {
		d.spec()["conversion"] = map[string]any{"strategy": StrategyNone}
	}
}

// setStored replaces status.storedVersions.
func (d *Definition) setStored(names ...string) {
	status, ok := d.object["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		d.object["status"] = status
	}
	stored := make([]any, len(names))
	for i, name := range names {
		stored[i] = name
	}
	status["storedVersions"] = stored
}

// says reports whether the definition has everything that the other one says in its spec, beside what a server adds by
// default.
func (d *Definition) says(other *Definition) bool {
	_, ok := holds(d.spec(), other.spec(), "spec")
	return ok
}

// holds reports whether got has everything that want says, in its spec: a server may add defaults, and silently drops
// what it does not know. The path is that of the first thing missing.
func holds(got, want any, path string) (missing string, ok bool) {
	switch want := want.(type) {
	case map[string]any:
		in, isMap := got.(map[string]any)
		if !isMap && len(want) > 0 {
			return path, false
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if missing, ok := holds(in[name], want[name], path+"."+name); !ok {
				return missing, false
			}
		}
		return "", true
	case []any:
		in, isList := got.([]any)
		if (!isList && len(want) > 0) || len(in) != len(want) {
			return path, false
		}
		for i := range want {
			if missing, ok := holds(in[i], want[i], fmt.Sprintf("%s[%d]", path, i)); !ok {
				return missing, false
			}
		}
		return "", true
	case nil, bool, string:
		// false, "" and null may be left out.
		if got == want || (got == nil && (want == nil || want == false || want == "")) {
			return "", true
		}
		return path, false
	default: // numbers may come back as another type
		return path, fmt.Sprint(got) == fmt.Sprint(want)
	}
}

// Access to what JSON holds. What is absent, or something else than expected, is the zero value.

func at(value any, path ...string) any {
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[name]
	}
	return value
}

func text(value any, path ...string) string {
	s, _ := at(value, path...).(string)
	return s
}

func flag(value any, path ...string) bool {
	b, _ := at(value, path...).(bool)
	return b
}

func list(value any, path ...string) []any {
	l, _ := at(value, path...).([]any)
	return l
}

func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for name, member := range value {
			copied[name] = clone(member)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, element := range value {
			copied[i] = clone(element)
		}
		return copied
	default:
		return value
	}
}
