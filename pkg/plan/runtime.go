package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Runtime is what of a plan fusionctl's own components go by while they run, and nothing else: a plan may hold secrets,
// and what no component reads need not agree with what runs. Shape: JSON as in the plan.json of a rendered host.
type Runtime struct {
	Name    string          `json:"name"`
	Kubelet kubever.Version `json:"kubelet"`
	Legacy  APIServers      `json:"legacy"`
	Modern  APIServers      `json:"modern"`
	// Resources are those that API servers serve, by key.
	Resources       []pair.Resource `json:"resources"`
	CustomResources pair.Resource   `json:"customResources"`
	Pods            *Pods           `json:"pods,omitempty"`    // without the reasons; nil: pods are not mutated
	Gateway         *Gateway        `json:"gateway,omitempty"` // of the gateway alone, without how it runs
}

// APIServers is what decides which resources the API servers of a side serve, and how fresh what they return is.
type APIServers struct {
	Version kubever.Version `json:"version"`
	Retired bool            `json:"retired,omitempty"` // none of them runs any more
	// RuntimeConfig is --runtime-config of all of them: what one of them turns off is off.
	RuntimeConfig map[string]bool `json:"runtimeConfig,omitempty"`
	// StaleReads: one of them may read from an etcd member that lags behind, so that what it does not find may exist.
	StaleReads bool `json:"staleReads,omitempty"`
	// ProxyHeaders are those in which they believe a front proxy, by their arguments; nil for the usual ones.
	ProxyHeaders *ProxyHeaders `json:"proxyHeaders,omitempty"`
}

// RunningSides are the sides of which API servers run.
func (r *Runtime) RunningSides() []pair.Side {
	return slices.DeleteFunc(pair.Sides(), func(side pair.Side) bool { return r.Side(side).Retired })
}

// ProxyHeaders are the names of headers in which API servers believe a front proxy, beside X-Remote-User and the like.
type ProxyHeaders struct {
	User  []string `json:"user,omitempty"`
	Group []string `json:"group,omitempty"`
	UID   []string `json:"uid,omitempty"`
	Extra []string `json:"extra,omitempty"` // prefixes
}

// Runtime returns what running components read of the plan. It shares nothing that they change.
func (p *Plan) Runtime() *Runtime {
	stale := p.StaleReaders()
	of := func(side pair.Side) APIServers {
		return APIServers{Version: p.Side(side).Version, Retired: p.Side(side).Retired,
			StaleReads:    slices.Contains(stale, side),
			RuntimeConfig: runtimeConfig(p.ComponentsOf(side, kubever.APIServer)),
			ProxyHeaders:  proxyHeaders(p.ComponentsOf(side, kubever.APIServer))}
	}
	r := &Runtime{Name: p.Name, Kubelet: p.Kubelet, Legacy: of(pair.Legacy), Modern: of(pair.Modern),
		CustomResources: p.CustomResources}
	createsThere := p.Gateway != nil && p.Gateway.Create == pair.Legacy // what is not handed over
	for i := range p.Resources {
		if row := p.Resources[i]; !row.Pseudo {
			row.Copied = false
			if !createsThere { // what runs need not start anew when keys have gone over
				row.HandedOver, row.HandedOverIn = false, nil
			}
			r.Resources = append(r.Resources, row.Resource)
		}
	}
	if p.Pods != nil {
		pods := *p.Pods
		pods.TokensWhy, pods.Service.Why, pods.Admission.Why = "", "", ""
		r.Pods = &pods
	}
	if p.Gateway != nil {
		r.Gateway = &Gateway{Create: p.Gateway.Create, SharedIdentities: p.Gateway.SharedIdentities,
			Clusters: slices.Clone(p.Gateway.Clusters)}
	}
	return r
}

// runtimeConfig joins the settings of several API servers, of which each has its own.
func runtimeConfig(servers []Component) map[string]bool {
	settings := map[string]bool{}
	for _, c := range servers {
		for _, a := range c.Args {
			if kubever.FlagName(a.Name) != "runtime-config" {
				continue
			}
			for setting := range strings.SplitSeq(a.Value, ",") {
				key, value, _ := strings.Cut(strings.TrimSpace(setting), "=")
				if on, known := settings[key]; key == "" || known && !on {
					continue
				}
				on, err := strconv.ParseBool(value) // as the server does; the key alone turns it on
				settings[key] = on || err != nil
			}
		}
	}
	return settings
}

// proxyHeaders joins the headers that several API servers believe.
func proxyHeaders(servers []Component) *ProxyHeaders {
	h := &ProxyHeaders{}
	flags := map[string]struct {
		usual string
		into  *[]string
	}{
		"requestheader-username-headers":     {"X-Remote-User", &h.User},
		"requestheader-group-headers":        {"X-Remote-Group", &h.Group},
		"requestheader-uid-headers":          {"X-Remote-Uid", &h.UID},
		"requestheader-extra-headers-prefix": {"X-Remote-Extra-", &h.Extra},
	}
	unusual := false
	for _, c := range servers {
		for _, a := range c.Args {
			flag, known := flags[kubever.FlagName(a.Name)]
			if !known {
				continue
			}
			for _, name := range splitList(a.Value) {
				if !strings.EqualFold(name, flag.usual) && !slices.Contains(*flag.into, name) {
					*flag.into, unusual = append(*flag.into, name), true
				}
			}
		}
	}
	if !unusual {
		return nil
	}
	return h
}

// TurnsOff reports whether --runtime-config turns a resource off: "apps/v1beta1=false",
// "extensions/v1beta1/ingresses=false", "api/beta=false", "api/all=false". The narrowest setting counts.
func (s *APIServers) TurnsOff(gvr schema.GroupVersionResource) bool {
	on, given := s.Setting(gvr)
	return given && !on
}

// Setting is what --runtime-config says of a resource, if it says anything.
func (s *APIServers) Setting(gvr schema.GroupVersionResource) (on, given bool) {
	gv := gvr.GroupVersion().String()
	if gvr.Group == "" {
		gv = "api/" + gvr.Version
	}
	maturity := "api/ga"
	switch {
	case strings.Contains(gvr.Version, "alpha"):
		maturity = "api/alpha"
	case strings.Contains(gvr.Version, "beta"):
		maturity = "api/beta"
	}
	keys := []string{gv + "/" + gvr.Resource, gv, maturity, "api/all"}
	if kubever.ByNameAlone(gvr.GroupVersion(), s.Version.Minor) {
		keys = keys[:2]
	}
	for _, key := range keys {
		if on, given := s.RuntimeConfig[key]; given {
			return on, true
		}
	}
	return false, false
}

// Side returns the API servers of a side.
func (r *Runtime) Side(name pair.Side) *APIServers {
	if name == pair.Legacy {
		return &r.Legacy
	}
	return &r.Modern
}

// StaleReaders are the sides whose API servers may return what is stale.
func (r *Runtime) StaleReaders() []pair.Side {
	return slices.DeleteFunc(pair.Sides(), func(side pair.Side) bool { return !r.Side(side).StaleReads })
}

// Resource returns the row of the key, nil when there is none.
func (r *Runtime) Resource(key string) *pair.Resource {
	i, found := slices.BinarySearchFunc(r.Resources, key, func(row pair.Resource, key string) int {
		return cmp.Compare(row.Key, key)
	})
	if !found {
		return nil
	}
	return &r.Resources[i]
}

// Row returns the row of the resource that an API server names, nil for a custom resource or one of an extension API
// server.
func (r *Runtime) Row(gr schema.GroupResource) *pair.Resource {
	fact, known := kubever.ResourceFor(gr)
	if !known {
		return nil
	}
	return r.Resource(fact.Key)
}

// VisibleToBoth reports whether both sides see the same objects of a row.
func (r *Runtime) VisibleToBoth(key string) bool {
	row := r.Resource(key)
	return row != nil && row.VisibleToBoth()
}

// The schemas of files that ParseRuntime reads.
const (
	RuntimeSchema = "fusionctl/runtime/v1"
	// Schema heads a whole plan, as `fusionctl plan -o json` prints it.
	Schema = "fusionctl/plan/v1"
)

type runtimeDocument struct {
	Schema string `json:"schema"`
	*Runtime
}

type planDocument struct {
	Schema string `json:"schema"`
	*Plan
}

// Format prints it as JSON. ParseRuntime reads it.
func (r *Runtime) Format() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(runtimeDocument{RuntimeSchema, r})
	return out.Bytes(), err
}

// ParseRuntime reads what Format prints. It also reads a whole plan, as `fusionctl plan -o json` prints it, and the
// plan.json of a host that was rendered before Runtime had a schema of its own. Errors: another schema; a field that
// this fusionctl does not know, which a newer one may have meant something by; versions, API servers or resources that
// are missing; resources that are out of order.
func ParseRuntime(data []byte) (*Runtime, error) {
	r, err := parseRuntime(data)
	if err != nil {
		return nil, fmt.Errorf("reading a plan: %w", err)
	}
	if r.Legacy.Version.Minor == 0 || r.Modern.Version.Minor == 0 || r.Kubelet.Minor == 0 || len(r.Resources) == 0 {
		return nil, errors.New("reading a plan: it names no versions or no resources")
	}
	for i := 1; i < len(r.Resources); i++ {
		if before, key := r.Resources[i-1].Key, r.Resources[i].Key; before >= key {
			return nil, fmt.Errorf("reading a plan: resource %q follows %q: want each once, in order", key, before)
		}
	}
	return r, nil
}

func parseRuntime(data []byte) (*Runtime, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&head); err != nil {
		return nil, err
	}
	switch head.Schema {
	case RuntimeSchema:
		r := &Runtime{}
		return r, strictly(data, &runtimeDocument{Runtime: r})
	case Schema:
		p := &Plan{}
		if err := strictly(data, &planDocument{Plan: p}); err != nil {
			return nil, err
		}
		for _, side := range pair.Sides() { // their arguments decide what their answers are worth
			if len(p.ComponentsOf(side, kubever.APIServer)) == 0 {
				return nil, fmt.Errorf("it names no API server of the %s side", side)
			}
		}
		return p.Runtime(), nil
	}
	return nil, fmt.Errorf("schema %q: want %s or %s", head.Schema, RuntimeSchema, Schema)
}

// strictly decodes one JSON value of which each field is known.
func strictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("trailing data")
	}
	return nil
}
