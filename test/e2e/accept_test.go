//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"iter"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// What convert calls good, a real server of the release accepts: objects of every kind that one of the releases serves,
// in every version that they convert to, as they are, with each of their fields taken away, and with some changed by
// chance. What the server drops is named as a loss. kubectl of the release, where the rig has it, sends the rest, and
// kubectl apply --dry-run=server is accepted where servers know it. Servers that know dryRun write nothing; the others
// have a store that is thrown away. FUSIONCTL_E2E_ACCEPT_FILES names a directory of other manifests instead, whose
// objects are taken as they are, FUSIONCTL_E2E_ACCEPT a release that is asked alone, and FUSIONCTL_E2E_ACCEPT_SEED
// another chance.
func TestWhatConvertCallsGoodIsAccepted(t *testing.T) {
	t.Parallel()
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	bases, vary := acceptBases(t), variantsByChance(acceptSeed(t))
	if dir := os.Getenv("FUSIONCTL_E2E_ACCEPT_FILES"); dir != "" {
		bases = objectsIn(t, c, dir)
		vary = func(object map[string]any) []map[string]any { return []map[string]any{object} }
	} else {
		everyVersionIsASource(t, c, bases)
	}
	for _, minor := range acceptMinors(t) {
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			server := startForConverting(r, minor)
			serviceAccount(t, server)
			a := &acceptance{
				t: t, c: c, minor: minor, client: server.Client("somebody", "system:masters"), told: map[string]bool{},
				kinds: map[schema.GroupVersionKind]bool{},
			}
			a.run(bases, vary)
			t.Logf("%s: %d converted, %d created, %d refused by convert, %d with losses", minor, a.converted, a.created,
				a.refused,
				a.lossy)
			if os.Getenv("FUSIONCTL_E2E_ACCEPT_FILES") == "" {
				if a.created < 1000 {
					t.Errorf("%s: %d objects were created, want thousands", minor, a.created)
				}
				a.everyKind()
			}
			a.byKubectl(r, server.URL)
		})
	}
}

// everyVersionIsASource: objects come in every version of a kind that some release serves by default, so that what each
// release has, older or newer, is converted for each release that is asked.
func everyVersionIsASource(t *testing.T, c *convert.Converter, bases []*unstructured.Unstructured) {
	t.Helper()
	sources := map[schema.GroupVersionKind]bool{}
	for _, base := range bases {
		for _, kind := range append(c.Equivalents(base.GroupVersionKind()), base.GroupVersionKind()) {
			sources[kind] = true
		}
	}
	for _, api := range kubever.AllAPIResources() {
		if gvk := api.GroupVersion.WithKind(api.Kind); len(api.DefaultOn) > 0 && !sources[gvk] &&
			!slices.Contains(notCreated, api.Kind) {
			t.Errorf("%s is converted from no object: testdata/accept.yaml needs one", gvk)
		}
	}
}

// acceptMinors are the releases that are asked: those of the rig with an API server, or one of FUSIONCTL_E2E_ACCEPT.
func acceptMinors(t *testing.T) (minors []kubever.Minor) {
	t.Helper()
	only := os.Getenv("FUSIONCTL_E2E_ACCEPT")
	for _, r := range releases(t) {
		if only == "" || only == r.Minor.String() {
			minors = append(minors, r.Minor)
		}
	}
	if len(minors) == 0 {
		t.Fatalf("the rig has no API server of %q", only)
	}
	return minors
}

func acceptBases(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for object, err := range objectsOf(t, "testdata/accept.yaml") {
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

func objectsOf(t *testing.T, file string) iter.Seq2[*unstructured.Unstructured, error] {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(*unstructured.Unstructured, error) bool) {
		for part, err := range manifest.Parts(bytes.NewReader(text)) {
			if err == nil && !part.Object {
				continue
			}
			var object *manifest.Object
			if err == nil {
				object, err = part.Decode()
			}
			switch {
			case err != nil:
				if !yield(nil, err) {
					return
				}
			case object != nil && !yield(&unstructured.Unstructured{Object: object.Value}, nil):
				return
			}
		}
	}
}

// objectsIn are the objects of Kubernetes' own kinds in the files of a directory, each once, in the namespace default.
func objectsIn(t *testing.T, c *convert.Converter, dir string) (objects []*unstructured.Unstructured) {
	t.Helper()
	seen := map[string]bool{}
	must(t, filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) ||
			!entry.Type().IsRegular() {
			return err
		}
		for object, err := range objectsOf(t, file) {
			if err != nil || !c.Knows(object.GroupVersionKind()) {
				continue // templates, and kinds of others
			}
			if _, _, err := c.Internal(object); err != nil {
				continue // patches, and what no server reads
			}
			if object.GetNamespace() != "" {
				object.SetNamespace("default")
			}
			object.SetResourceVersion("") // those of a server, which takes them for its own
			object.SetSelfLink("")
			text, err := json.Marshal(object.Object)
			if err != nil {
				return err
			}
			if !seen[string(text)] {
				seen[string(text)], objects = true, append(objects, object)
			}
		}
		return nil
	}))
	return objects
}

type acceptance struct {
	t      *testing.T
	c      *convert.Converter
	minor  kubever.Minor
	client *rig.Client
	told   map[string]bool                  // problems, each once
	kinds  map[schema.GroupVersionKind]bool // that the server accepted objects of

	converted, created, refused, lossy int

	sent []stream.Result // what the server accepted without a loss
}

func (a *acceptance) run(bases []*unstructured.Unstructured, vary func(map[string]any) []map[string]any) {
	s := stream.New(a.c, stream.Options{Choose: stream.ForMinor(a.c, a.minor), Minor: a.minor, Format: stream.JSON})
	var all bytes.Buffer
	number := 0
	for _, base := range bases {
		for _, kind := range append([]schema.GroupVersionKind{base.GroupVersionKind()},
			a.c.Equivalents(base.GroupVersionKind())...) {
			object, _, err := a.c.Convert(base, kind)
			if err != nil {
				a.t.Errorf("%s to %s: %v", base.GroupVersionKind(), kind, err)
				continue
			}
			for _, variant := range vary(object.Object) {
				u := &unstructured.Unstructured{Object: variant}
				if number++; !a.dryRuns() && u.GetKind() != "CustomResourceDefinition" && u.GetKind() != "APIService" &&
					u.GetKind() != "ThirdPartyResource" && u.GetName() != "" {
					u.SetName(fmt.Sprintf("a%d", number)) // what is written stays for a while
				}
				text, err := json.Marshal(variant)
				if err != nil {
					a.t.Fatal(err)
				}
				all.Write(text)
				all.WriteByte('\n')
			}
		}
	}
	if err := s.Convert(a.t.Context(), "objects", &all, a.result); err != nil {
		a.t.Fatal(err)
	}
}

// variants are the object, and the object without each of its fields but those that name it.
func variants(object map[string]any) []map[string]any {
	result := []map[string]any{object}
	var walk func(value any, at []any)
	walk = func(value any, at []any) {
		switch value := value.(type) {
		case map[string]any:
			for _, name := range sortedFields(value) {
				if len(at) == 0 && (name == "apiVersion" || name == "kind" || name == "metadata" || name == "status") {
					continue
				}
				here := append(slices.Clone(at), name)
				without := runtime.DeepCopyJSON(object)
				take(without, here)
				result = append(result, without)
				walk(value[name], here)
			}
		case []any:
			for i := range value {
				walk(value[i], append(slices.Clone(at), i))
			}
		}
	}
	walk(object, nil)
	return result
}

// acceptSeed is what chance starts from: the same in every run that does not ask for another.
func acceptSeed(t *testing.T) uint64 {
	t.Helper()
	text := cmp.Or(os.Getenv("FUSIONCTL_E2E_ACCEPT_SEED"), "1")
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("FUSIONCTL_E2E_ACCEPT_SEED: %v", err)
	}
	return seed
}

// changedByChance is how many variants of an object chance makes.
const changedByChance = 12

// variantsByChance are variants, and those in which one to three places are changed by chance: the same for one seed
// and one object.
func variantsByChance(seed uint64) func(map[string]any) []map[string]any {
	return func(object map[string]any) []map[string]any {
		result := variants(object)
		text, err := json.Marshal(object)
		if err != nil {
			return result
		}
		hash := fnv.New64a()
		hash.Write(text)
		chance := rand.New(rand.NewPCG(seed, hash.Sum64()))
		for range changedByChance {
			changed := runtime.DeepCopyJSON(object)
			for range 1 + chance.IntN(3) {
				changeOne(chance, changed)
			}
			result = append(result, changed)
		}
		return result
	}
}

// serviceIP is an address within the range of the servers, which flags decide.
const serviceIP = "10.96.0.77"

// changeOne changes one place of an object, or takes it away.
func changeOne(chance *rand.Rand, object map[string]any) {
	var places []func()
	var walk func(value any, set func(any), depth int)
	walk = func(value any, set func(any), depth int) {
		other := func(values ...any) {
			places = append(places, func() { set(values[chance.IntN(len(values))]) })
		}
		switch value := value.(type) {
		case map[string]any:
			for _, name := range sortedFields(value) {
				if depth == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name) {
					continue
				}
				places = append(places, func() { delete(value, name) })
				walk(value[name], func(v any) { value[name] = v }, depth+1)
			}
		case []any:
			if len(value) > 0 {
				twice := append(slices.Clone(value), runtime.DeepCopyJSONValue(value[0]))
				other([]any{}, twice, twice)
			}
			for i := range value {
				walk(value[i], func(v any) { value[i] = v }, depth+1)
			}
		case string:
			other("", "x", "Xy", "x_y", "a.b", "a/b", "-", "1", serviceIP, strings.Repeat("a", 64))
		case int64:
			other(int64(0), int64(1), int64(-1), value+1, int64(70000))
		case bool:
			other(!value)
		}
	}
	walk(object, nil, 0)
	if len(places) > 0 {
		places[chance.IntN(len(places))]()
	}
}

func sortedFields(object map[string]any) []string {
	var names []string
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func take(value any, at []any) {
	for _, part := range at[:len(at)-1] {
		switch part := part.(type) {
		case string:
			value = value.(map[string]any)[part]
		case int:
			value = value.([]any)[part]
		}
	}
	delete(value.(map[string]any), at[len(at)-1].(string))
}

func (a *acceptance) result(r stream.Result) error {
	if r.Object == nil && r.Err == nil {
		return nil
	}
	if a.converted++; r.Err != nil {
		a.refused++
		return nil
	}
	api, ok := a.resource(r.Object.GroupVersionKind())
	if !ok {
		return nil // off by default
	}
	path := "/apis/" + api.GroupVersion.String()
	if api.Group == "" {
		path = "/api/" + api.Version
	}
	if api.Namespaced {
		path += "/namespaces/default"
	}
	path += "/" + api.Name
	query := ""
	if a.dryRuns() {
		query = "?dryRun=All"
	}
	if strings.Contains(r.Refused, " may refuse it, ") { // any answer is right; some objects end a server of 1.8
		a.refused++
		return nil
	}
	var got map[string]any
	err := a.client.Call(a.t.Context(), http.MethodPost, path+query, r.Object.Object, &got)
	byClient := strings.HasPrefix(r.Refused, "kubectl ")
	if r.Refused != "" && !byClient {
		a.refused++
		switch accepts := strings.Contains(r.Refused, " accepts it, "); {
		case accepts && err != nil:
			a.tell("%s as %s: called accepted, and refused: %v", r.From, r.To, err)
		case !accepts && err == nil:
			a.tell("%s: called refused, and accepted: %s", r.From, r.Refused)
		}
		return nil
	}
	if err != nil {
		// what a server keeps cannot be created twice
		if rig.Code(err) != http.StatusConflict && r.Object.GetKind() != "Binding" &&
			!elsewhere.MatchString(err.Error()) {
			a.tell("%s as %s: called good, and refused: %v", r.From, r.To, err)
		}
		return nil
	}
	a.created++
	a.kinds[r.Object.GroupVersionKind()] = true
	if r.Object.GetKind() != "SelfSubjectRulesReview" { // the answer does not repeat the question
		a.compare(r, got)
	}
	if len(r.Losses) == 0 && !byClient {
		a.sent = append(a.sent, r)
	}
	name := (&unstructured.Unstructured{Object: got}).GetName()
	if query == "" && name != "" { // reviews are not kept
		return a.remove(path + "/" + name)
	}
	return nil
}

// elsewhere is what convert does not look at: other objects, admission, and what flags of a server decide.
var elsewhere = regexp.MustCompile(`service account|priority admission controller|priorityClass is not permitted|` +
	`failed calling .*webhook|is not in the valid range|error querying`)

// dryRuns reports whether servers of the minor carry out dryRun: the feature gate is off by default in 1.12.
func (a *acceptance) dryRuns() bool { return a.minor >= 13 }

// remove deletes what was written, again while controllers of the server, which finalize definitions, write it too.
func (a *acceptance) remove(path string) error {
	var err error
	for range 20 {
		err = a.client.Call(a.t.Context(), http.MethodDelete, path, nil, nil)
		switch {
		case err == nil, rig.Code(err) == http.StatusNotFound:
			return nil
		case rig.Code(err) != http.StatusConflict:
			return err
		}
	}
	return err
}

// byKubectl hands the objects that the server accepted to kubectl: to that of the release where the rig has it, which
// is told to send none, and as people do it, to be applied on the server without a trace.
func (a *acceptance) byKubectl(r *rig.Rig, url string) {
	kubeconfig, err := r.PKI.Kubeconfig("kubectl", url, "somebody", "system:masters")
	must(a.t, err)
	own, err := rig.Binary("kubectl", a.minor)
	if err == nil {
		argument := "--dry-run"
		if a.minor >= 18 {
			argument = "--dry-run=client"
		}
		a.sentBy(own, kubeconfig, r.Dir(), a.sent, "create", argument)
	}
	applied := slices.DeleteFunc(slices.Clone(a.sent), func(r stream.Result) bool {
		return r.Name == "" || strings.HasSuffix(r.Object.GetKind(), "Review") || // it looks for the object by its name
			r.TooLargeToApply()
	})
	switch {
	case err == nil && a.dryRuns() && a.minor < 18: // kubectl of then asks some five times a second
		ofKind := map[string]int{}
		applied = slices.DeleteFunc(applied, func(r stream.Result) bool { ofKind[r.To]++; return ofKind[r.To] > 4 })
		a.sentBy(own, kubeconfig, r.Dir(), applied, "apply", "--server-dry-run")
	case a.minor >= 18:
		newest, err := rig.Binary("kubectl", kubever.Library)
		must(a.t, err)
		a.sentBy(newest, kubeconfig, r.Dir(), applied, "apply", "--dry-run=server")
	}
}

// sentBy holds that kubectl, which validates objects before it sends them, has nothing against those that the server
// accepts.
func (a *acceptance) sentBy(kubectl, kubeconfig, dir string, sent []stream.Result, verb, dryRun string) {
	folder := filepath.Join(dir, verb)
	must(a.t, os.MkdirAll(folder, 0o700))
	for i, r := range sent {
		text, err := json.Marshal(r.Object.Object)
		must(a.t, err)
		must(a.t, os.WriteFile(filepath.Join(folder, strconv.Itoa(i)+".json"), text, 0o600))
	}
	command := exec.CommandContext(a.t.Context(), kubectl, "--kubeconfig", kubeconfig, "--cache-dir",
		dir+"/kubectl-cache", "--namespace", "default", verb, dryRun, "-o", "name", "-f", folder)
	command.Env = append(os.Environ(), "HOME="+dir)
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	for line := range strings.Lines(errs.String()) {
		if strings.HasPrefix(line, "Warning: ") { // of what is deprecated, or of names that are there twice
			continue
		}
		a.tell("kubectl %s, %s: %s", verb, a.minor, strings.TrimSpace(line))
	}
	lines := bytes.Count(out, []byte("\n"))
	if err != nil || lines != len(sent) {
		a.tell("kubectl %s, %s: sends %d of %d objects: %v", verb, a.minor, lines, len(sent), err)
	}
	a.t.Logf("%s: kubectl %s %s: %d objects", a.minor, verb, dryRun, lines)
}

func (a *acceptance) resource(gvk schema.GroupVersionKind) (kubever.APIResource, bool) {
	for _, api := range kubever.APIResources(a.minor) {
		if api.GroupVersion == gvk.GroupVersion() && api.Kind == gvk.Kind && api.DefaultOn.Has(a.minor) {
			return api, true
		}
	}
	return kubever.APIResource{}, false
}

// compare holds what the server has of the object against what was sent and what is called lost. Of status and
// managedFields, which servers fill in themselves, convert says nothing.
func (a *acceptance) compare(r stream.Result, got map[string]any) {
	lost, values := map[string]bool{}, map[string]any{}
	for _, loss := range r.Losses {
		if loss.Value != nil && !strings.Contains(loss.Meaning, " of the claims that are created of this") {
			lost[loss.Path], values[loss.Path] = true, loss.Value
		}
	}
	if len(lost) > 0 {
		a.lossy++
	}
	var walk func(sent, has any, at string)
	walk = func(sent, has any, at string) {
		switch sent := sent.(type) {
		case map[string]any:
			other, ok := has.(map[string]any)
			if !ok {
				return
			}
			for _, name := range sortedFields(sent) {
				here := strings.TrimPrefix(at+"."+name, ".")
				inner, there := other[name]
				switch {
				case here == "status" || here == "metadata.managedFields" || sent[name] == nil:
				case ofClaim.MatchString(here): // which is implied
				case here == "stringData": // it is only written: servers keep it as data
				case lost[here] && there && reflect.DeepEqual(inner, values[here]): // not something else in its place
					a.tell("%s as %s: %s is called lost, and survives", r.From, r.To, here)
				case lost[here]:
				case !there && !saysNothing(sent[name]) && !allLost(sent[name], here, lost):
					a.tell("%s as %s: %s does not survive, and is not called lost", r.From, r.To, here)
				case there:
					walk(sent[name], inner, here)
				}
			}
		case []any:
			other, ok := has.([]any)
			for i := range sent {
				if ok && i < len(other) {
					walk(sent[i], other[i], fmt.Sprintf("%s[%d]", at, i))
				}
			}
		}
	}
	walk(r.Object.Object, got, "")
}

// ofClaim is what says that a template of claims is one.
var ofClaim = regexp.MustCompile(`^spec\.volumeClaimTemplates\[\d+\]\.(apiVersion|kind)$`)

// allLost reports whether each field of a value is called lost: servers leave out what is empty then.
func allLost(value any, at string, lost map[string]bool) bool {
	fields, ok := value.(map[string]any)
	for name, inner := range fields {
		if here := at + "." + name; !lost[here] && !allLost(inner, here, lost) {
			return false
		}
	}
	return ok && len(fields) > 0
}

// saysNothing: servers leave out what is false, zero or empty.
func saysNothing(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	case bool:
		return !value
	case string:
		return value == ""
	case int64:
		return value == 0
	}
	return value == nil
}

// notCreated are kinds that no client creates, or that need something else of the cluster first.
var notCreated = []string{"Binding", "ComponentStatus", "ReplicationControllerDummy"}

// everyKind: of every kind that the release serves by default an object was accepted.
func (a *acceptance) everyKind() {
	for _, api := range kubever.APIResources(a.minor) {
		gvk := api.GroupVersion.WithKind(api.Kind)
		if standing := a.c.StandingIn(gvk, a.minor); standing.Target == gvk && standing.Served && !a.kinds[gvk] &&
			!slices.Contains(notCreated, api.Kind) {
			a.tell("%s: no object of it was accepted", gvk)
		}
	}
}

// tell reports a problem once.
func (a *acceptance) tell(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !a.told[text] && len(a.told) < 200 {
		a.told[text] = true
		a.t.Error(text)
	}
}
