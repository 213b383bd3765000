package manifest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Release is what Helm recorded of an installation.
type Release struct {
	Name      string
	Namespace string
	Revision  int
	Status    string // deployed, superseded, ...; in capitals from Helm 2
	Manifest  []byte // what was applied: YAML documents
}

// releaseLimitBytes bounds what a record unpacks to. A Secret has at most 1 MiB, to which Helm packs some ten times as
// much; more is made to take time.
const releaseLimitBytes = 16 << 20

// HelmRelease reads the record of a release: a Secret or a ConfigMap of Helm 3, or one of Helm 2. It reports false for
// any other object. Errors: a record that cannot be unpacked, with the reason.
func HelmRelease(object map[string]any) (Release, bool, error) {
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	data, _ := object["data"].(map[string]any)
	record, _ := data["release"].(string)
	kind, _ := object["kind"].(string)
	helm3, helm2 := labels["owner"] == "helm", labels["OWNER"] == "TILLER"
	if kind != "Secret" && kind != "ConfigMap" || record == "" || !helm3 && !helm2 {
		return Release{}, false, nil
	}
	packed := []byte(record)
	if kind == "Secret" {
		var err error
		if packed, err = base64.StdEncoding.DecodeString(record); err != nil {
			return Release{}, true, fmt.Errorf("data.release: %w", err)
		}
	}
	text, err := unpack(packed)
	if err != nil {
		return Release{}, true, fmt.Errorf("data.release: %w", err)
	}
	var release Release
	if helm3 {
		release, err = helm3Release(text)
	} else {
		release, err = helm2Release(text)
		release.Status, _ = labels["STATUS"].(string)
	}
	if err != nil {
		return Release{}, true, fmt.Errorf("data.release: %w", err)
	}
	return release, true, nil
}

// Deployed reports whether this is what runs, and not the history of it.
func (r Release) Deployed() bool { return strings.EqualFold(r.Status, "deployed") }

// unpack undoes base64 and, of records that are not very old, gzip.
func unpack(packed []byte) ([]byte, error) {
	text, err := base64.StdEncoding.DecodeString(string(packed))
	if err != nil || !bytes.HasPrefix(text, []byte{0x1f, 0x8b, 8}) {
		return text, err
	}
	reader, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	text, err = io.ReadAll(io.LimitReader(reader, releaseLimitBytes+1))
	if err == nil && len(text) > releaseLimitBytes {
		err = fmt.Errorf("unpacks to more than %d MiB", releaseLimitBytes>>20)
	}
	return text, err
}

func helm3Release(text []byte) (Release, error) {
	var record struct {
		Name      string                      `json:"name"`
		Namespace string                      `json:"namespace"`
		Version   int                         `json:"version"`
		Info      struct{ Status string }     `json:"info"`
		Manifest  string                      `json:"manifest"`
		Hooks     []struct{ Manifest string } `json:"hooks"`
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return Release{}, err
	}
	manifests := []byte(record.Manifest) // which a million hooks are not copied for
	for _, hook := range record.Hooks {
		manifests = append(append(manifests, documentBreak...), hook.Manifest...)
	}
	return Release{Name: record.Name, Namespace: record.Namespace, Revision: record.Version, Status: record.Info.Status,
		Manifest: manifests}, nil
}

const documentBreak = "\n---\n"

// The fields of Helm 2's release message and of its hooks.
const (
	helm2Name, helm2Manifest, helm2Hooks, helm2Version, helm2Namespace = 1, 5, 6, 7, 8
	helm2HookManifest                                                  = 4
)

func helm2Release(message []byte) (Release, error) {
	var release Release
	var hooks []byte
	err := fields(message, func(number protowire.Number, text []byte, value uint64) error {
		switch number {
		case helm2Name:
			release.Name = string(text)
		case helm2Namespace:
			release.Namespace = string(text)
		case helm2Version:
			release.Revision = int(int32(value))
		case helm2Manifest:
			release.Manifest = text // of two the last one counts, as in every message
		case helm2Hooks:
			return fields(text, func(number protowire.Number, text []byte, _ uint64) error {
				if number == helm2HookManifest {
					hooks = append(append(hooks, documentBreak...), text...)
				}
				return nil
			})
		}
		return nil
	})
	release.Manifest = append(release.Manifest, hooks...)
	return release, err
}

// fields calls visit for each field of a message: with its bytes or with its number.
func fields(message []byte, visit func(number protowire.Number, text []byte, value uint64) error) error {
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var text []byte
		var value uint64
		switch wire {
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, wire, message)
		}
		if n < 0 {
			return errors.New("the record ends within a field")
		}
		if err := visit(number, bytes.Clone(text), value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
