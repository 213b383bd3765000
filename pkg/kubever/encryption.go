package kubever

import "sync"

// EncryptionProvider is a way to encrypt what is kept in etcd, as an encryption configuration names it: aescbc, kms/v2.
type EncryptionProvider struct {
	Name   string
	Gate   string // has to be on where a minor knows it; "" for none
	Source string
	in     Ranges
}

var encryptionTable = sync.OnceValue(func() map[string]EncryptionProvider {
	providers := map[string]EncryptionProvider{}
	for _, r := range readTable("encryption-providers.tsv", 4) {
		name := r.text(0)
		if _, twice := providers[name]; twice || name == "" {
			r.fail("want a provider, once")
		}
		providers[name] = EncryptionProvider{Name: name, Gate: r.text(2), Source: r.text(3), in: r.ranges(1)}
	}
	return providers
})

// EncryptionProviderOf returns the facts about a provider; false for one that no minor reads.
func EncryptionProviderOf(name string) (EncryptionProvider, bool) {
	p, ok := encryptionTable()[name]
	return p, ok
}

// In reports whether kube-apiserver of the minor reads the provider.
func (p EncryptionProvider) In(m Minor) bool { return p.in.Has(m) }

// GateIn returns the feature gate that the provider needs at a minor, and whether it is on by default; "" for none.
func (p EncryptionProvider) GateIn(m Minor) (gate string, on bool) {
	if p.Gate == "" {
		return "", true
	}
	state, known := Gate(p.Gate).At(m)
	if !known {
		return "", true
	}
	return p.Gate, state.Default
}
