package cli

import (
	"io"
	"net/url"
	"path"
	"path/filepath"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

// The part of SARIF 2.1.0 that findings need.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		Invocations []sarifInvocation `json:"invocations,omitempty"`
		Results     []sarifResult     `json:"results"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		Notifications []sarifNotification `json:"toolExecutionNotifications"`
	}
	sarifNotification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string     `json:"id"`
		ShortDescription *sarifText `json:"shortDescription,omitempty"`
		FullDescription  *sarifText `json:"fullDescription,omitempty"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
		// Fingerprints tell viewers that a result is the one of an earlier run, whatever its words and its line.
		Fingerprints map[string]string `json:"partialFingerprints,omitempty"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region *sarifRegion `json:"region,omitempty"`
		} `json:"physicalLocation"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
)

// sarifLevels are SARIF's words for severities.
var sarifLevels = map[finding.Severity]string{finding.Error: "error", finding.Warning: "warning", finding.Info: "note"}

// describe says what the rule of a finding is about, in the words of the engine that reports it.
func describe(engine finding.Engine, f finding.Finding) sarifRule {
	described := sarifRule{ID: f.Rule}
	if rule, ok := catalog.Rule(engine, f.Rule); ok {
		described.ShortDescription, described.FullDescription = &sarifText{rule.Title}, &sarifText{rule.Why}
	}
	return described
}

// uriOf is the path of a file as a reference to it: a name such as "https:/example.com/x" stays one of a file.
func uriOf(file string) string {
	return (&url.URL{Path: path.Clean(filepath.ToSlash(file))}).String()
}

// printSARIF writes findings for the viewers of code hosts. A finding without a file of its own is one about the given
// file. What could not be looked at makes the run one that did not succeed.
func printSARIF(w io.Writer, engine finding.Engine, file string, findings []finding.Finding,
	incomplete ...string) error {
	var run sarifRun
	run.Tool.Driver = sarifDriver{Name: "fusionctl", Rules: []sarifRule{}}
	run.Results = []sarifResult{}
	if len(incomplete) > 0 {
		invocation := sarifInvocation{}
		for _, text := range incomplete {
			invocation.Notifications = append(invocation.Notifications,
				sarifNotification{Level: "error", Message: sarifText{text}})
		}
		run.Invocations = []sarifInvocation{invocation}
	}
	for _, f := range findings {
		index := slices.IndexFunc(run.Tool.Driver.Rules, func(r sarifRule) bool { return r.ID == f.Rule })
		if index < 0 {
			index = len(run.Tool.Driver.Rules)
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, describe(engine, f))
		}
		text := f.Subject + ": " + f.Message
		if f.Fix != "" {
			text += ". Fix: " + f.Fix
		}
		var location sarifLocation
		location.Physical.Artifact.URI = uriOf(file)
		if f.File != "" {
			location.Physical.Artifact.URI = uriOf(f.File)
		}
		if f.Line > 0 {
			location.Physical.Region = &sarifRegion{StartLine: f.Line, StartColumn: f.Column}
		}
		run.Results = append(run.Results, sarifResult{RuleID: f.Rule, RuleIndex: index, Level: sarifLevels[f.Severity],
			Message: sarifText{text}, Locations: []sarifLocation{location},
			Fingerprints: map[string]string{"fusionctlKey/v1": f.Key}})
	}
	return printJSON(w, sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{run}})
}
