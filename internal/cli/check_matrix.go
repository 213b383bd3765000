package cli

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/kubefusion/fusionctl/pkg/rules"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// matrixDocument is the matrix as JSON and YAML show it.
type matrixDocument struct {
	Schema  string        `json:"schema"`
	Layout  spec.Layout   `json:"layout"`
	Pairs   []rules.Pair  `json:"pairs"`
	Summary matrixSummary `json:"summary"`
}

type matrixSummary struct {
	Pairs    int `json:"pairs"`
	Possible int `json:"possible"`
}

func runMatrix(req checkRequest, streams Streams) error {
	layout := spec.Layout(req.layout)
	// hundreds of plans that live for a millisecond: a third of the time went into collecting them
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	pairs, err := rules.Matrix(layout)
	if err != nil {
		return fmt.Errorf("checking the pairs of layout %s: %w", layout, err)
	}
	document := matrixDocument{Schema: "fusionctl/check-matrix/v1", Layout: layout, Pairs: pairs,
		Summary: matrixSummary{Pairs: len(pairs)}}
	for _, pair := range pairs {
		if pair.Possible {
			document.Summary.Possible++
		}
	}
	if printed, err := printDocument(streams.Out, req.output, document); printed {
		return err
	}
	if req.output == "html" {
		return matrixSheet(streams.Out, document)
	}
	_, err = io.WriteString(streams.Out, rules.Grid(layout, pairs))
	return err
}
