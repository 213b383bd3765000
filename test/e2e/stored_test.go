//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
	"github.com/kubefusion/fusionctl/test/rig"
)

// storedObject is an object of a type, or with a field, that the newest version no longer has, or in an encoding of its
// own.
type storedObject struct {
	path   string // to create it at
	object string // JSON
	key    string // below the prefix; "" when it is stored in another version than that of the answer
}

// What servers stored is decoded to what they answer, whichever release wrote it: also types and fields that are gone
// since, and CBOR.
func TestStoredValuesAreDecodedAsTheirServersDo(t *testing.T) {
	t.Parallel()
	for minor, test := range map[kubever.Minor]struct {
		args    []string
		objects []storedObject
	}{
		6: {[]string{"--runtime-config=api/all=true"}, []storedObject{
			{"/apis/extensions/v1beta1/podsecuritypolicies", podSecurityPolicy("extensions/v1beta1"),
				"podsecuritypolicy/old"},
			{"/apis/extensions/v1beta1/thirdpartyresources",
				`{"apiVersion":"extensions/v1beta1","kind":"ThirdPartyResource","metadata":{"name":"cron-tab.example.com"},"description":"d","versions":[{"name":"v1"}]}`, "thirdpartyresources/cron-tab.example.com"},
			{"/apis/settings.k8s.io/v1alpha1/namespaces/default/podpresets", podPreset, "podpresets/default/old"},
			{"/apis/batch/v2alpha1/namespaces/default/cronjobs", cronJob, "cronjobs/default/old"},
			{"/apis/extensions/v1beta1/namespaces/default/deployments", oldDeployment, "deployments/default/old"},
		}},
		10: {[]string{"--runtime-config=api/all=true", "--feature-gates=PodPriority=true"}, []storedObject{
			{"/apis/extensions/v1beta1/podsecuritypolicies", podSecurityPolicy("extensions/v1beta1"),
				"podsecuritypolicy/old"},
			{"/apis/settings.k8s.io/v1alpha1/namespaces/default/podpresets", podPreset, "podpresets/default/old"},
			{"/apis/scheduling.k8s.io/v1alpha1/priorityclasses",
				`{"apiVersion":"scheduling.k8s.io/v1alpha1","kind":"PriorityClass","metadata":{"name":"old"},"value":1000,"description":"d"}`, "priorityclasses/old"},
			{"/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations",
				`{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"InitializerConfiguration","metadata":{"name":"old"},"initializers":[{"name":"a.example.com","rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}]}`, "initializerconfigurations/old"},
		}},
		15: {[]string{"--runtime-config=api/all=true"}, []storedObject{
			{"/apis/policy/v1beta1/podsecuritypolicies", podSecurityPolicy("policy/v1beta1"), "podsecuritypolicy/old"},
			{"/apis/settings.k8s.io/v1alpha1/namespaces/default/podpresets", podPreset, "podpresets/default/old"},
			{"/apis/auditregistration.k8s.io/v1alpha1/auditsinks",
				`{"apiVersion":"auditregistration.k8s.io/v1alpha1","kind":"AuditSink","metadata":{"name":"old"},"spec":{"policy":{"level":"Metadata","stages":["ResponseComplete"]},"webhook":{"throttle":{"qps":10,"burst":15},"clientConfig":{"url":"https://192.0.2.9/audit"}}}}`, "auditsinks/old"},
		}},
		36: {[]string{"--feature-gates=CBORServingAndStorage=true"}, []storedObject{
			{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", cronTabs, ""},
			{"/apis/example.com/v1/namespaces/default/crontabs",
				`{"apiVersion":"example.com/v1","kind":"CronTab","metadata":{"name":"new","labels":{"a":"b"}},"spec":{"text":"t","int":9007199254740993,"float":1.5,"list":[{"deep":{"flag":true}}]}}`, "example.com/crontabs/default/new"},
		}},
	} {
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			etcd := r.StartEtcd("core")
			server := r.StartAPIServer("apiserver", minor, append(r.APIServerArgs(minor, etcd), test.args...))
			server.WaitReady()
			client := server.Client("rig", "system:masters")
			answers := map[string]map[string]any{}
			for _, o := range test.objects {
				// what has just been defined is served a little later
				r.Eventually("creating at "+o.path, func(ctx context.Context) error {
					var answer json.RawMessage
					if err := client.Call(ctx, http.MethodPost, o.path, json.RawMessage(o.object),
						&answer); err != nil {
						return err
					}
					object := map[string]any{}
					if o.key != "" {
						answers[o.key] = object
					}
					return utiljson.Unmarshal(answer, &object)
				})
			}
			compareStored(t, etcd, answers)
		})
	}
}

// compareStored decodes everything in the store, and holds what is under some keys against what the server answered.
func compareStored(t *testing.T, etcd *rig.Etcd, answers map[string]map[string]any) {
	t.Helper()
	response, err := etcd.Client().Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	encodings := map[storage.Encoding]int{}
	for _, kv := range response.Kvs {
		got, err := objects.Decode(kv.Value)
		if err != nil {
			t.Errorf("%s: %v", kv.Key, err)
			continue
		}
		e, err := storage.ReadEnvelope(kv.Value)
		if err != nil {
			t.Fatal(err)
		}
		encodings[e.Encoding]++
		var meta storage.Meta
		if err := e.ReadMeta(&meta); err != nil {
			t.Errorf("%s: its metadata: %v", kv.Key, err)
		}
		if objects.Nameless(got) {
			t.Errorf("%s: %v has fields without a name", kv.Key, got)
		}
		key := strings.TrimPrefix(string(kv.Key), "/registry/")
		want, ok := answers[key]
		if !ok {
			continue
		}
		delete(answers, key)
		if name := want["metadata"].(map[string]any)["name"]; name != string(meta.Name) {
			t.Errorf("%s: its metadata has the name %q, want %q", key, meta.Name, name)
		}
		if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
			t.Errorf("%s: what is stored is decoded to something else than the server answered (-server +decoded):\n"+
				"%s", key, diff)
		}
	}
	for key := range answers {
		t.Errorf("%s is not in the store", key)
	}
	t.Logf("%d values: %v", len(response.Kvs), encodings)
}

// plain is an object without what servers add to their answers, without what changes by itself, and without null.
func plain(object map[string]any) map[string]any {
	dropNulls(object)
	metadata := object["metadata"].(map[string]any)
	for _, field := range []string{"resourceVersion", "selfLink", "creationTimestamp"} {
		delete(metadata, field)
	}
	delete(object, "status")
	return object
}

func dropNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if inner == nil {
				delete(value, key)
			}
			dropNulls(inner)
		}
	case []any:
		for _, inner := range value {
			dropNulls(inner)
		}
	}
}

func podSecurityPolicy(apiVersion string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"PodSecurityPolicy","metadata":{"name":"old"},"spec":{"privileged":true,"allowedCapabilities":["NET_ADMIN"],
		"hostPorts":[{"min":80,"max":90}],"seLinux":{"rule":"RunAsAny"},"runAsUser":{"rule":"MustRunAs","ranges":[{"min":1,"max":65535}]},
		"supplementalGroups":{"rule":"RunAsAny"},"fsGroup":{"rule":"RunAsAny"},"volumes":["configMap","secret"]}}`, apiVersion)
}

const (
	podPreset = `{"apiVersion":"settings.k8s.io/v1alpha1","kind":"PodPreset","metadata":{"name":"old"},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"env":[{"name":"A","value":"b"}],"volumes":[{"name":"v","emptyDir":{}}],"volumeMounts":[{"name":"v","mountPath":"/v"}]}}`
	cronJob = `{"apiVersion":"batch/v2alpha1","kind":"CronJob","metadata":{"name":"old"},"spec":{"schedule":"0 1 * * *",
		"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"b"}]}}}}}}`
	oldDeployment = `{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"old"},"spec":{"replicas":2,
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b","resources":{"requests":{"cpu":"100m"}},"livenessProbe":{"httpGet":{"port":"http","path":"/"}}}]}}}}`
	cronTabs = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"crontabs.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"crontabs","singular":"crontab","kind":"CronTab","listKind":"CronTabList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
)
