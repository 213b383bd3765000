package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"mvdan.cc/sh/v3/syntax"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// stringFields finds every field of a file that holds a text, by its path, and how to set it.
func stringFields(value reflect.Value, at string, found map[string]reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			stringFields(value.Elem(), at, found)
		}
	case reflect.String:
		found[at] = value
	case reflect.Slice:
		for i := range value.Len() {
			stringFields(value.Index(i), fmt.Sprintf("%s[%d]", at, i), found)
		}
	case reflect.Struct:
		for _, f := range strictyaml.FieldsOf(value.Type()) {
			stringFields(value.FieldByIndex(f.Index), strictyaml.Join(at, f.Name), found)
		}
	}
}

// kindsOfFields are the paths of all text fields that the type has, without indices.
func kindsOfFields(typ reflect.Type, at string, found map[string]bool) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		kindsOfFields(typ.Elem(), at, found)
	case reflect.String:
		found[at] = true
	case reflect.Struct:
		for _, f := range strictyaml.FieldsOf(typ) {
			kindsOfFields(typ.FieldByIndex(f.Index).Type, strictyaml.Join(at, f.Name), found)
		}
	}
}

var indices = regexp.MustCompile(`\[\d+\]`)

// everyField reads the spec in which every field is set.
func everyField(t *testing.T) *spec.File {
	t.Helper()
	data, err := os.ReadFile("testdata/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file, err := spec.Load("every-field.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// specText is a text of a spec that takes one value after the other.
type specText struct {
	file *spec.File
	at   string
	was  string
	same []reflect.Value // the field, and those that have to say the same: the files that two stores name
}

func newSpecText(t *testing.T, at string) *specText {
	t.Helper()
	f := &specText{file: everyField(t), at: at}
	fields := map[string]reflect.Value{}
	stringFields(reflect.ValueOf(f.file).Elem(), "", fields)
	f.was = fields[at].String()
	for other, value := range fields {
		if value.String() == f.was && indices.ReplaceAllString(other, "") == indices.ReplaceAllString(at, "") {
			f.same = append(f.same, value)
		}
	}
	return f
}

// with reads the spec with a value in the field, put into the text that it had: before the suffix of a file, since some
// names are derived from others by another suffix.
func (f *specText) with(value string) (*spec.File, error) {
	suffix := path.Ext(f.was)
	if strings.ContainsAny(suffix, ":/ ") || !strings.HasPrefix(f.was, "/") {
		suffix = ""
	}
	for _, v := range f.same {
		v.SetString(strings.TrimSuffix(f.was, suffix) + harmless + value + harmless + suffix)
	}
	text, err := spec.Marshal(f.file)
	if err != nil {
		return nil, err
	}
	return spec.Load("every-field.yaml", text)
}

// TestEveryFieldMeansItsValue gives each text of a spec values that break whoever pastes them. The spec is refused with
// the line; or what real parsers read from each rendered file is what they read with a harmless value in its place.
func TestEveryFieldMeansItsValue(t *testing.T) {
	fields := map[string]reflect.Value{}
	stringFields(reflect.ValueOf(everyField(t)).Elem(), "", fields)
	set := map[string]bool{}
	for at, value := range fields {
		if value.String() != "" {
			set[indices.ReplaceAllString(at, "")] = true
		}
	}
	kinds := map[string]bool{}
	kindsOfFields(reflect.TypeFor[spec.File](), "", kinds)
	for at := range kinds {
		if !set[at] && !unset[at] && !strings.HasPrefix(at, "spec.modern.scheduler.") &&
			!ofRunning.MatchString(at) {
			t.Errorf("testdata/every-field.yaml does not set %s", at)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(fields)) {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			meansItsValue(t, newSpecText(t, at))
		})
	}
}

// unset are fields that no spec sets beside the others: the modern side has no scheduler here, API servers have no
// kubeconfig, a version is one text, and backups of pods are in no directory of a host.
var unset = map[string]bool{
	"spec.backup.directory":            true,
	"spec.legacy.apiServer.kubeconfig": true, "spec.modern.apiServer.kubeconfig": true,
	"spec.kubelet.version.": true, "spec.kubelet.modern.version.": true, "spec.legacy.version.": true,
	"spec.modern.version.": true,
}

// ofRunning are fields of a side that runs already, which this one does not: arguments, and objects and volumes that
// only its pods mount.
var ofRunning = regexp.MustCompile(`\.changeArgs\.|^spec\.hosts\.legacy\.|\.(secret|configMap|volume)$`)

const harmless = "zq7x"

func meansItsValue(t *testing.T, f *specText) {
	taken := hostile
	if _, err := f.with(strings.Join(hostile, harmless)); err != nil {
		taken = nil
		for _, value := range hostile {
			_, err := f.with(value)
			if err == nil {
				taken = append(taken, value)
			} else if !regexp.MustCompile(`^every-field\.yaml:\d+: `).MatchString(err.Error()) {
				t.Errorf("%q is refused without a line: %v", value, err)
			}
		}
	}
	if len(taken) == 0 {
		return
	}
	for _, target := range Targets {
		want, err := f.decoded(t, "", Target(target))
		if err != nil {
			t.Errorf("%s: a harmless value is refused: %v", target, err)
			continue
		}
		try := func(value string) error {
			got, err := f.decoded(t, value, Target(target))
			if err == nil {
				err = difference(value, want, got)
			}
			return err
		}
		// All in one first: each by itself only where that fails, to say which.
		if try(strings.Join(taken, harmless)) == nil {
			continue
		}
		for _, value := range taken {
			if err := try(value); err != nil && !unsayable(f.at, Target(target), err) {
				t.Errorf("%s: %q: %v", target, value, err)
			}
		}
	}
}

// unsayable are refusals that come with a target, after the spec: they name the component and the value.
func unsayable(at string, target Target, err error) bool {
	return target == Systemd && strings.HasSuffix(at, ".name") && strings.Contains(at, ".extraEnv[") &&
		strings.Contains(err.Error(), " on cp-1: variable ")
}

// difference says where the texts that parsers found differ by more than the value.
func difference(value string, want, got map[string][]string) error {
	replaced := strings.NewReplacer(harmless+harmless, harmless+value+harmless)
	for file, texts := range want {
		var expected []string
		for _, text := range texts {
			text = replaced.Replace(text)
			if key, ok := strings.CutPrefix(text, keyMark); ok {
				text = keyMark + secretKey(key)
			}
			expected = append(expected, text)
		}
		found := slices.Clone(got[replaced.Replace(file)])
		if found == nil {
			return fmt.Errorf("no file %s", replaced.Replace(file))
		}
		slices.Sort(expected)
		slices.Sort(found)
		for i := range max(len(expected), len(found)) {
			switch {
			case i >= len(expected):
				return fmt.Errorf("%s: also %q", file, found[i])
			case i >= len(found):
				return fmt.Errorf("%s: lacks %q", file, expected[i])
			case expected[i] != found[i]:
				return fmt.Errorf("%s: %q, want %q", file, found[i], expected[i])
			}
		}
	}
	return nil
}

// keyMark begins the keys of files in Secrets, which are not free to be anything.
const keyMark = "key of a Secret: "

// decoded renders a spec with the value and reads every file as its reader does: the texts of each.
func (f *specText) decoded(t *testing.T, value string, target Target) (map[string][]string, error) {
	file, err := f.with(value)
	if err != nil {
		return nil, err
	}
	p, err := plan.New(file, target.Plan())
	if err != nil {
		return nil, err
	}
	files, err := Files(p, Options{Target: target, Spec: "every-field.yaml"})
	if err != nil {
		return nil, err
	}
	if target == StaticPod { // what they hold is the tree: TestUserDataBringsTheTreeOfEachHost
		data, err := UserData(p, files, nil)
		if err != nil {
			return nil, err
		}
		files = append(files, data...)
	}
	texts := map[string][]string{}
	for _, file := range files {
		list, err := textsOf(t, file.Path, file.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", file.Path, err, file.Data)
		}
		texts[file.Path] = list
	}
	return texts, nil
}

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// textsOf are the texts that the reader of a file gets.
func textsOf(t *testing.T, name string, data []byte) ([]string, error) {
	if strings.HasPrefix(name, CloudInit+"/") {
		return userDataTexts(data)
	}
	switch path.Ext(name) {
	case ".service":
		var list []string
		for setting, values := range settings(t, data) {
			for _, value := range values {
				words, err := argv(strings.TrimPrefix(value, "+"), nil)
				if err != nil {
					return nil, fmt.Errorf("%s=%s: %w", setting, value, err)
				}
				for _, word := range words {
					list = append(list, setting+"="+word)
				}
			}
		}
		return list, nil
	case ".env":
		var list []string
		for name, value := range environ(t, data) {
			list = append(list, name+"="+value)
		}
		return list, nil
	case ".md":
		return commandWordsOf(data)
	case ".json", ".jsonl":
		return jsonTexts(data)
	default:
		return yamlTexts(t, data)
	}
}

// userDataTexts are what cloud-init gets: the paths of the files, and the words of its commands.
func userDataTexts(data []byte) ([]string, error) {
	var config cloudConfig
	if err := sigsyaml.UnmarshalStrict(data, &config); err != nil {
		return nil, err
	}
	var list []string
	for _, f := range config.Files {
		list = append(list, f.Path, f.Owner, f.Permissions, f.Encoding)
	}
	for _, command := range slices.Concat(config.Boot, config.Run) {
		if len(command) == 3 && command[0] == "sh" {
			words, err := shellTexts(command[2])
			if err != nil {
				return nil, err
			}
			command = words
		}
		list = append(list, command...)
	}
	return list, nil
}

// jsonTexts are the strings of JSON documents; lines that begin with # are a policy's comments.
func jsonTexts(data []byte) ([]string, error) {
	var lines []byte
	for line := range bytes.Lines(data) {
		if !bytes.HasPrefix(line, []byte("#")) {
			lines = append(lines, line...)
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(lines))
	var list []string
	for {
		var value any
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		var walk func(any)
		walk = func(value any) {
			switch v := value.(type) {
			case string:
				list = append(list, v)
			case []any:
				for _, e := range v {
					walk(e)
				}
			case map[string]any:
				for k, e := range v {
					list = append(list, k)
					walk(e)
				}
			}
		}
		walk(value)
	}
}

// yamlTexts are the scalars of YAML documents, with the arguments of containers as a kubelet expands them, and the
// texts of files that a ConfigMap holds.
func yamlTexts(t *testing.T, data []byte) ([]string, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var list []string
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		var walk func(node *yaml.Node, expand, volume bool) error
		walk = func(node *yaml.Node, expand, volume bool) error {
			switch node.Kind {
			case yaml.ScalarNode:
				switch {
				case digest.MatchString(node.Value):
				case expand:
					list = append(list, expanded(node.Value, nil))
				default:
					list = append(list, node.Tag+node.Value)
				}
				return nil
			case yaml.MappingNode:
				for i := 0; i < len(node.Content); i += 2 {
					key, value := node.Content[i], node.Content[i+1]
					list = append(list, key.Value)
					switch {
					case key.Value == "volumes" || key.Value == "volumeMounts":
						if err := namesOnce(value); err != nil {
							return err
						}
					case value.Kind == yaml.ScalarNode && (key.Value == "key" || key.Value == "subPath"):
						list = append(list, keyMark+value.Value)
						continue
					case value.Kind == yaml.ScalarNode && key.Value == "name" && volume:
						continue // made from the path; namesOnce has looked at it
					}
					if ext := path.Ext(key.Value); value.Kind == yaml.ScalarNode &&
						(key.Value == "kubeconfig" || ext == ".jsonl" || ext == ".json" || ext == ".conf" ||
							ext == ".yaml") {
						inner, err := textsOf(t, key.Value, []byte(value.Value))
						if err != nil {
							return err
						}
						list = append(list, inner...)
						continue
					}
					inside := key.Value == "command" || key.Value == "args" || key.Value == "env" ||
						expand && key.Value == "value"
					volumes := key.Value == "volumes" || key.Value == "volumeMounts"
					if err := walk(value, inside, volumes); err != nil {
						return err
					}
				}
				return nil
			}
			for _, child := range node.Content {
				if err := walk(child, expand, volume); err != nil {
					return err
				}
			}
			return nil
		}
		if err := walk(&document, false, false); err != nil {
			return nil, err
		}
	}
}

// namesOnce holds a list of volumes to names that are labels, and that are there once; a volume may be mounted twice.
func namesOnce(volumes *yaml.Node) error {
	seen := map[string]bool{}
	for _, volume := range volumes.Content {
		name, mounted := "", false
		for i := 0; i < len(volume.Content); i += 2 {
			switch volume.Content[i].Value {
			case "name":
				name = volume.Content[i+1].Value
			case "mountPath":
				mounted = true
			}
		}
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("volume %q: not a label", name)
		}
		if seen[name] && !mounted {
			return fmt.Errorf("volume %s stands twice", name)
		}
		seen[name] = true
	}
	return nil
}

// commandWordsOf are the words of the commands of a runbook as a POSIX shell reads them. The script of ssh HOST SCRIPT
// is read as well.
func commandWordsOf(data []byte) ([]string, error) {
	var script strings.Builder
	inside := false
	for line := range strings.Lines(string(data)) {
		switch strings.TrimSpace(line) {
		case "```sh":
			inside = true
			continue
		case "```":
			inside = false
		}
		if inside {
			script.WriteString(line)
		}
	}
	return shellTexts(script.String())
}

func shellTexts(script string) ([]string, error) {
	parsed, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("%w in\n%s", err, script)
	}
	var list []string
	var inner error
	syntax.Walk(parsed, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok {
			return true
		}
		for i, word := range call.Args {
			text := wordText(word.Parts)
			if i > 0 && i == len(call.Args)-1 && wordText(call.Args[0].Parts) == "ssh" {
				texts, err := shellTexts(text)
				list, inner = append(list, texts...), errors.Join(inner, err)
				continue
			}
			if file, ok := strings.CutPrefix(text, "--from-file="); ok {
				key, value, _ := strings.Cut(file, "=")
				list = append(list, keyMark+key, value)
				continue
			}
			list = append(list, text)
		}
		return true
	})
	return list, inner
}

// wordText is a word with its quotes taken away; what the shell computes stays as it is written.
func wordText(parts []syntax.WordPart) string {
	var out strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			for i := 0; i < len(p.Value); i++ {
				if p.Value[i] == '\\' && i+1 < len(p.Value) {
					i++
				}
				out.WriteByte(p.Value[i])
			}
		case *syntax.SglQuoted:
			out.WriteString(p.Value)
		case *syntax.DblQuoted:
			out.WriteString(wordText(p.Parts))
		default:
			_ = syntax.NewPrinter().Print(&out, p)
		}
	}
	return out.String()
}
