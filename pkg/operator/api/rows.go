package api

import (
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// row is what the API server checks of a type or a field by itself. It refuses nothing that pkg/spec accepts, but for
// the bounds on lengths, without which it takes no expressions. What takes more than one look (versions of images, the
// ports of a host, every rule about the pair) is judged by the operator.
type row struct {
	required    bool
	enum        []string
	pattern     string // of a text, or of each text of a list
	least, most *float64
	minItems    int64
	maxItems    int64
	minLength   int64
	maxLength   int64
	key         string // of the items of a list, unique
	rules       []rule
}

// rule is an expression, and what is wrong where it is false.
type rule struct{ expression, message string }

func number(n float64) *float64 { return &n }

const (
	ipLike = `^[0-9a-fA-F:.]+$`
	// what remains of the grammar of versions is bounded by the tables
	limitVersion = 64
	// of lists over which expressions go
	limitItems = 64
)

// versions is the grammar of kubever.Parse, with the minors of the tables.
func versions() string {
	var minors []string
	for _, m := range kubever.Minors() {
		minors = append(minors, strconv.Itoa(int(m)))
	}
	return `^v?1\.(` + strings.Join(minors, "|") + `)(\.(0|[1-9][0-9]{0,3}))?([-+][-+._A-Za-z0-9]+)?$`
}

func sides() []string {
	var names []string
	for _, side := range pair.Sides() {
		names = append(names, string(side))
	}
	return names
}

// rows are by TYPE or TYPE.FIELD.
func rows() map[string]row {
	port := row{least: number(0), most: number(65535)} // 0 is the default
	needed := row{required: true}
	path := row{pattern: `^(/|$)`} // "" is the default
	neededPath := row{required: true, pattern: `^/`}
	label := row{required: true, pattern: spec.LabelPattern}
	minor := func(of string) string { return `int(self.` + of + `.version.find('^v?1[.][0-9]+').split('.')[1])` }
	given := func(field string) string { return `(has(self.` + field + `) && self.` + field + ` != '')` }
	one := func(fields ...string) string { // of these is given
		var counts []string
		for _, field := range fields {
			counts = append(counts, `(`+given(field)+` ? 1 : 0)`)
		}
		return strings.Join(counts, ` + `) + ` == 1`
	}
	named := func(list, of string) string { return `self.` + list + `.exists(s, s.name == self.` + of + `)` }
	existingArgs := func(component string) rule {
		return rule{`(has(self.existing) && self.existing) || !has(self.` + component + `) || !has(self.` + component +
			`.changeArgs) || size(self.` + component + `.changeArgs) == 0`,
			component + `.changeArgs is for components that run already: want the arguments in extraArgs, or ` +
				`existing: true`}
	}
	onHosts := `!has(self.target) || self.target in ['', '` + string(spec.TargetHosted) + `']`
	return map[string]row{
		"kubever.Version": {pattern: versions(), maxLength: limitVersion},
		"Layout":          {enum: spec.Layouts},
		"FailurePolicy":   {enum: spec.FailurePolicies},
		"ServiceType":     {enum: spec.ServiceTypes},
		"UnknownFields":   {enum: spec.UnknownFieldsWords},
		"Approval":        {enum: spec.Approvals},
		"DeletionPolicy":  {enum: spec.DeletionPolicies},
		"Target":          {enum: spec.Targets},
		"Repair":          {enum: spec.Repairs},
		"Phase":           {enum: Phases},
		"pair.Owner":      {enum: spec.Owners},
		"pair.Side":       {enum: sides()},

		"Spec.hosts":  {required: true, minItems: 1, maxItems: limitItems, key: "name"},
		"Spec.stores": {required: true, minItems: 1, maxItems: limitItems, key: "name"},
		"Spec.legacy": needed, "Spec.modern": needed,
		"Spec.access":    {required: true, minItems: 1},
		"Spec.hostFiles": path,
		"Spec": {rules: []rule{
			{`!has(self.modern.existing) || !self.modern.existing`, "only the legacy side may be existing"},
			{minor("legacy") + ` <= ` + minor("modern"), "modern.version is older than legacy.version"},
			{`!` + given("legacy.store") + ` || ` + named("stores", "legacy.store"),
				"legacy.store: want one of stores"},
			{`!` + given("modern.store") + ` || ` + named("stores", "modern.store"),
				"modern.store: want one of stores"},
			{`!` + given("legacy.store") + ` || !` + given("modern.store") + ` || (self.layout == 'shared') == ` +
				`(self.legacy.store == self.modern.store)`,
				"layout shared keeps both sides in one store; layout split needs another store for the modern side"},
			{onHosts + ` || !has(self.deletionPolicy) || self.deletionPolicy != '` + string(spec.DeletionDelete) + `'`,
				"deletionPolicy Delete takes pods and volumes away, and on hosts there are none: want Keep"},
			{onHosts + ` || !has(self.backup) || has(self.backup.directory) && !has(self.backup.image)`,
				"on hosts an agent saves the stores: want backup.directory, and no backup.image"},
			{`!(` + onHosts + `) || !has(self.backup) || has(self.backup.image) && !has(self.backup.directory)`,
				"a pod saves the stores: want backup.image, and no backup.directory"},
		}},

		"Spec.programs": {maxItems: 4 * limitItems},
		"Program.path":  neededPath, "Program.file": neededPath,
		"Program.sha256": {required: true, pattern: spec.SHA256Pattern},
		"Program.image":  {pattern: `^$|@sha256:[0-9a-f]{64}$`},

		"Operation.windows": {maxItems: limitItems},
		"Window.schedule":   {required: true, minLength: 1},
		"Window.duration":   {required: true, pattern: `^([0-9]+(\.[0-9]+)?(h|m|s))+$`},
		"Backup.schedule":   {required: true, minLength: 1}, "Backup.image": {minLength: 1},
		"Backup.directory": path,
		"Backup.keep":      {least: number(0), most: number(spec.MostBackupsKept)},
		"Backup.claim":     {pattern: `^$|` + spec.LabelPattern},

		"GatewayCluster.name":       {required: true, pattern: spec.LabelPattern, maxLength: 63},
		"GatewayCluster.kubeconfig": neededPath,
		"Host.name":                 label, "Host.address": {required: true, pattern: ipLike},
		"Change.name": needed, "Arg.name": needed, "EnvVar.name": needed,
		"ModernKubelet.nodes": {key: "name"},
		"ModernNode.name":     needed, "ModernNode.address": {required: true, pattern: ipLike},

		"PKI.directory": path, "PKI.ca": path, "PKI.caKey": path, "PKI.serviceAccountKey": path,
		"PKI.serviceAccountPublicKeys": path, "PKI.requestHeaderCA": path, "PKI.proxyClientCert": path,
		"PKI.proxyClientKey": path, "PKI.kubeletClientCert": path, "PKI.kubeletClientKey": path,
		"TLS.ca": neededPath, "TLS.cert": path, "TLS.key": path,
		"TLS": {rules: []rule{{given("cert") + ` == ` + given("key"),
			"cert and key: want both, or neither for a store that asks no client for a certificate"}}},

		"Store.name": {required: true, pattern: spec.LabelPattern, maxLength: 63}, "Store.prefix": path,
		"Store.endpoints": {required: true, minItems: 1, maxItems: limitItems, maxLength: 512,
			pattern: `^[hH][tT][tT][pP][sS]?://[^/?#@]+:[0-9]+/?$`},
		"Store": {rules: []rule{{`!has(self.tls) || !self.endpoints.exists(e, e.startsWith('http://'))`,
			"tls has no effect with http endpoints; use https endpoints or leave it out"}}},
		"ManagedEtcd.version": needed, "ManagedEtcd.dataDir": neededPath, "ManagedEtcd.peerPort": port,

		"Side.version": needed, "Side.apiServer": needed, "Side.store": {maxLength: 63},
		"Side": {rules: []rule{
			{`!has(self.existing) || !self.existing || has(self.apiServer.extraArgs) && ` +
				`size(self.apiServer.extraArgs) > 0`,
				"apiServer.extraArgs is empty, and the side is existing: want the arguments with which the server " +
					"runs; fusionctl init --from reads them from its manifests"},
			existingArgs("apiServer"), existingArgs("controllerManager"), existingArgs("scheduler"),
		}},
		"Component.extraMounts": {key: "name"}, "Component.extraEnv": {key: "name"},
		"APIServer.port": port, "Controllers.port": port, "Admission.port": port,
		"Admission.timeoutSeconds": {least: number(0), most: number(30)},
		"Mount.name":               label,
		"Mount": {rules: []rule{{one("hostPath", "secret", "configMap", "volume"),
			"want one of hostPath, secret, configMap and volume"}}},

		"Owning.resources": needed, "Owning.owner": needed,
		"Access.subjects": {required: true, minItems: 1},
		"Access": {rules: []rule{
			{`has(self.resources) && size(self.resources) > 0 || has(self.nonResourcePaths) && ` +
				`size(self.nonResourcePaths) > 0`, "names neither resources nor nonResourcePaths"},
			{`(has(self.resources) && size(self.resources) > 0) == (has(self.apiGroups) && size(self.apiGroups) > 0)`,
				`want apiGroups and resources together; the core group is written "", all resources "*"`},
		}},
		"Subject.kind": {required: true, enum: spec.SubjectKinds}, "Subject.name": {required: true, maxLength: 1024},
		"Subject": {rules: []rule{{`(self.kind == 'ServiceAccount') == (has(self.namespace) && self.namespace != '')`,
			"a ServiceAccount has a namespace, and nothing else has one"}}},
		"finding.Acceptance.rule": needed, "finding.Acceptance.reason": needed,

		// An agent writes it, and the operator, which runs every control plane, holds it: an empty component is three
		// bytes of an object, and two hundred in memory.
		"HostStatus.components": {maxItems: 4 * limitItems},
		"HostComponent.files":   {maxItems: 16 * limitItems},
		"HostTaskStatus.answer": {maxLength: 256 << 10}, "HostTaskStatus.error": {maxLength: 64 << 10},

		"Status.conditions": {key: "type"},
		"v1.Condition.type": needed,
		"v1.Condition.status": {required: true,
			enum: []string{string(metav1.ConditionTrue), string(metav1.ConditionFalse),
				string(metav1.ConditionUnknown)}},
		"v1.Condition.reason": needed, "v1.Condition.message": needed, "v1.Condition.lastTransitionTime": needed,
	}
}

func (r row) apply(schema apiextensions.JSONSchemaProps) apiextensions.JSONSchemaProps {
	values := &schema // what a bound of each value is said of
	if schema.Items != nil {
		item := *schema.Items.Schema
		schema.Items = &apiextensions.JSONSchemaPropsOrArray{Schema: &item}
		values = &item
	}
	for _, word := range r.enum {
		values.Enum = append(values.Enum, apiextensions.JSON{Raw: encoded(word)})
	}
	if r.pattern != "" {
		values.Pattern = r.pattern
	}
	if r.minLength > 0 {
		values.MinLength = &r.minLength
	}
	if r.maxLength > 0 {
		values.MaxLength = &r.maxLength
	}
	if r.least != nil {
		schema.Minimum, schema.Maximum = r.least, r.most
	}
	if r.minItems > 0 {
		schema.MinItems = &r.minItems
	}
	if r.maxItems > 0 {
		schema.MaxItems = &r.maxItems
	}
	if r.key != "" {
		listMap := "map"
		schema.XListType, schema.XListMapKeys = &listMap, []string{r.key}
	}
	for _, rule := range r.rules {
		schema.XValidations = append(schema.XValidations,
			apiextensions.ValidationRule{Rule: rule.expression, Message: rule.message})
	}
	return schema
}
