package objects

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	flowv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	claimsv1beta1 "k8s.io/api/resource/v1beta1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/quantity"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

//go:embed gone.tsv
var goneText string

// layouts are the types of gone.tsv.
type layouts struct {
	kinds  map[string]string // "policy/v1beta1 PodSecurityPolicy": its type
	fields map[string]map[protowire.Number]layoutField
}

// layoutField is a field of a type that is gone.
type layoutField struct {
	name     string // "" is inlined, the entries of a map too
	typ      string // without the marks
	list     bool
	mapped   bool
	dropZero bool
}

var goneLayouts = sync.OnceValue(func() *layouts {
	l := &layouts{kinds: map[string]string{}, fields: map[string]map[protowire.Number]layoutField{}}
	for line := range strings.Lines(goneText) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 4 {
			panic("objects: internal error: gone.tsv: " + line)
		}
		if columns[1] == "" {
			l.kinds[columns[0]] = columns[3]
			continue
		}
		number, err := strconv.Atoi(columns[1])
		if err != nil {
			panic("objects: internal error: gone.tsv: " + line)
		}
		f := layoutField{name: columns[2]}
		f.typ, f.dropZero = strings.CutSuffix(columns[3], "?")
		f.typ, f.list = strings.CutPrefix(f.typ, "[]")
		f.typ, f.mapped = strings.CutPrefix(f.typ, "map ")
		if l.fields[columns[0]] == nil {
			l.fields[columns[0]] = map[protowire.Number]layoutField{}
		}
		l.fields[columns[0]][protowire.Number(number)] = f
	}
	return l
})

// goTypes are the types of gone.tsv that the newest version has.
var goTypes = map[string]reflect.Type{
	"=admissionregistration/v1.Rule":                   reflect.TypeFor[admissionregistrationv1.Rule](),
	"=admissionregistration/v1.RuleWithOperations":     reflect.TypeFor[admissionregistrationv1.RuleWithOperations](),
	"=admissionregistration/v1.ServiceReference":       reflect.TypeFor[admissionregistrationv1.ServiceReference](),
	"=autoscaling/v2.CrossVersionObjectReference":      reflect.TypeFor[autoscalingv2.CrossVersionObjectReference](),
	"=autoscaling/v2.HorizontalPodAutoscaler":          reflect.TypeFor[autoscalingv2.HorizontalPodAutoscaler](),
	"=autoscaling/v2.HorizontalPodAutoscalerCondition": scalerCondition,
	"=batch/v1beta1.CronJob":                           reflect.TypeFor[batchv1beta1.CronJob](),
	"=certificates/v1beta1.PodCertificateRequest":      reflect.TypeFor[certificatesv1beta1.PodCertificateRequest](),
	"=core/v1.EnvFromSource":                           reflect.TypeFor[corev1.EnvFromSource](),
	"=core/v1.EnvVar":                                  reflect.TypeFor[corev1.EnvVar](),
	"=core/v1.NodeSelector":                            reflect.TypeFor[corev1.NodeSelector](),
	"=core/v1.ObjectReference":                         reflect.TypeFor[corev1.ObjectReference](),
	"=core/v1.ResourceClaim":                           reflect.TypeFor[corev1.ResourceClaim](),
	"=core/v1.SELinuxOptions":                          reflect.TypeFor[corev1.SELinuxOptions](),
	"=core/v1.TypedLocalObjectReference":               reflect.TypeFor[corev1.TypedLocalObjectReference](),
	"=core/v1.Volume":                                  reflect.TypeFor[corev1.Volume](),
	"=core/v1.VolumeMount":                             reflect.TypeFor[corev1.VolumeMount](),
	"=discovery/v1beta1.EndpointSlice":                 reflect.TypeFor[discoveryv1beta1.EndpointSlice](),
	"=flowcontrol/v1beta1.FlowSchema":                  reflect.TypeFor[flowv1beta1.FlowSchema](),
	"=flowcontrol/v1beta1.PriorityLevelConfiguration":  reflect.TypeFor[flowv1beta1.PriorityLevelConfiguration](),
	"=meta/v1.Condition":                               reflect.TypeFor[metav1.Condition](),
	"=meta/v1.Status":                                  reflect.TypeFor[metav1.Status](),
	"=meta/v1.GroupVersionResource":                    reflect.TypeFor[metav1.GroupVersionResource](),
	"=meta/v1.LabelSelector":                           reflect.TypeFor[metav1.LabelSelector](),
	"=meta/v1.MicroTime":                               reflect.TypeFor[metav1.MicroTime](),
	"=meta/v1.ObjectMeta":                              reflect.TypeFor[metav1.ObjectMeta](),
	"=meta/v1.Time":                                    reflect.TypeFor[metav1.Time](),
	"=networking/v1.IPAddress":                         reflect.TypeFor[networkingv1.IPAddress](),
	"=networking/v1.ServiceCIDR":                       reflect.TypeFor[networkingv1.ServiceCIDR](),
	"=resource.Quantity":                               reflect.TypeFor[resource.Quantity](),
	"=resource/v1alpha3.DeviceSelector":                reflect.TypeFor[resourcev1alpha3.DeviceSelector](),
	"=resource/v1beta1.AllocatedDeviceStatus":          reflect.TypeFor[claimsv1beta1.AllocatedDeviceStatus](),
	"=resource/v1beta1.CounterSet":                     reflect.TypeFor[claimsv1beta1.CounterSet](),
	"=resource/v1beta1.DeviceAllocationResult":         reflect.TypeFor[claimsv1beta1.DeviceAllocationResult](),
	"=resource/v1beta1.DeviceAttribute":                reflect.TypeFor[claimsv1beta1.DeviceAttribute](),
	"=resource/v1beta1.DeviceClaim":                    reflect.TypeFor[claimsv1beta1.DeviceClaim](),
	"=resource/v1beta1.DeviceClassConfiguration":       reflect.TypeFor[claimsv1beta1.DeviceClassConfiguration](),
	"=resource/v1beta1.DeviceCounterConsumption":       reflect.TypeFor[claimsv1beta1.DeviceCounterConsumption](),
	"=resource/v1beta1.DeviceTaint":                    reflect.TypeFor[claimsv1beta1.DeviceTaint](),
	"=resource/v1beta1.ResourceClaimConsumerReference": reflect.TypeFor[claimsv1beta1.ResourceClaimConsumerReference](),
	"=resource/v1beta1.ResourcePool":                   reflect.TypeFor[claimsv1beta1.ResourcePool](),
	"=runtime.RawExtension":                            reflect.TypeFor[runtime.RawExtension](),
	"=scheduling/v1.PriorityClass":                     reflect.TypeFor[schedulingv1.PriorityClass](),
}

var scalerCondition = reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerCondition]()

// removedFrom are the fields that a type of the newest version has lost.
func (l *layouts) removedFrom(t reflect.Type) map[protowire.Number]layoutField {
	_, path, _ := strings.Cut(t.PkgPath(), "k8s.io/")
	path = strings.TrimPrefix(strings.TrimPrefix(path, "api/"), "apimachinery/pkg/apis/")
	return l.fields["="+path+"."+t.Name()]
}

// value decodes a message of a type: one of gone.tsv, or one that the newest version has.
func (l *layouts) value(typ string, message []byte) (any, error) {
	if strings.HasPrefix(typ, "=") {
		return goValue(goTypes[typ], message)
	}
	tree := map[string]any{}
	return tree, l.into(tree, typ, message)
}

// into adds the fields of a message to a tree.
func (l *layouts) into(tree map[string]any, typ string, message []byte) error {
	return eachField(message, func(f storage.ProtoField) error {
		if field, ok := l.fields[typ][f.Number]; ok {
			return l.add(tree, field, f)
		}
		addNameless(tree, f)
		return nil
	})
}

// add adds one field to a tree.
func (l *layouts) add(tree map[string]any, field layoutField, f storage.ProtoField) error {
	switch {
	case field.name == "" && !field.mapped:
		return l.into(tree, field.typ, f.Bytes)
	case field.mapped:
		entries, _ := tree[field.name].(map[string]any)
		if field.name == "" {
			entries = tree
		} else if entries == nil {
			entries = map[string]any{}
			tree[field.name] = entries
		}
		return eachEntry(f.Bytes, func(key string, value storage.ProtoField) (err error) {
			entries[key], err = l.scalar(field, value)
			return err
		})
	}
	value, err := l.scalar(field, f)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", field.name, err)
	case field.list:
		list, _ := tree[field.name].([]any)
		tree[field.name] = append(list, value)
	case !field.dropZero || !isEmpty(value, false):
		tree[field.name] = value
	}
	return nil
}

var errWireType = errors.New("it does not fit its type")

// scalar decodes one value of a field; an element when that is a list.
func (l *layouts) scalar(field layoutField, f storage.ProtoField) (any, error) {
	number := field.typ == "int" || field.typ == "bool"
	if number != (f.Type == protowire.VarintType) {
		return nil, errWireType
	}
	switch field.typ {
	case "int":
		return int64(f.Varint), nil
	case "bool":
		return f.Varint != 0, nil
	}
	if f.Type != protowire.BytesType {
		return nil, errWireType
	}
	switch field.typ {
	case "string":
		if !utf8.Valid(f.Bytes) {
			return nil, errWireType
		}
		return string(f.Bytes), nil
	case "bytes":
		return base64Of(f.Bytes), nil
	}
	return l.value(field.typ, f.Bytes)
}

// goValue decodes a message of a type that the newest version has, into what its JSON would be. What the type does not
// have is added under the numbers of the fields.
func goValue(t reflect.Type, message []byte) (any, error) {
	object := reflect.New(t).Interface()
	message2, ok := object.(interface{ Unmarshal([]byte) error })
	if !ok {
		panic("objects: internal error: " + t.String() + " is no message")
	}
	if err := quantity.InMessage(message, t); err != nil {
		return nil, err
	}
	if err := message2.Unmarshal(message); err != nil {
		return nil, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := utiljson.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	return tree, addUnknown(tree, t, message, false)
}
