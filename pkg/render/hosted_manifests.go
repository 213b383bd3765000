package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// The manifests of the hosted target are for a cluster of 1.21 or later: any that is still maintained. They hold no
// secret and refer to Secrets of known names, one for each component, with the files that its arguments name and no
// others.

const (
	dataVolume      = "data"
	dataSize        = "8Gi"
	stateSize       = "1Gi" // the smallest that providers have; it holds a few kilobytes
	configKey       = "kubeconfig"
	planKey         = "plan.json"
	policyKey       = "policy.jsonl"
	configChecksum  = "kubefusion.dev/config"
	nobody          = 65534
	secretMode      = 0o440
	hostedTier      = "control-plane"
	partOfLabel     = "app.kubernetes.io/part-of"
	componentLabel  = "app.kubernetes.io/name"
	hostnameLabel   = "kubernetes.io/hostname"
	zoneLabel       = "topology.kubernetes.io/zone"
	managedByLabel  = "app.kubernetes.io/managed-by"
	managedByFusion = "fusionctl"
)

func hostedNamespace(p *plan.Plan) *yaml.Node {
	return object(
		field{"apiVersion", text("v1")},
		field{"kind", text("Namespace")},
		field{"metadata",
			object(field{"name", text(p.Name)}, field{"labels", object(field{managedByLabel, text(managedByFusion)})})},
	)
}

// hostedManifest prints everything that one component needs in the cluster that hosts it.
func hostedManifest(p *plan.Plan, c *plan.Component, replicas int, rules string) ([]byte, error) {
	var objects []*yaml.Node
	texts, err := configTexts(p, c, rules)
	if err != nil {
		return nil, err
	}
	if len(texts) > 0 {
		objects = append(objects, configMap(p, c, texts))
	}
	if c.Kind == plan.Etcd || serves(c) {
		objects = append(objects, service(p, c))
	}
	if replicas > 1 && (c.Kind == plan.Etcd || serves(c)) {
		objects = append(objects, disruptionBudget(p, c))
	}
	objects = append(objects, workload(p, c, replicas, texts))
	var out bytes.Buffer
	for i, o := range objects {
		comment := ""
		if i == 0 {
			comment = header(p, c)
		} else {
			out.WriteString("---\n")
		}
		data, err := document(comment, o)
		if err != nil {
			return nil, err
		}
		out.Write(data)
	}
	return out.Bytes(), nil
}

// serves reports whether clients reach a component by its Service.
func serves(c *plan.Component) bool {
	return c.Kind == kubever.APIServer || c.Kind == plan.JointGateway
}

// disruptionBudget lets one pod at a time be evicted: a drain of nodes neither leaves clients without a server nor a
// store without a majority. One pod alone has none, or its node could not be drained.
func disruptionBudget(p *plan.Plan, c *plan.Component) *yaml.Node {
	return object(
		field{"apiVersion", text("policy/v1")},
		field{"kind", text("PodDisruptionBudget")},
		field{"metadata", metadata(p, c, c.Name)},
		field{"spec", object(
			field{"maxUnavailable", number(1)},
			field{"selector", object(field{"matchLabels", selector(c)})},
		)},
	)
}

// configText is a file of a component that holds no secret.
type configText struct{ key, path, content string }

// configTexts are the policy, the kubeconfigs and the plan of a component, where it has them.
func configTexts(p *plan.Plan, c *plan.Component, rules string) ([]configText, error) {
	var texts []configText
	if file, ok := c.Arg("authorization-policy-file"); ok && file == p.PolicyFile {
		texts = append(texts, configText{policyKey, file, rules})
	}
	if file, ok := c.Arg("audit-policy-file"); ok && file == p.AuditPolicyFile {
		data, err := auditPolicy()
		if err != nil {
			return nil, err
		}
		texts = append(texts, configText{path.Base(file), file, string(data)})
	}
	if file, data, err := ownPlan(p, c); err != nil {
		return nil, err
	} else if file != "" {
		texts = append(texts, configText{planKey, file, string(data)})
	}
	for i := range p.Kubeconfigs {
		k := &p.Kubeconfigs[i]
		if k.Component != c.Name {
			continue
		}
		data, err := kubeconfig(k)
		if err != nil {
			return nil, err
		}
		key := configKey
		if plan.SeesBoth(c.Kind) { // it has two
			key = secretKey(path.Base(k.Path))
		}
		texts = append(texts, configText{key, k.Path, string(data)})
	}
	return texts, nil
}

func metadata(p *plan.Plan, c *plan.Component, name string) *yaml.Node {
	return object(
		field{"name", text(name)},
		field{"namespace", text(p.Name)},
		field{"labels", labels(p, c)},
	)
}

func labels(p *plan.Plan, c *plan.Component) *yaml.Node {
	return object(
		field{componentLabel, text(c.Name)},
		field{partOfLabel, text(p.Name)},
		field{managedByLabel, text(managedByFusion)},
		field{"tier", text(hostedTier)},
	)
}

func selector(c *plan.Component) *yaml.Node { return object(field{componentLabel, text(c.Name)}) }

func configMap(p *plan.Plan, c *plan.Component, texts []configText) *yaml.Node {
	var data []field
	for _, t := range texts {
		content := text(t.content)
		if !strings.ContainsFunc(t.content, func(r rune) bool { return r != '\n' && r < ' ' }) {
			content.Style = yaml.LiteralStyle
		}
		data = append(data, field{t.key, content})
	}
	return object(
		field{"apiVersion", text("v1")},
		field{"kind", text("ConfigMap")},
		field{"metadata", metadata(p, c, c.Name)},
		field{"data", object(data...)},
	)
}

// service is the name under which clients reach a component: that of an API server balances, that of a store names each
// member.
func service(p *plan.Plan, c *plan.Component) *yaml.Node {
	port := func(name string, at int) *yaml.Node {
		return object(field{"name", text(name)}, field{"port", number(at)}, field{"targetPort", number(at)})
	}
	spec := object(field{"type", optional(string(c.Service))}, field{"selector", selector(c)},
		field{"ports", list(port("https", c.Port))})
	if c.Kind == plan.Etcd {
		spec = object(
			field{"clusterIP", text("None")},
			field{"publishNotReadyAddresses", boolean(true)}, // members find each other before any of them is ready
			field{"selector", selector(c)},
			field{"ports", list(port("client", c.Port), port("peer", peerPort(p, c)))},
		)
	}
	return object(
		field{"apiVersion", text("v1")},
		field{"kind", text("Service")},
		field{"metadata", metadata(p, c, c.Name)},
		field{"spec", spec},
	)
}

func peerPort(p *plan.Plan, c *plan.Component) int {
	if s := p.Store(c.Store); s != nil && s.Managed != nil {
		return s.Managed.PeerPort
	}
	return c.Port + 1
}

// workload is the Deployment of a component, or the StatefulSet of what keeps something: a store, or the controllers
// that see both sides, which remember the stores.
func workload(p *plan.Plan, c *plan.Component, replicas int, texts []configText) *yaml.Node {
	fields := []field{
		{"replicas", number(replicas)},
		{"selector", object(field{"matchLabels", selector(c)})},
	}
	if directory, size := keeps(c); directory != "" {
		fields = append(fields,
			field{"serviceName", text(c.Name)},
			field{"podManagementPolicy", text("Parallel")}, // a member waits for the others
			field{"volumeClaimTemplates", list(object(
				field{"metadata", object(field{"name", text(dataVolume)})},
				field{"spec", object(
					field{"accessModes", list(text("ReadWriteOnce"))},
					field{"resources", object(field{"requests", object(field{"storage", text(size)})})},
				)},
			))})
	} else {
		fields = append(fields, field{"strategy", object(
			field{"type", text("RollingUpdate")},
			field{"rollingUpdate", object(field{"maxUnavailable", number(0)}, field{"maxSurge", number(1)})},
		)})
	}
	return object(
		field{"apiVersion", text("apps/v1")},
		field{"kind", text(HostedKind(c))},
		field{"metadata", metadata(p, c, c.Name)},
		field{"spec", object(append(fields, field{"template", podTemplate(p, c, texts)})...)},
	)
}

func podTemplate(p *plan.Plan, c *plan.Component, texts []configText) *yaml.Node {
	return object(
		field{"metadata", object(
			field{"labels", labels(p, c)},
			// A policy or a kubeconfig is read once, at the start: other content is another pod.
			field{"annotations", when(len(texts) > 0, object(field{configChecksum, text(checksum(texts))}))},
		)},
		field{"spec", object(
			field{"automountServiceAccountToken", boolean(false)},
			field{"enableServiceLinks", boolean(false)},
			field{"securityContext", object(
				field{"runAsNonRoot", boolean(true)},
				field{"runAsUser", number(nobody)},
				field{"runAsGroup", number(nobody)},
				field{"fsGroup", number(nobody)},
				field{"seccompProfile", object(field{"type", text("RuntimeDefault")})},
			)},
			field{"affinity",
				object(field{"podAntiAffinity",
					object(field{"preferredDuringSchedulingIgnoredDuringExecution", list(object(
						field{"weight", number(100)},
						field{"podAffinityTerm", object(
							field{"labelSelector", object(field{"matchLabels", selector(c)})},
							field{"topologyKey", text(hostnameLabel)},
						)},
					))})})},
			field{"topologySpreadConstraints", list(object(
				field{"maxSkew", number(1)},
				field{"topologyKey", text(zoneLabel)},
				field{"whenUnsatisfiable", text("ScheduleAnyway")}, // of nodes without the label, too
				field{"labelSelector", object(field{"matchLabels", selector(c)})},
			))},
			field{"containers", list(hostedContainer(c))},
			field{"volumes", listOf(hostedMounts(c), func(m plan.Mount) *yaml.Node {
				return hostedVolume(p, c, m, texts)
			})},
		)},
	)
}

// checksum changes when pods have to start again: comments are not read by the servers, and a better word in one is no
// reason to restart them.
func checksum(texts []configText) string {
	sum := sha256.New()
	for _, t := range texts {
		sum.Write([]byte(t.key + "\x00"))
		for line := range strings.Lines(t.content) {
			if !strings.HasPrefix(line, "#") {
				sum.Write([]byte(line))
			}
		}
		sum.Write([]byte("\x00"))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func hostedContainer(c *plan.Component) *yaml.Node {
	environment := []*yaml.Node{podField(plan.PodName, "metadata.name"), podField(plan.PodIP, "status.podIP")}
	if c.ReadsBegunStores() {
		environment = append(environment, begunStore(c.Store))
	}
	environment = append(environment, variables(c.Env)...)
	known := names(c.Env)
	known[plan.PodName], known[plan.PodIP] = true, true
	return object(
		field{"name", text(c.Kind)},
		field{"image", text(c.Image)},
		field{"imagePullPolicy", text("IfNotPresent")},
		field{"command", commandWords(c.Command, known)},
		field{"args", arguments(c.Args, known)},
		field{"env", list(environment...)},
		field{"ports", list(object(field{"containerPort", number(c.Port)}))},
		field{"resources", object(field{"requests", object(field{"cpu", text(cpuRequests[c.Kind])})})},
		field{"securityContext", object(
			field{"allowPrivilegeEscalation", boolean(false)},
			field{"capabilities", object(
				field{"drop", list(text("ALL"))},
				// The program of the released images carries this capability, and does not start where it cannot have
				// it.
				field{"add", when(c.Kind == kubever.APIServer, list(text("NET_BIND_SERVICE")))},
			)},
		)},
		field{"startupProbe", hostedProbe(c.Startup)},
		field{"livenessProbe", hostedProbe(c.Liveness)},
		field{"readinessProbe", hostedProbe(readiness(c))},
		field{"volumeMounts", listOf(hostedMounts(c), hostedVolumeMount)},
	)
}

// readiness asks what liveness asks, and takes a pod out of its service at once.
func readiness(c *plan.Component) *plan.Probe {
	if c.Liveness == nil || c.Kind == plan.Etcd {
		return nil // members must find each other when none is ready
	}
	q := *c.Liveness
	q.DelaySeconds, q.FailureThreshold = 0, 2
	return &q
}

// hostedVolumeMount mounts a directory, or the one file of a volume.
func hostedVolumeMount(m plan.Mount) *yaml.Node {
	return object(
		field{"name", text(m.Name)},
		field{"mountPath", text(m.Path)},
		field{"subPath", when(!m.Directory, text(path.Base(m.Path)))},
		field{"readOnly", when(m.ReadOnly, boolean(true))},
	)
}

// begunStore is the variable of etcd for --initial-cluster-state, which is not set before the store has begun.
func begunStore(store string) *yaml.Node {
	return object(field{"name", text("ETCD_INITIAL_CLUSTER_STATE")},
		field{"valueFrom", object(field{"configMapKeyRef", object(field{"name", text(plan.BegunStores)},
			field{"key", text(store)}, field{"optional", boolean(true)})})})
}

func podField(name, path string) *yaml.Node {
	return object(field{"name", text(name)},
		field{"valueFrom", object(field{"fieldRef", object(field{"fieldPath", text(path)})})})
}

func hostedProbe(q *plan.Probe) *yaml.Node {
	if q == nil {
		return nil
	}
	action := field{"tcpSocket", object(field{"port", number(q.Port)})}
	if q.Path != "" {
		action = field{"httpGet", object(field{"path", text(q.Path)}, field{"port", number(q.Port)},
			field{"scheme", optional(q.Scheme)})}
	}
	return object(
		action,
		field{"initialDelaySeconds", number(q.DelaySeconds)},
		field{"timeoutSeconds", number(q.TimeoutSeconds)},
		field{"periodSeconds", number(q.PeriodSeconds)},
		field{"failureThreshold", number(q.FailureThreshold)},
	)
}

// hostedMounts are the mounts of a component; what outlives its pods is the volume that they claim.
func hostedMounts(c *plan.Component) []plan.Mount {
	mounts := slices.Clone(c.Mounts)
	directory, _ := keeps(c)
	for i := range mounts {
		if directory != "" && mounts[i].Path == directory {
			mounts[i].Name = dataVolume
		}
	}
	return mounts
}

// keeps is the directory of a component that outlives its pods, and what is claimed for it; "" for none.
func keeps(c *plan.Component) (directory, size string) {
	switch c.Kind {
	case plan.Etcd:
		directory, _ = c.Arg("data-dir")
		return directory, dataSize
	case plan.JointControllers:
		directory, _ = c.Arg("state-dir")
		return directory, stateSize
	}
	return "", ""
}

// hostedVolume is what a mount of a host becomes: the files that the component names, from its Secret and its
// ConfigMap, or an empty directory where it writes. A directory of which it names no file is a Secret of its own.
func hostedVolume(p *plan.Plan, c *plan.Component, m plan.Mount, texts []configText) *yaml.Node {
	switch {
	case HostedKind(c) == statefulSet && m.Name == dataVolume:
		return nil
	case !m.ReadOnly:
		return object(field{"name", text(m.Name)}, field{"emptyDir", object()})
	}
	var secrets, configs []*yaml.Node
	for _, f := range secretFiles(p, c) {
		if mountOf(c, f.Path).Path == m.Path {
			secrets = append(secrets, item(f.Key, f.Path, m.Path))
		}
	}
	for _, t := range texts {
		if in := mountOf(c, t.path); in != nil && in.Path == m.Path {
			configs = append(configs, item(t.key, t.path, m.Path))
		}
	}
	if len(secrets)+len(configs) == 0 {
		return object(field{"name", text(m.Name)},
			field{"secret",
				object(field{"secretName", text(directorySecret(c, &m))}, field{"defaultMode", octal(secretMode)})})
	}
	var sources []*yaml.Node
	if len(secrets) > 0 {
		sources = append(sources,
			object(field{"secret", object(field{"name", text(secretOf(c))}, field{"items", list(secrets...)})}))
	}
	if len(configs) > 0 {
		sources = append(
			sources, object(field{"configMap", object(field{"name", text(c.Name)}, field{"items", list(configs...)})}))
	}
	return object(field{"name", text(m.Name)},
		field{"projected", object(field{"defaultMode", octal(secretMode)}, field{"sources", list(sources...)})})
}

// directorySecret names the Secret of a directory that a component reads without naming its files.
func directorySecret(c *plan.Component, m *plan.Mount) string { return c.Name + "-" + m.Name }

// octal is a mode as the API takes it, which is a decimal number, with the number that people know behind it.
func octal(mode int) *yaml.Node {
	node := number(mode)
	node.LineComment = "# 0440"
	return node
}

func item(key, file, directory string) *yaml.Node {
	relative := strings.TrimPrefix(strings.TrimPrefix(path.Clean(file), path.Clean(directory)), "/")
	if relative == "" {
		relative = path.Base(file) // the mount is the file itself
	}
	return object(field{"key", text(key)}, field{"path", text(relative)})
}
