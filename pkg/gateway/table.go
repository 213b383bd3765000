package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/kubefusion/fusionctl/internal/jsontext"
)

// tableForm begins the parameters of a form that is a Table.
const tableForm = "as=Table"

// tableVersion is the version of a form that is a Table.
func tableVersion(form string) schema.GroupVersion {
	if strings.Contains(form, ";v="+metav1beta1.SchemeGroupVersion.Version+";") {
		return metav1beta1.SchemeGroupVersion
	}
	return metav1.SchemeGroupVersion
}

// columns make the rows of built-in kinds, as the API server of Kubernetes 1.36 does.
var columns = sync.OnceValue(func() *printers.HumanReadableGenerator {
	return printers.NewTableGenerator().With(printersinternal.AddHandlers)
})

// tableCopies is how many times the values of an object are held while a Table is made of it: its values, the internal
// ones, and the rows.
const tableCopies = 3

// tabled makes a Table of an object or a list, of a side that makes none itself: which of them the request says, since
// custom resources have kinds and fields that are called as those of lists. What it takes is held in the memory of the
// request.
func (b *both) tabled(body []byte, list bool, form string) ([]byte, error) {
	if err := b.memory.Grow(b.r.Context(), tableCopies*jsontext.DecodedBytes(body)); err != nil {
		return nil, unread(err)
	}
	leave, err := b.own.workers.take(b.r.Context(), 0)
	if err != nil {
		return nil, err
	}
	defer leave()
	return b.tableOf(body, list, form)
}

// tableOf is tabled for what is held already, as an event of a watch is.
func (b *both) tableOf(body []byte, list bool, form string) ([]byte, error) {
	var whole map[string]any
	if err := utiljson.Unmarshal(body, &whole); err != nil {
		return nil, err
	}
	of := &unstructured.Unstructured{Object: whole}
	gvk := of.GroupVersionKind()
	objects := []any{whole}
	table := metav1.Table{Rows: []metav1.TableRow{}}
	table.SetGroupVersionKind(tableVersion(form).WithKind("Table"))
	table.ResourceVersion = of.GetResourceVersion()
	if list {
		items, ok := whole["items"].([]any)
		if !ok && whole["items"] != nil {
			return nil, errors.New("items: want a list")
		}
		objects, gvk.Kind = items, strings.TrimSuffix(gvk.Kind, "List")
		table.Continue = of.GetContinue()
		table.RemainingItemCount = of.GetRemainingItemCount()
	}
	none, err := b.rowOf(gvk, &unstructured.Unstructured{Object: map[string]any{}})
	if err != nil {
		return nil, err
	}
	table.ColumnDefinitions = none.ColumnDefinitions
	for i, value := range objects {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("items[%d]: want an object", i)
		}
		b.addRow(&table, gvk, &unstructured.Unstructured{Object: fields})
	}
	return json.Marshal(table)
}

// addRow adds the row of an object. One that Kubernetes 1.36 cannot read has its name alone.
func (b *both) addRow(table *metav1.Table, gvk schema.GroupVersionKind, object *unstructured.Unstructured) {
	made, err := b.rowOf(gvk, object)
	if err != nil {
		cells := []any{object.GetName()}
		for range len(table.ColumnDefinitions) - 1 {
			cells = append(cells, "<unknown>")
		}
		made = &metav1.Table{Rows: []metav1.TableRow{{Cells: cells}}}
	}
	for _, row := range made.Rows {
		row.Object = runtime.RawExtension{}
		switch b.query.Get("includeObject") {
		case string(metav1.IncludeNone):
		case string(metav1.IncludeObject):
			row.Object.Object = object
		default:
			row.Object.Object = &unstructured.Unstructured{Object: map[string]any{"kind": metadataForm,
				"apiVersion": table.APIVersion, "metadata": object.Object["metadata"]}}
		}
		table.Rows = append(table.Rows, row)
	}
}

// rowOf is a Table of one object: that of an API server for a built-in kind, its name and age for others.
func (b *both) rowOf(gvk schema.GroupVersionKind, object *unstructured.Unstructured) (*metav1.Table, error) {
	object.SetGroupVersionKind(gvk) // servers leave it out of the items of lists
	if made, err := b.printed(object); made != nil || err != nil {
		return made, err
	}
	age := "<unknown>"
	if created := object.GetCreationTimestamp(); !created.IsZero() {
		age = duration.HumanDuration(time.Since(created.Time))
	}
	return &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the object"},
		{Name: "Age", Type: "string", Description: "Age of the object"}},
		Rows: []metav1.TableRow{{Cells: []any{object.GetName(), age}}}}, nil
}

// printed is the Table of an object of a built-in kind; nil for others. Kubernetes' printers count on what API servers
// validated.
func (b *both) printed(object *unstructured.Unstructured) (made *metav1.Table, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			made, err = nil, fmt.Errorf("printing did not finish: %v", problem)
		}
	}()
	internal, native, err := b.messages.Internal(object)
	if err != nil || !native {
		return nil, err
	}
	if made, err := columns().GenerateTable(internal, printers.GenerateOptions{Wide: true}); err == nil {
		return made, nil
	}
	return nil, nil // of no printer
}
