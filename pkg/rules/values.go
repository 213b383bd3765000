package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// unknownValues reports names in the lists of arguments with which a component does not start: controllers, feature
// gates and admission plugins that its version does not have, and gates that it does not let users set.
func unknownValues(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	seen := map[string]bool{}
	for _, c := range p.Components {
		if c.Side == "" {
			continue // no component of Kubernetes
		}
		if f, refused := refusedSuites(&c); refused && !p.Side(c.Side).Existing {
			if key := f.Subject + f.Message; !seen[key] {
				seen[key] = true
				found = append(found, f)
			}
		}
		for _, a := range c.Args {
			for _, f := range refusedValues(c.Kind, a, p.Side(c.Side).Version) {
				f.Subject = fmt.Sprintf("--%s of %s", a.Name, c.Name)
				if key := f.Subject + f.Message; !seen[key] {
					seen[key] = true
					found = append(found, lenient(p, &c, f))
				}
			}
		}
	}
	return found
}

// requiredSuites are those of which HTTP/2 wants one, unless nothing older than TLS 1.3 is spoken.
// Source: golang.org/x/net/http2, ConfigureServer, which every release serves with. Seen: 1.36.3.
var requiredSuites = []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}

// refusedSuites reports cipher suites with which a server cannot serve HTTP/2, and ends at its start.
func refusedSuites(c *plan.Component) (finding.Finding, bool) {
	suites, _ := c.Arg("tls-cipher-suites")
	oldest, _ := c.Arg("tls-min-version")
	if suites == "" || oldest == "VersionTLS13" || slices.ContainsFunc(strings.Split(suites, ","), func(s string) bool {
		return slices.Contains(requiredSuites, strings.TrimSpace(s))
	}) {
		return finding.Finding{}, false
	}
	return finding.Finding{Subject: "--tls-cipher-suites of " + c.Name,
		Message: fmt.Sprintf("%s does not start: HTTP/2 needs one of %s", c.Kind,
			strings.Join(requiredSuites, " and ")),
		Fix: fmt.Sprintf("set tls-cipher-suites in the extraArgs of the component, with %s, or tls-min-version to "+
			"VersionTLS13", requiredSuites[0])}, true
}

// lenient makes a warning of what the release refuses where the component runs with it already, or is a vendor's build,
// which may know more.
func lenient(p *plan.Plan, c *plan.Component, f finding.Finding) finding.Finding {
	if side := p.Side(c.Side); side.Existing || side.Version.Suffix != "" {
		f.Severity = finding.Warning
		f.Message += ", unless the build adds it"
		f.Fix = "check that the build knows it; " + f.Fix
	}
	return f
}

func refusedValues(kind string, a plan.Arg, version kubever.Version) []finding.Finding {
	m := version.Minor
	var found []finding.Finding
	refuse := func(message, name string, known []string) {
		f := finding.Finding{Message: message, Fix: "remove it from extraArgs"}
		if near, ok := spelling.Nearest(name, known); ok {
			f.Fix = fmt.Sprintf("did you mean %s? %s", near, f.Fix)
		}
		found = append(found, f)
	}
	entries := strings.FieldsFunc(a.Value, func(r rune) bool { return r == ',' || r == ' ' })
	switch kubever.FlagName(a.Name) {
	case "controllers":
		known := controllerNames(m)
		for _, entry := range entries {
			if name := strings.TrimPrefix(entry, "-"); name != "*" && !slices.Contains(known, name) {
				refuse(fmt.Sprintf("%s %s has no controller %q and does not start", kind, m, name), name, known)
			}
		}
	case "feature-gates":
		for _, entry := range entries {
			name, value, _ := strings.Cut(entry, "=")
			gate := kubever.Gate(name)
			state, known := gate.In(version)
			switch {
			case gate.KnownTo(kind, m) && !known:
				refuse(fmt.Sprintf("%s %s.%d has no feature gate %q, later releases of %s do, and does not start",
					kind, m,
					version.Patch, name, m), "", nil)
			case !known || !gate.KnownTo(kind, m):
				refuse(fmt.Sprintf("%s %s has no feature gate %q and does not start", kind, m, name), name,
					gateNames(m))
			case state.Locked && value != fmt.Sprint(state.Default):
				refuse(fmt.Sprintf("%s %s refuses %s: the gate is locked to %v", kind, m, entry, state.Default), "",
					nil)
			}
		}
	case "authorization-mode":
		known := kubever.AuthorizationModes(m)
		for _, name := range entries {
			if !slices.Contains(known, name) {
				refuse(fmt.Sprintf("%s %s has no authorization mode %q and does not start", kind, m, name), name, known)
			}
		}
	case "endpoint-reconciler-type":
		if known := kubever.EndpointReconcilersIn(m).Types; !slices.Contains(known, a.Value) {
			refuse(fmt.Sprintf("%s %s has no endpoint reconciler %q and does not start", kind, m, a.Value), a.Value,
				known)
		}
	case "admission-control", "enable-admission-plugins", "disable-admission-plugins":
		known := kubever.AdmissionPlugins(m)
		for _, name := range entries {
			if !slices.Contains(known, name) {
				refuse(fmt.Sprintf("%s %s has no admission plugin %q and does not start", kind, m, name), name, known)
			}
		}
	}
	if only, fixed := kubever.FlagGiven(kind, a.Name, m).OnlyValue(m); fixed && a.Value != only {
		found = append(found, finding.Finding{
			Message: fmt.Sprintf("%s %s takes only %s of this flag and does not start with %s", kind, m, only, a.Value),
			Fix:     fmt.Sprintf("set it to %s, or remove it from extraArgs", only)})
	}
	return found
}

func controllerNames(m kubever.Minor) []string {
	var names []string
	for _, c := range kubever.Controllers(m) {
		name, _ := c.NameIn(m)
		names = append(append(names, name), c.AliasesIn(m)...)
	}
	return names
}

func gateNames(m kubever.Minor) []string {
	var names []string
	for _, g := range kubever.Gates(m) {
		names = append(names, g.Name)
	}
	return names
}
