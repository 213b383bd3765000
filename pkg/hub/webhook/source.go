package webhook

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/hub"
)

// limitFileBytes bounds the files that are read: an API server takes CRDs of at most 3 MiB.
const limitFileBytes = 16 << 20

// Source holds the last good rules of a directory: its files *.yaml, *.yml and *.json, each with rules or with CRDs,
// but for hidden ones. Current is safe for concurrent use, Check and Watch are not.
type Source = webserver.Source[Converters]

// Open loads the rules of a directory. Errors: every problem with its file and line.
func Open(directory string, metrics *Metrics) (*Source, error) {
	return webserver.Open(look(directory), compile, metrics.Metrics)
}

func look(directory string) func() ([]webserver.File, error) {
	return webserver.Directory(directory, ".yaml", ".yml", ".json")
}

func compile(files []webserver.File) (Converters, int, error) {
	texts, err := readAll(files)
	if err != nil {
		return nil, 0, err
	}
	found, err := hub.Load(texts)
	if err != nil {
		return nil, 0, err
	}
	converters := Converters{}
	for _, c := range found {
		converters[schema.GroupKind{Group: c.Definition.Group, Kind: c.Definition.Kind}] = c
	}
	return converters, len(converters), nil
}

// ReadDirectory reads the files of a directory that a Source would load.
func ReadDirectory(directory string) ([]hub.File, error) {
	files, err := look(directory)()
	if err != nil {
		return nil, err
	}
	return readAll(files)
}

func readAll(files []webserver.File) ([]hub.File, error) {
	texts := make([]hub.File, len(files))
	for i, file := range files {
		data, err := file.Read(limitFileBytes)
		if err != nil {
			return nil, err
		}
		texts[i] = hub.File{Name: file.Path, Data: data}
	}
	return texts, nil
}
