package etcdsplit

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Check is one thing that a scan or a watch of the stores finds, with its documentation.
type Check struct {
	ID       string           `json:"id"`       // of the danger that it proves; from FUS230 on what only a store shows
	Title    string           `json:"title"`    //
	Severity finding.Severity `json:"severity"` // at worst
	Why      string           `json:"why"`      //
}

// Checks lists what the stores can show, by ID.
func Checks() []Check {
	const bad, warn = finding.Error, finding.Warning
	return []Check{
		{"FUS000", "A value that no reader can decode", bad, "An API server decodes every object under a resource's keys to list them. One value that it cannot read, because it is damaged or of another kind, makes every list and watch of the whole resource fail."},
		{"FUS001", "Stored fields that a side drops", warn, "A side that rewrites an object writes only the fields that its version knows, even when it changes nothing but the status. Depth objects finds the objects that have such fields now."},
		{"FUS002", "A stored version that a reader cannot decode", bad, "Objects were written in a group and version that a side which reads the store does not have: its lists and watches of the resource fail."},
		{"FUS003", "A stored version that breaks watches", bad, "The reader decodes the version in lists, where it knows what it expects, but not in watches: every write to such an object ends all watches of the resource. Source: kubernetes#73478."},
		{"FUS004", "Keys of a built-in resource in the wrong store", bad, "Each side keeps the resource in one store, and the plan says whose objects it holds. Keys elsewhere were written past the plan, by an override that had no effect or through the wrong server, or were left behind when an override was set: overrides move nothing."},
		{"FUS010", "CRDs, custom resources or APIServices in the wrong store", bad, "They lie in a side's default store whatever its overrides say. Keys in the other one come from the other server."},
		{"FUS030", "APIServices that a reader does not serve", bad, "An API server deletes the built-in APIServices that it does not know when it starts, and lists announced groups that answer 404, which keeps namespaces from being deleted."},
		{"FUS031", "CRDs that lost fields, or versions nobody accounts for", bad, "Every version stores CRDs in one format, so an old server reads them, and writes them back without what it does not know: versions, conversion, schemas, the list of stored versions. Custom resources in versions that the CRD does not have cannot be read."},
		{"FUS040", "A fight over the endpoints of service kubernetes", bad, "Two reconcilers that do not know of each other write the list of API servers by turns."},
		{"FUS050", "Addresses or ports given out twice, allocators that disagree", bad, "The allocators of the two versions keep their records in different objects. An address that one of them takes for free although a service has it is given out again."},
		{"FUS051", "Ranges in the store that differ from the spec's", bad, "An allocator refuses to work on a range that is not its own; with two ranges each repair takes the record away from the other side."},
		{"FUS052", "One address in two sets of services", bad, "The sides keep services in different stores and give out addresses of one range."},
		{"FUS053", "The default ServiceCIDR differs from the spec's range", bad, "It was written by a server with another --service-cluster-ip-range."},
		{"FUS060", "Objects that a garbage collector deletes", bad, "The collector of a side serves the kind of an object's owners and finds none of them in its own store. The finding says how many objects, and whether the collector runs."},
		{"FUS061", "Objects that an old garbage collector deletes by mistake", bad, "Collectors before 1.10 take a 404 for a version that is not served, or for a cluster-scoped owner that they looked for in a namespace, for an absent owner."},
		{"FUS062", "Mirror pods that an old garbage collector deletes", bad, "Mirror pods of kubelets since 1.17 are owned by their node, which collectors before 1.9 look for in the pod's namespace."},
		{"FUS065", "A lock of both sides", bad, "Components of both sides elect on one object: only one of the two runs. The finding says who holds it."},
		{"FUS070", "Encrypted values", warn, "Whoever reads the store needs the key. Servers 1.7 to 1.12 leave out what they cannot decrypt, later ones fail. What is inside was not checked."},
		{"FUS072", "Values in CBOR", bad, "Only servers since 1.32 read CBOR, behind a feature gate."},
		{"FUS088", "Tokens that were marked invalid", bad, "The cleaner of legacy tokens counts only what servers since 1.27 record as used. The modern side refuses marked tokens, and deletes them a year later."},
		{"FUS090", "What a server writes at start and the other cannot read", bad, "An API server writes by itself when it starts, past any authorization. In a store that the other side reads, in a version that it does not have, that stops the other side's lists."},
		{"FUS100", "Tokens of service accounts that are gone", warn, "A server accepts a token only if it finds its secret and its service account, and a token controller deletes secrets whose account it does not find."},
		{"FUS130", "Objects in namespaces that do not exist", warn, "A namespace is gone as soon as one side's controller has emptied what it sees. What lies in the other side's store stays, and reappears when the namespace is created again."},
		{"FUS230", "One key in two stores", bad, "With the same UID they are copies of one object, from a move or a backup, and drift apart. With different UIDs two objects claim one name."},
		{"FUS231", "Keys that nobody reads", warn, "The resource is known to neither version, or the key cannot be that of an object: left from an older version, or from a vendor's API server about which there are no facts."},
		{"FUS232", "Custom resources without a CRD", warn, "Without their definition in the same store no API server serves them. They reappear when it is created again."},
		{"FUS233", "An empty store", warn, "It holds nothing below the prefix: no API server has written to it yet, or it is not the one that they use."},
		{"FUS234", "A fight over a key", bad, "A value that had just been replaced keeps coming back: two writers both believe that the key is theirs."},
	}
}

// Text is the documentation of the check for people.
func (c Check) Text() string {
	return fmt.Sprintf("%s  %s\nseverity: %s at worst, in stores: fusionctl etcd check and watch\n\n%s\n", c.ID, c.Title, c.Severity, wrap(c.Why, 100))
}

// wrap breaks a text at spaces.
func wrap(text string, columns int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > columns:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
