package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/migrate"
)

// --yes alone does not agree to the loss of fields on the way back.
func TestUndoThatLosesFieldsAsksForMoreThanYes(t *testing.T) {
	d, err := migrate.ParseDefinition([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"as.g.example","uid":"u"},"spec":{"group":"g.example","scope":"Namespaced",
		"names":{"plural":"as","kind":"A"},"versions":[
		{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
		{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","properties":
			{"size":{"type":"string"}}}}}]},"status":{"storedVersions":["v1"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := migrate.New(migrate.Observation{Resource: d.Resource(), Definition: d}, migrate.Goal{Storage: "v2"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, config := filepath.Join(dir, "as.plan"), filepath.Join(dir, "kubeconfig")
	for name, text := range map[string]string{file: string(data), config: `{apiVersion: v1, kind: Config,
		current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {token: t}}]}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	records, err := journal.Open[migrate.Record](journal.Of(file), journal.ID(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := records.Append(migrate.Record{Event: migrate.EventDone, ID: p.Steps[0].ID()}); err != nil {
		t.Fatal(err)
	}
	if err := records.Close(); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := run(t, "crd", "undo", file, "--kubeconfig", config, "--yes")
	if code != 2 || !strings.Contains(stderr, "v1 does not have .size") || !strings.Contains(stderr, "--lose-fields") {
		t.Errorf("exit %d, want 2 with the field and the flag:\n%s", code, stderr)
	}
}
