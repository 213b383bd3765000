package admission

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

const ephemeralContainers = "ephemeralcontainers"

// The variables from which in-cluster configuration is made.
const (
	hostVariable = "KUBERNETES_SERVICE_HOST"
	portVariable = "KUBERNETES_SERVICE_PORT"
)

// pod changes a pod that is made.
func (c *Change) pod(ctx context.Context, p *patch, r Request, tokens Tokens) (warnings []string, err error) {
	c.labelled(p, p.object, nil)
	podSpec := inner(p.object, "spec")
	for _, kind := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for i, container := range list(podSpec, kind) {
			c.led(p, container, []string{"spec", kind, strconv.Itoa(i)})
		}
	}
	if c.placesDaemons {
		placed(p, podSpec)
	}
	if !c.secretTokens {
		return nil, nil
	}
	return c.mountable(ctx, p, podSpec, r, tokens)
}

// placed binds a pod of a DaemonSet to its node, as controllers before 1.12 do. Those since pin it by a term of
// affinity that is empty to older servers: their scheduler finds no node for it, and their kubelets refuse the pod.
// Source: pkg/controller/daemon/util of 1.12 to 1.36; pkg/scheduler/algorithm/predicates of 1.6 to 1.10.
func placed(p *patch, podSpec map[string]any) {
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	bound, _ := podSpec["nodeName"].(string)
	affinity := inner(podSpec, "affinity", "nodeAffinity")
	terms := list(inner(affinity, required), "nodeSelectorTerms")
	if bound != "" || len(terms) != 1 || len(terms[0]) != 1 || !ofDaemonSet(p.object) {
		return
	}
	fields := list(terms[0], "matchFields")
	if len(fields) != 1 || fields[0]["key"] != "metadata.name" || fields[0]["operator"] != "In" {
		return
	}
	names, _ := fields[0]["values"].([]any)
	if len(names) != 1 {
		return
	}
	p.set(podSpec, []string{"spec", "nodeName"}, names[0])
	delete(affinity, required)
	p.operations = append(p.operations, Operation{Op: "remove", Path: "/spec/affinity/nodeAffinity/" + required})
}

func ofDaemonSet(pod map[string]any) bool {
	return slices.ContainsFunc(list(inner(pod, "metadata"), "ownerReferences"), func(o map[string]any) bool {
		version, _ := o["apiVersion"].(string)
		group, _, _ := strings.Cut(version, "/")
		return o["controller"] == true && o["kind"] == "DaemonSet" && (group == "apps" || group == "extensions")
	})
}

// newEphemeralContainers changes those that an update adds to a running pod; the others cannot be changed. Before 1.22
// the object is not the pod but the list alone.
func (c *Change) newEphemeralContainers(p *patch, old map[string]any) {
	var at []string
	in, before := p.object, old
	if spec := inner(p.object, "spec"); spec != nil {
		at, in, before = []string{"spec"}, spec, inner(old, "spec")
	}
	running := map[string]bool{}
	for _, container := range list(before, "ephemeralContainers") {
		name, _ := container["name"].(string)
		running[name] = true
	}
	for i, container := range list(in, "ephemeralContainers") {
		if name, _ := container["name"].(string); !running[name] {
			c.led(p, container, append(slices.Clone(at), "ephemeralContainers", strconv.Itoa(i)))
		}
	}
}

// led sets the variables that a container does not set itself. They come first, so that others that refer to them see
// these values.
func (c *Change) led(p *patch, container map[string]any, at []string) {
	if container == nil {
		return
	}
	env := list(container, "env")
	var missing []any
	for _, v := range []struct{ name, value string }{{hostVariable, c.host}, {portVariable, c.port}} {
		if !slices.ContainsFunc(env, func(e map[string]any) bool { return e["name"] == v.name }) {
			missing = append(missing, map[string]any{"name": v.name, "value": v.value})
		}
	}
	at = append(slices.Clone(at), "env")
	if len(missing) == 0 {
		return
	}
	if len(env) == 0 {
		p.set(container, at, missing)
		return
	}
	for i, variable := range missing {
		p.operations = append(p.operations,
			Operation{Op: "add", Path: pointer(append(slices.Clone(at), strconv.Itoa(i))), Value: variable})
	}
	written, _ := container["env"].([]any)
	container["env"] = append(missing, written...)
}

// mountable replaces projected tokens by those of a Secret. A volume as the API server injects it is replaced as a
// whole, under its name, so that the mounts stay and the server does not inject another; of one that holds more than
// that, only the token's source. Both name the keys that they want: a kubelet waits for a Secret that does not have
// them yet.
func (c *Change) mountable(ctx context.Context, p *patch, podSpec map[string]any, r Request, tokens Tokens) (
	warnings []string, err error) {
	var secret string
	for i, volume := range list(podSpec, "volumes") {
		sources := list(inner(volume, "projected"), "sources")
		whole := !slices.ContainsFunc(sources, func(s map[string]any) bool { return !injected(s) })
		for j, source := range sources {
			token := inner(source, "serviceAccountToken")
			if token == nil || !forServer(token) {
				continue
			}
			if secret == "" {
				account, _ := podSpec["serviceAccountName"].(string)
				if account == "" {
					account = "default"
				}
				name, warning, err := tokens.Secret(ctx, r.Namespace, account, r.DryRun)
				if err != nil {
					return nil, err
				}
				if secret = name; warning != "" {
					warnings = append(warnings, warning)
				}
			}
			at := []string{"spec", "volumes", strconv.Itoa(i)}
			if whole {
				mode, ok := inner(volume, "projected")["defaultMode"]
				if !ok {
					mode = 0o644
				}
				value := map[string]any{"name": volume["name"], "secret": map[string]any{
					"secretName": secret, "defaultMode": mode,
					"items": []any{item("ca.crt"), item("namespace"), item("token")},
				}}
				p.operations = append(p.operations, Operation{Op: "replace", Path: pointer(at), Value: value})
				podSpec["volumes"].([]any)[i] = value
				break
			}
			path, _ := token["path"].(string)
			value := map[string]any{
				"secret": map[string]any{"name": secret, "items": []any{map[string]any{"key": "token", "path": path}}}}
			p.operations = append(p.operations,
				Operation{Op: "replace", Path: pointer(append(at, "projected", "sources", strconv.Itoa(j))),
					Value: value})
			inner(volume, "projected")["sources"].([]any)[j] = value
		}
	}
	return warnings, nil
}

func item(key string) any { return map[string]any{"key": key, "path": key} }

// forServer reports whether a token is for the API server: one for another audience is not what a Secret holds.
func forServer(token map[string]any) bool {
	audience, _ := token["audience"].(string)
	return audience == ""
}

// injected reports whether a source is one of those with which the API server makes the directory of a service account:
// the token, the CA and the namespace under their usual names, all of which the Secret of a token has.
func injected(source map[string]any) bool {
	if len(source) != 1 {
		return false
	}
	switch token := inner(source, "serviceAccountToken"); {
	case token != nil:
		return token["path"] == "token" && forServer(token)
	case source["configMap"] != nil:
		config := inner(source, "configMap")
		items := list(config, "items")
		return config["name"] == "kube-root-ca.crt" && len(items) == 1 && items[0]["key"] == "ca.crt" &&
			items[0]["path"] == "ca.crt"
	case source["downwardAPI"] != nil:
		items := list(inner(source, "downwardAPI"), "items")
		return len(items) == 1 && items[0]["path"] == "namespace" &&
			inner(items[0], "fieldRef")["fieldPath"] == "metadata.namespace"
	}
	return false
}
