package restart

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/quantity"
	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// objectBytes bounds one object, and one document of YAML; decodedBytes what an object takes decoded. What an API
// server stores is much smaller.
const (
	objectBytes  = 64 << 20
	decodedBytes = 128 << 20
)

// Object is one object of a stream. At most one of Pod, Container and Budget is set; neither is for kinds without
// containers.
type Object struct {
	APIVersion string
	Kind       string // "" for a bare container
	Namespace  string
	Name       string
	Pod        *v1.Pod                       // also of a workload: a pod made of its template
	IsTemplate bool                          // Pod comes from the template of a workload
	Container  *v1.Container                 // an object without kind that has the fields of a container
	Budget     *policyv1.PodDisruptionBudget // of policy/v1 or v1beta1
}

// String names the object: Pod shop/web-0.
func (o Object) String() string {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	if o.Kind == "" {
		return "container " + name
	}
	return o.Kind + " " + name
}

// Objects reads objects one by one: a pod, a list of pods or of anything, a workload with a pod template, a
// PodDisruptionBudget, a bare container. It holds one item at a time, however long a list is. Shape: JSON, several
// values one after the other or one per line, or an array; else YAML, its documents separated by "---". Units: one
// object, or one document of YAML, may have 64 MiB. Errors: name the number of the object, from 1, and its name if that
// was read; the first error ends the sequence. Source: decoding is that of the API server: names of fields are
// case-sensitive, unknown fields are dropped.
func Objects(r io.Reader) iter.Seq2[Object, error] {
	return objects(r, objectBytes)
}

func objects(r io.Reader, limitBytes int) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		limited := &limitedReader{r: r, limit: limitBytes, left: limitBytes}
		s := &stream{limited: limited, yield: yield}
		buffered := bufio.NewReader(limited)
		first, err := firstByte(buffered)
		switch {
		case errors.Is(err, io.EOF):
			err = nil
		case err != nil:
		case first == '{' || first == '[':
			err = s.values(buffered)
		default:
			err = s.documents(buffered)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Object{}, err)
		}
	}
}

// errStopped ends reading because the caller wants no more.
var errStopped = errors.New("stopped")

// firstByte is the first byte that is not white space, which stays unread.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(b)) {
			return b, r.UnreadByte()
		}
	}
}

// limitedReader fails when one object takes too much.
type limitedReader struct {
	r     io.Reader
	limit int
	left  int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("larger than %d MiB; a long list is read item by item if it is JSON", l.limit>>20)
	}
	if len(p) > l.left {
		p = p[:l.left]
	}
	n, err := l.r.Read(p)
	l.left -= n
	return n, err
}

// stream counts the objects that it yields.
type stream struct {
	limited *limitedReader
	yield   func(Object, error) bool
	read    int
}

// values reads JSON values until the end.
func (s *stream) values(r io.Reader) error {
	decoder := json.NewDecoder(r)
	for {
		err := s.value(decoder)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// value reads one JSON value: an object, a list, whose items are objects, or an array of objects.
func (s *stream) value(decoder *json.Decoder) error {
	token, err := decoder.Token()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return s.wrap(err)
	}
	switch token {
	case json.Delim('['):
		return s.items(decoder, typeMeta{})
	case json.Delim('{'):
		return s.object(decoder)
	default:
		return s.wrap(fmt.Errorf("%v: want an object", token))
	}
}

type typeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// object reads what follows an opening brace. Only when it comes across items does it know that this is a list.
func (s *stream) object(decoder *json.Decoder) error {
	var meta typeMeta
	whole := []byte{'{'}
	isList := false
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return s.wrap(noEOF(err))
		}
		if key == "items" {
			open, err := decoder.Token()
			if err != nil {
				return s.wrap(noEOF(err))
			}
			if isList = open == json.Delim('[') || open == nil; !isList {
				return s.wrap(fmt.Errorf("items: %v: want an array", open))
			}
			if open == nil {
				continue
			}
			if err := s.items(decoder, meta); err != nil {
				return err
			}
			continue
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return s.wrap(noEOF(err))
		}
		switch key {
		case "apiVersion":
			_ = json.Unmarshal(value, &meta.APIVersion) // decode judges it, if this is no list
		case "kind":
			_ = json.Unmarshal(value, &meta.Kind)
		}
		if isList {
			continue
		}
		if len(whole) > 1 {
			whole = append(whole, ',')
		}
		name, err := json.Marshal(key)
		if err != nil {
			return s.wrap(err)
		}
		whole = append(append(append(whole, name...), ':'), value...)
	}
	if _, err := decoder.Token(); err != nil { // the closing brace
		return s.wrap(noEOF(err))
	}
	if isList {
		return nil
	}
	return s.decode(append(whole, '}'), typeMeta{})
}

// items reads what follows an opening bracket. Items of a PodList need not say that they are pods.
func (s *stream) items(decoder *json.Decoder, list typeMeta) error {
	list.Kind = strings.TrimSuffix(list.Kind, "List")
	for decoder.More() {
		var item json.RawMessage
		if err := decoder.Decode(&item); err != nil {
			return s.wrap(noEOF(err))
		}
		if err := s.decode(item, list); err != nil {
			return err
		}
	}
	_, err := decoder.Token() // the closing bracket
	if err != nil {
		return s.wrap(noEOF(err))
	}
	return nil
}

// noEOF makes of an end of input, in the middle of a value, an error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// documents reads YAML. A document is converted as a whole, since YAML cannot be read item by item.
func (s *stream) documents(r *bufio.Reader) error {
	reader := utilyaml.NewYAMLReader(r)
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return s.wrap(err)
		}
		s.limited.left = s.limited.limit
		if err := yamltext.BoundAliases(document); err != nil {
			return s.wrap(err)
		}
		converted, err := yaml.YAMLToJSON(document)
		if err != nil {
			return s.wrap(err)
		}
		if string(converted) == "null" {
			continue // nothing but comments
		}
		if err := s.value(json.NewDecoder(bytes.NewReader(converted))); err != nil {
			return err
		}
	}
}

func (s *stream) wrap(err error) error {
	return fmt.Errorf("object %d: %w", s.read+1, err)
}

// decode reads one object and hands it on.
func (s *stream) decode(data []byte, list typeMeta) error {
	s.limited.left = s.limited.limit
	o, err := decodeObject(data, list)
	if err != nil {
		if o.Name != "" {
			err = fmt.Errorf("%s: %w", o, err)
		}
		return s.wrap(err)
	}
	s.read++
	if !s.yield(o, nil) {
		return errStopped
	}
	return nil
}

func decodeObject(data []byte, list typeMeta) (Object, error) {
	meta, err := kindOf(data)
	if err != nil {
		return Object{}, err
	}
	if meta.Kind == "" {
		meta = list
	}
	o := Object{APIVersion: meta.APIVersion, Kind: meta.Kind}
	switch o.Kind {
	case "Pod":
		err = o.decodePod(data)
	case "PodDisruptionBudget":
		o.Budget = new(policyv1.PodDisruptionBudget)
		err = unmarshal(data, o.Budget)
		o.Namespace, o.Name = o.Budget.Namespace, o.Budget.Name
	case "":
		err = o.decodeKindless(data)
	default:
		err = o.decodeTemplate(data)
	}
	return o, err
}

// kindOf finds the kind without reading more of the object than needed, for most write it first.
func kindOf(data []byte) (meta typeMeta, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return meta, fmt.Errorf("%.20s: want an object", data)
	}
	for decoder.More() && (meta.Kind == "" || meta.APIVersion == "") {
		key, err := decoder.Token()
		if err != nil {
			return meta, err
		}
		var value any = new(json.RawMessage)
		switch key {
		case "apiVersion":
			value = &meta.APIVersion
		case "kind":
			value = &meta.Kind
		}
		if err := decoder.Decode(value); err != nil {
			return meta, fmt.Errorf("%v: %w", key, err)
		}
	}
	return meta, nil
}

// unmarshal decodes an object. Errors: its values would take too much memory, whatever its text takes.
func unmarshal(data []byte, into any) error {
	if !jsontext.Fits(data, decodedBytes) {
		return fmt.Errorf("so many values that they take more than %d MiB decoded", decodedBytes>>20)
	}
	if err := quantity.InJSON(data, reflect.TypeOf(into)); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(data, into)
}

func (o *Object) decodePod(data []byte) error {
	o.Pod = new(v1.Pod)
	err := unmarshal(data, o.Pod)
	o.Namespace, o.Name = o.Pod.Namespace, o.Pod.Name
	return err
}

// decodeKindless reads an object that does not say what it is: a pod has a spec, a container a name or an image.
func (o *Object) decodeKindless(data []byte) error {
	var fields struct {
		Spec  json.RawMessage `json:"spec"`
		Name  json.RawMessage `json:"name"`
		Image json.RawMessage `json:"image"`
	}
	if err := unmarshal(data, &fields); err != nil {
		return err
	}
	switch {
	case fields.Spec != nil:
		o.Kind = "Pod"
		return o.decodePod(data)
	case fields.Name != nil || fields.Image != nil:
		o.Container = new(v1.Container)
		err := unmarshal(data, o.Container)
		o.Name = o.Container.Name
		return err
	default:
		return errors.New("it has no kind: want a pod, a list of pods, a workload with a pod template, or a container")
	}
}

// hasTemplate are the kinds whose pod template must decode. Others that have one in the same place, such as those of
// custom resources, are taken too; but what stands there in other kinds is not ours to judge.
var hasTemplate = map[string]bool{
	"Deployment": true, "ReplicaSet": true, "ReplicationController": true, "DaemonSet": true, "StatefulSet": true,
	"Job":     true,
	"CronJob": true, "PodTemplate": true,
}

func (o *Object) decodeTemplate(data []byte) error {
	var named struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := unmarshal(data, &named); err != nil {
		return err
	}
	o.Namespace, o.Name = named.Metadata.Namespace, named.Metadata.Name
	var workload struct {
		Template v1.PodTemplateSpec `json:"template"`
		Spec     struct {
			Template    v1.PodTemplateSpec `json:"template"`
			JobTemplate struct {
				Spec struct {
					Template v1.PodTemplateSpec `json:"template"`
				} `json:"spec"`
			} `json:"jobTemplate"`
		} `json:"spec"`
	}
	if err := unmarshal(data, &workload); err != nil {
		if hasTemplate[o.Kind] {
			return err
		}
		return nil
	}
	for _, template := range []v1.PodTemplateSpec{workload.Template, workload.Spec.Template,
		workload.Spec.JobTemplate.Spec.Template} {
		if len(template.Spec.Containers) > 0 {
			o.IsTemplate = true
			o.Pod = &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		}
	}
	return nil
}

// ContainerKind says what a container is to its pod.
type ContainerKind string

const (
	AppContainer       ContainerKind = "app"
	InitContainer      ContainerKind = "init"
	SidecarContainer   ContainerKind = "sidecar" // an init container that is restarted, and runs beside the others
	EphemeralContainer ContainerKind = "ephemeral"
)

// Containers are the containers of a pod: those of the application first, then init containers and ephemeral ones.
func Containers(spec *v1.PodSpec) iter.Seq2[ContainerKind, *v1.Container] {
	return func(yield func(ContainerKind, *v1.Container) bool) {
		for i := range spec.Containers {
			if !yield(AppContainer, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.InitContainers {
			kind := InitContainer
			if policy := spec.InitContainers[i].RestartPolicy; policy != nil &&
				*policy == v1.ContainerRestartPolicyAlways {
				kind = SidecarContainer
			}
			if !yield(kind, &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			// The kubelet hashes an ephemeral container as the container that it has in common with the others.
			if !yield(EphemeralContainer, (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}
