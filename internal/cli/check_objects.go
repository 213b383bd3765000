package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

// objectsLimitBytes bounds the manifests that are read: far more than a namespace holds.
const objectsLimitBytes = 256 << 20

func runCheckObjects(req checkRequest, streams Streams) error {
	older, err := olderOf(req, streams)
	if err != nil {
		return err
	}
	data, err := readInput(streams, req.objects, objectsLimitBytes)
	if err != nil {
		return err
	}
	report := finding.Report{Findings: []finding.Finding{}}
	var problems []error
	objects, err := decodeObjects(data)
	if err != nil {
		return badInput(fmt.Errorf("%s: %w", req.objects, err), "")
	}
	if len(objects) == 0 {
		return usagef("%s: holds no manifest", req.objects)
	}
	for i, object := range objects {
		found, err := older.Losses(object)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: document %d: %w", req.objects, i+1, err))
		}
		report.Findings = append(report.Findings, found...)
	}
	if len(problems) > 0 {
		return badInput(errors.Join(problems...), "no object is reported while one of them cannot be checked")
	}
	finding.Sort(report.Findings)
	if err := printReport(streams.Out, req, report); err != nil {
		return err
	}
	return attention(report.Findings, req.failOn)
}

// olderOf is the version that would rewrite the objects: the legacy side of the spec, or the one that was given.
func olderOf(req checkRequest, streams Streams) (rules.Older, error) {
	if req.file == "" {
		version, err := parseVersionFlag("legacy", req.legacy)
		return rules.Older{Minor: version.Minor}, err
	}
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return rules.Older{}, err
	}
	return rules.LegacyOf(p.Runtime()), nil
}

// decodeObjects reads the documents of a YAML or JSON stream; empty ones are skipped.
func decodeObjects(data []byte) ([]map[string]any, error) {
	var objects []map[string]any
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		var object map[string]any
		err = yamltext.BoundAliases(document)
		if err == nil {
			err = yaml.Unmarshal(document, &object)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if len(object) > 0 {
			objects = append(objects, object)
		}
	}
}
