package rules

import (
	"fmt"
	"strings"
)

// example is a spec of a rule's documentation: a complete file, so that a reader can run it.
type example struct {
	layout         string // default split
	legacy, modern string // versions; default 1.15.12 and 1.36.3
	network        string // default with a range of the modern side's own
	kubelet        string // version; default the legacy side's
	legacySide     string // further fields of spec.legacy
	legacyServer   string // fields of spec.legacy.apiServer
	legacyManager  string // fields of spec.legacy.controllerManager; "-" for none
	modernServer   string
	modernManager  string // "-" for none
	access         string // default: pods, services and more to a group
	more           string // further fields of spec, two spaces deep
}

func (e example) String() string {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&e.layout, "split")
	set(&e.legacy, "1.15.12")
	set(&e.modern, "1.36.3")
	set(&e.access, `[{subjects: [{kind: Group, name: developers}], apiGroups: [example.org], resources: ["*"]}]`)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("apiVersion: kubefusion.dev/v1alpha1")
	line("kind: FusedControlPlane")
	line("metadata: {name: example}")
	line("spec:")
	line("  layout: %s", e.layout)
	line("  hosts: [{name: cp-1, address: 10.0.0.11}]")
	if e.network != "" {
		line("  network: {%s}", e.network)
	}
	if e.kubelet != "" {
		line("  kubelet: {version: %s}", e.kubelet)
	}
	line("  stores:")
	line(`  - {name: core, endpoints: ["http://10.0.0.11:2379"]}`)
	if e.layout == "split" {
		line(`  - {name: modern, endpoints: ["http://10.0.0.11:2479"]}`)
	}
	side := func(name, version, fields, server, manager string) {
		line("  %s:", name)
		line("    version: %s", version)
		if fields != "" {
			line("    %s", fields)
		}
		line("    apiServer: {%s}", server)
		if manager != "-" {
			line("    controllerManager: {%s}", manager)
		}
	}
	side("legacy", e.legacy, e.legacySide, e.legacyServer, e.legacyManager)
	side("modern", e.modern, "", e.modernServer, e.modernManager)
	line("  access: %s", e.access)
	if e.more != "" {
		line("  %s", strings.ReplaceAll(strings.TrimSpace(e.more), "\n", "\n  "))
	}
	return b.String()
}

// args writes extraArgs of a component.
func args(pairs ...string) string {
	var list []string
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		list = append(list, fmt.Sprintf("{name: %s, value: %q}", name, value))
	}
	return "extraArgs: [" + strings.Join(list, ", ") + "]"
}

// toDevelopers is an access section that gives a group some core resources.
func toDevelopers(resources string) string {
	return fmt.Sprintf(`[{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [%s]}]`, resources)
}
