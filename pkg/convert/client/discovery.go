package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// discover answers a request for discovery: what the server says, and beside it what is served by converting. It
// answers in the form that every release has; a client that would rather have all in one answer takes it, too. Errors:
// handled is false for a path of something else.
func (t *transport) discover(req *http.Request) (response *http.Response, handled bool, err error) {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(req.URL.Path, t.base), "/"), "/")
	if req.Method != http.MethodGet || parts[0] != "api" && parts[0] != "apis" || len(parts) > 3 {
		return nil, false, nil
	}
	if parts[0] == "api" { // there is nothing to add
		req = req.Clone(req.Context())
		// 1.6 refuses to answer what begins with a form that it does not know
		req.Header.Set("Accept", runtime.ContentTypeJSON)
		response, err = t.next.RoundTrip(req)
		return response, true, err
	}
	added, err := t.live.additions(req.Context())
	if err != nil {
		return nil, true, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept", runtime.ContentTypeJSON)
	response, err = t.next.RoundTrip(req)
	if err != nil || response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		return response, true, err
	}
	var answer any
	switch len(parts) {
	case 1:
		groups := &metav1.APIGroupList{}
		answer, err = groups, decodeAnswer(response, groups)
		groups.Kind, groups.APIVersion = "APIGroupList", "v1"
		added.addGroups(groups)
	case 2:
		group := &metav1.APIGroup{}
		answer, err = group, decodeAnswer(response, group)
		group.Kind, group.APIVersion, group.Name = "APIGroup", "v1", parts[1]
		added.addVersions(group)
		if len(group.Versions) == 0 {
			return response, true, err
		}
	case 3:
		list := &metav1.APIResourceList{}
		answer, err = list, decodeAnswer(response, list)
		gv := schema.GroupVersion{Group: parts[1], Version: parts[2]}
		list.Kind, list.APIVersion, list.GroupVersion = "APIResourceList", "v1", gv.String()
		list.APIResources = append(list.APIResources, added[gv]...)
		if len(list.APIResources) == 0 {
			return response, true, err
		}
	}
	if err != nil {
		return nil, true, fmt.Errorf("reading %s: %w", req.URL.Path, err)
	}
	return jsonResponse(response, http.StatusOK, answer)
}

// decodeAnswer reads an answer and puts the text back; a 404 leaves value as it is.
func decodeAnswer(response *http.Response, value any) error {
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(text))
	if err != nil || response.StatusCode == http.StatusNotFound {
		return err
	}
	return json.Unmarshal(text, value)
}

// jsonResponse gives a response another content.
func jsonResponse(response *http.Response, status int, value any) (*http.Response, bool, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, true, err
	}
	setBody(response, status, text)
	return response, true, nil
}

// additions are the resources that are served by converting, in the versions that the server itself lacks.
type additions map[schema.GroupVersion][]metav1.APIResource

// additions lists what converting adds. A kind whose question has no answer is not added.
func (l *Live) additions(ctx context.Context) (additions, error) {
	server, err := l.view(ctx)
	if err != nil {
		return nil, err
	}
	added := additions{}
	for _, api := range natives() {
		gvk := api.WithKind(api.Kind)
		served, ok := server.InAnotherVersion(gvk, l.converter.Equivalents(gvk))
		if !ok {
			continue
		}
		resource := metav1.APIResource{Name: api.Name, Kind: api.Kind, Namespaced: api.Namespaced,
			SingularName: strings.ToLower(api.Kind), Verbs: served.Verbs}
		added[api.GroupVersion] = append(added[api.GroupVersion], resource)
		for _, sub := range served.Subresources {
			r := metav1.APIResource{Name: api.Name + "/" + sub.Name, Kind: api.Kind, Namespaced: api.Namespaced,
				Verbs: metav1.Verbs{"get", "patch", "update"}}
			if sub.Name == "scale" {
				scale := kubever.ScaleKind(api.GroupVersion)
				r.Group, r.Version, r.Kind = scale.Group, scale.Version, scale.Kind
			}
			added[api.GroupVersion] = append(added[api.GroupVersion], r)
		}
	}
	return added, nil
}

// addGroups adds groups and versions behind what the server lists.
func (a additions) addGroups(groups *metav1.APIGroupList) {
	for i := range groups.Groups {
		a.addVersions(&groups.Groups[i])
	}
	var names []string
	for gv := range a {
		known := slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
		if !known && gv.Group != "" && !slices.Contains(names, gv.Group) {
			names = append(names, gv.Group)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		group := metav1.APIGroup{Name: name}
		a.addVersions(&group)
		groups.Groups = append(groups.Groups, group)
	}
}

func (a additions) addVersions(group *metav1.APIGroup) {
	var more []string
	for gv := range a {
		known := slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool {
			return v.Version == gv.Version
		})
		if gv.Group == group.Name && !known {
			more = append(more, gv.Version)
		}
	}
	slices.SortFunc(more, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	for _, v := range more {
		group.Versions = append(group.Versions,
			metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: group.Name, Version: v}.String(),
				Version: v})
	}
	if group.PreferredVersion.Version == "" && len(group.Versions) > 0 {
		group.PreferredVersion = group.Versions[0]
	}
}

// evictionKind is what the eviction subresource of pods takes.
func evictionKind(server *negotiate.Server) schema.GroupVersionKind {
	for _, resource := range server.Served[schema.GroupVersion{Version: "v1"}] {
		if sub, ok := resource.Subresource("eviction"); ok && resource.Name == "pods" && sub.Kind.Version != "" {
			return sub.Kind
		}
	}
	return schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "Eviction"} // of servers too old to say
}
