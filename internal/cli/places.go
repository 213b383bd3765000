package cli

import (
	"regexp"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// argumentOf is how findings name an argument, and absolutePath a file in their words.
var (
	argumentOf   = regexp.MustCompile(`--([a-z0-9][-a-z0-9.]*) of (?:the (legacy|modern) (API server)|(\S+))`)
	absolutePath = regexp.MustCompile(`(?:^|[\s:=(])(/[^\s:;,()]+)`)
)

// argumentFields are the components, as fields of a side.
var argumentFields = map[string]string{kubever.APIServer: "apiServer", kubever.ControllerManager: "controllerManager",
	kubever.Scheduler: "scheduler"}

// inSpec gives findings about files, arguments, stores and images the line of the spec that they come from.
func inSpec(findings []finding.Finding, file string, text []byte) {
	places := spec.ParsePlaces(text)
	for i := range findings {
		f := &findings[i]
		if f.File != "" || f.Line > 0 {
			continue
		}
		if line := lineOf(f, places); line > 0 {
			f.File, f.Line = file, line
		}
	}
}

// lineOf is the line of the spec that a finding comes from, 0 where that cannot be told.
func lineOf(f *finding.Finding, places spec.Places) int {
	_, subject, onHost := strings.Cut(f.Subject, ":") // HOST:/FILE
	if !onHost || !strings.HasPrefix(subject, "/") {
		subject = f.Subject
	}
	if strings.HasPrefix(subject, "/") {
		return places.File(subject)
	}
	if line := places.Value(subject); line > 0 && strings.ContainsAny(subject, "/:") { // an image
		return line
	}
	if name, ok := strings.CutPrefix(subject, "store "); ok {
		return places.Named("stores", name)
	}
	match := argumentOf.FindStringSubmatch(subject)
	if match == nil {
		return 0
	}
	side, component := match[2], kubever.APIServer
	if match[3] == "" {
		var modern bool
		component, modern = strings.CutSuffix(match[4], "-"+string(pair.Modern))
		side = string(pair.Legacy)
		if modern {
			side = string(pair.Modern)
		}
	}
	if line := places.Argument(side, argumentFields[component], match[1]); line > 0 {
		return line
	}
	if path := absolutePath.FindStringSubmatch(f.Message); path != nil {
		return places.File(path[1])
	}
	return 0
}
