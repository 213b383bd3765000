package jsontext

import (
	"encoding/json"
	"reflect"
)

// Distinct are objects of JSON that differ, in the order in which they came. The zero value has none.
type Distinct struct {
	Values []map[string]any
	texts  map[string]int // of Values, once there are many
}

// fewValues is up to where a new value is compared with each: most come again at once.
const fewValues = 16

// Number is the place of a value in Values, to which it is added where it is a new one.
func (d *Distinct) Number(value map[string]any) int {
	if len(d.Values) <= fewValues {
		for i, known := range d.Values {
			if reflect.DeepEqual(known, value) {
				return i
			}
		}
		d.Values = append(d.Values, value)
		return len(d.Values) - 1
	}
	if d.texts == nil {
		d.texts = map[string]int{}
		for i, known := range d.Values {
			d.texts[textOf(known)] = i
		}
	}
	text := textOf(value)
	if i, known := d.texts[text]; known {
		return i
	}
	d.texts[text] = len(d.Values)
	d.Values = append(d.Values, value)
	return len(d.Values) - 1
}

func textOf(value map[string]any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic("jsontext: internal error: " + err.Error()) // what was decoded from JSON
	}
	return string(text)
}
