package preflight

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// encryptionConfig is an encryption configuration, as every version spells it.
type encryptionConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Resources  []struct {
		Resources []string              `json:"resources"`
		Providers []map[string]provider `json:"providers"`
	} `json:"resources"`
}

type provider struct {
	APIVersion string `json:"apiVersion"`
	Name       string `json:"name"`
	Endpoint   string `json:"endpoint"`
	Keys       []struct {
		Name   string `json:"name"`
		Secret string `json:"secret"`
	} `json:"keys"`
}

// encryptionKey is one key of a provider: what is encrypted with it names the provider and the key.
type encryptionKey struct{ provider, name, secret string }

// String never holds the secret.
func (k encryptionKey) String() string { return k.provider + ":" + k.name }

// encryption judges the encryption configurations of API servers of this host: each has to be read by its version, and
// what one side encrypts with has to be known to the other, where both read it.
func (c *check) encryption() {
	read := map[pair.Side]*encryptionConfig{}
	for i := range c.Plan.Components {
		component := &c.Plan.Components[i]
		if component.Host != c.Host || component.Kind != kubever.APIServer || read[component.Side] != nil {
			continue
		}
		for _, arg := range component.Args {
			if kubever.FlagName(arg.Name) != "encryption-provider-config" &&
				kubever.FlagName(arg.Name) != "experimental-encryption-provider-config" {
				continue
			}
			file := c.onHost(component, arg.Value)
			f, ok := c.read(file)
			if !ok {
				continue
			}
			subject := fmt.Sprintf("--%s of %s", arg.Name, component.Name)
			config := &encryptionConfig{}
			if err := yaml.Unmarshal(f.Data, config); err != nil || len(bytes.TrimSpace(f.Data)) == 0 {
				c.report(finding.Finding{Rule: Undecryptable, Subject: subject, Key: "form",
					Message: file + " is no encryption configuration", Fix: "replace it"})
				continue
			}
			read[component.Side] = config
			c.readsEncryption(subject, file, component, config)
		}
	}
	legacy, modern := read[pair.Legacy], read[pair.Modern]
	row := c.Plan.Resource("secrets")
	if legacy == nil || modern == nil || row == nil || row.View(pair.Legacy).Store != row.View(pair.Modern).Store {
		return
	}
	for _, side := range pair.Sides() {
		writes, reads := read[side].keys("secrets"), read[side.Other()].keys("secrets")
		if len(writes) == 0 {
			continue
		}
		writer, reader := c.Plan.Side(side).Version.Minor, c.Plan.Side(side.Other()).Version.Minor
		switch {
		case writes[0].provider == "identity":
		case writes[0].provider == kmsV1 && kubever.Behaves(kubever.BehaviourKMSGCMWritten, writer) &&
			!kubever.Behaves(kubever.BehaviourKMSGCMRead, reader):
			c.report(finding.Finding{Rule: Undecryptable, Subject: "secrets", Key: string(side),
				Message: fmt.Sprintf("the %s side encrypts with %s: %s uses AES-GCM, which %s does not decrypt; every "+
					"list of secrets through the %s side fails then", side, writes[0], writer, reader, side.Other()),
				Fix: fmt.Sprintf("encrypt with aescbc, aesgcm or secretbox; or put one of them before the plugin on "+
					"the %s side, with its key on the %s side", side, side.Other())})
		case !slices.Contains(reads, writes[0]):
			c.report(finding.Finding{Rule: Undecryptable, Subject: "secrets", Key: string(side),
				Message: fmt.Sprintf("the %s side encrypts with %s, which the configuration of the %s side does not "+
					"have", side, writes[0], side.Other()),
				Fix: fmt.Sprintf("add this key to the %s side first, behind the one with which it encrypts, and "+
					"restart its API servers", side.Other())})
		}
	}
}

// readsEncryption holds one configuration to what the version of its API server reads.
func (c *check) readsEncryption(subject, file string, component *plan.Component, config *encryptionConfig) {
	minor := c.Plan.Side(component.Side).Version.Minor
	report := func(key, fix, format string, args ...any) {
		c.report(finding.Finding{Rule: Undecryptable, Subject: subject, Key: key, Fix: fix,
			Message: file + ": " + fmt.Sprintf(format, args...)})
	}
	const old = "v1 EncryptionConfig"
	kinds := []string{old}
	if kubever.Behaves(kubever.BehaviourEncryptionConfigV1, minor) {
		kinds = append(kinds, "apiserver.config.k8s.io/v1 EncryptionConfiguration")
	}
	if kind := config.APIVersion + " " + config.Kind; !slices.Contains(kinds, kind) {
		report("kind", "write it as "+old+", which every version reads", "%s reads %s, and not %q", minor,
			strings.Join(kinds, " and "), kind)
	}
	for _, resource := range config.Resources {
		for _, one := range resource.Providers {
			for name, p := range one {
				name = p.named(name)
				known, ok := kubever.EncryptionProviderOf(name)
				if !ok || !known.In(minor) {
					report(name, "use a provider that both versions read, such as aescbc or secretbox",
						"%s knows no provider %s, and does not start", minor, name)
					continue
				}
				if gate, on := known.GateIn(minor); gate != "" && !c.gateOn(component, gate, on) {
					report(name, fmt.Sprintf("set --feature-gates=%s=true on its API servers", gate),
						"%s does not start with provider %s while the feature gate %s is off", minor, name, gate)
				}
			}
		}
	}
}

// kmsV1 is a plugin of the first interface of KMS.
const kmsV1 = "kms/v1"

// named is the provider's name as the facts have it.
func (p provider) named(name string) string {
	switch {
	case name != "kms":
		return name
	case p.APIVersion == "":
		return kmsV1
	}
	return "kms/" + p.APIVersion
}

// gateOn reports whether a gate is on with the arguments of a component.
func (c *check) gateOn(component *plan.Component, gate string, byDefault bool) bool {
	on := byDefault
	for _, arg := range component.Args {
		if kubever.FlagName(arg.Name) != "feature-gates" {
			continue
		}
		for entry := range strings.SplitSeq(arg.Value, ",") {
			if name, value, _ := strings.Cut(strings.TrimSpace(entry), "="); name == gate {
				on = value == "true"
			}
		}
	}
	return on
}

// keys are those for a resource, the one first with which it is encrypted. identity counts as one, and each kms.
func (c *encryptionConfig) keys(resource string) []encryptionKey {
	var keys []encryptionKey
	for _, r := range c.Resources {
		if !slices.ContainsFunc(r.Resources, func(name string) bool {
			return name == resource || name == "*.*" || name == "*."
		}) {
			continue
		}
		for _, one := range r.Providers {
			for name, p := range one {
				name = p.named(name)
				switch {
				case strings.HasPrefix(name, "kms/"):
					keys = append(keys, encryptionKey{name, p.Name, ""})
				case len(p.Keys) == 0:
					keys = append(keys, encryptionKey{name, "", ""})
				}
				for _, key := range p.Keys {
					keys = append(keys, encryptionKey{name, key.Name, key.Secret})
				}
			}
		}
		return keys // the first that names it counts
	}
	return keys
}
