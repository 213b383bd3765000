package rawapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReadList reads a list as it arrives and hands over each of its items; one is held at a time. The item is the callee's to keep.
// Errors: that of item, which ends the list, wrapped. A list that does not end is an error, not a shorter list.
func ReadList(body io.Reader, item func([]byte) error) (metav1.ListMeta, error) {
	l := list{decoder: json.NewDecoder(body), item: item}
	err := l.read()
	if errors.Is(err, io.EOF) && l.ended == nil {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return l.meta, fmt.Errorf("reading the list: %w", err)
	}
	return l.meta, nil
}

type list struct {
	decoder *json.Decoder
	item    func([]byte) error
	meta    metav1.ListMeta
	ended   error // what item said
}

func (l *list) read() error {
	if err := l.expect('{'); err != nil {
		return err
	}
	for l.decoder.More() {
		name, err := l.decoder.Token()
		if err != nil {
			return err
		}
		switch name {
		case "metadata":
			err = l.decoder.Decode(&l.meta)
		case "items":
			err = l.items()
		default:
			var skipped json.RawMessage
			err = l.decoder.Decode(&skipped)
		}
		if err != nil {
			return err
		}
	}
	return l.expect('}')
}

func (l *list) items() error {
	token, err := l.decoder.Token()
	if err != nil || token == nil { // null is an empty list
		return err
	}
	if token != json.Delim('[') {
		return fmt.Errorf("items are %v, want a list", token)
	}
	for l.decoder.More() {
		var raw json.RawMessage
		if err := l.decoder.Decode(&raw); err != nil {
			return err
		}
		if l.ended = l.item(raw); l.ended != nil {
			return l.ended
		}
	}
	return l.expect(']')
}

func (l *list) expect(want json.Delim) error {
	token, err := l.decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v, want %v", token, want)
	}
	return err
}
