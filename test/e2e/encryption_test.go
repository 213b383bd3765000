//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	kmsv1 "k8s.io/kms/apis/v1beta1"
	kms "k8s.io/kms/apis/v2"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// kmsPlugin is a KMS plugin. Its keys are its own: who has the plugin's socket can decrypt, and nothing else can.
type kmsPlugin struct {
	kms.UnimplementedKeyManagementServiceServer
	keys    []cipher.AEAD
	current atomic.Int64
}

// firstInterface is the same plugin by the interface of before 1.25: it seals keys, with which API servers encrypt.
type firstInterface struct {
	kmsv1.UnimplementedKeyManagementServiceServer
	plugin *kmsPlugin
}

func (f firstInterface) Version(context.Context, *kmsv1.VersionRequest) (*kmsv1.VersionResponse, error) {
	return &kmsv1.VersionResponse{Version: "v1beta1", RuntimeName: "test", RuntimeVersion: "1"}, nil
}

func (f firstInterface) Encrypt(_ context.Context, r *kmsv1.EncryptRequest) (*kmsv1.EncryptResponse, error) {
	sealed, _ := f.plugin.seal(r.Plain)
	return &kmsv1.EncryptResponse{Cipher: sealed}, nil
}

func (f firstInterface) Decrypt(_ context.Context, r *kmsv1.DecryptRequest) (*kmsv1.DecryptResponse, error) {
	plain, err := f.plugin.open(r.Cipher)
	return &kmsv1.DecryptResponse{Plain: plain}, err
}

// startKMS serves a plugin, by both interfaces, until the test ends, and returns the address of its socket.
func startKMS(t *testing.T) (plugin *kmsPlugin, endpoint string) {
	t.Helper()
	plugin = &kmsPlugin{}
	for range 2 {
		block, err := aes.NewCipher([]byte(rand.Text()[:16]))
		must(t, err)
		key, err := cipher.NewGCM(block)
		must(t, err)
		plugin.keys = append(plugin.keys, key)
	}
	dir, err := os.MkdirTemp("", "kms") // the path of a socket is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	must(t, err)
	server := grpc.NewServer()
	kms.RegisterKeyManagementServiceServer(server, plugin)
	kmsv1.RegisterKeyManagementServiceServer(server, firstInterface{plugin: plugin})
	go func() { _ = server.Serve(listener) }() // until it is stopped
	t.Cleanup(server.Stop)
	return plugin, "unix://" + socket
}

func (p *kmsPlugin) seal(plain []byte) (sealed []byte, id string) {
	current := p.current.Load()
	key := p.keys[current]
	nonce := make([]byte, key.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return key.Seal(append([]byte{byte(current)}, nonce...), nonce, plain, nil), p.id()
}

func (p *kmsPlugin) id() string { return fmt.Sprintf("key-%d", p.current.Load()) }

func (p *kmsPlugin) open(sealed []byte) ([]byte, error) {
	if len(sealed) < 1 || int(sealed[0]) >= len(p.keys) {
		return nil, errors.New("not sealed here")
	}
	key := p.keys[sealed[0]]
	sealed = sealed[1:]
	if len(sealed) < key.NonceSize() {
		return nil, errors.New("cut off")
	}
	return key.Open(nil, sealed[:key.NonceSize()], sealed[key.NonceSize():], nil)
}

func (p *kmsPlugin) Status(context.Context, *kms.StatusRequest) (*kms.StatusResponse, error) {
	return &kms.StatusResponse{Version: "v2", Healthz: "ok", KeyId: p.id()}, nil
}

func (p *kmsPlugin) Encrypt(_ context.Context, r *kms.EncryptRequest) (*kms.EncryptResponse, error) {
	sealed, id := p.seal(r.Plaintext)
	return &kms.EncryptResponse{Ciphertext: sealed, KeyId: id}, nil
}

func (p *kmsPlugin) Decrypt(_ context.Context, r *kms.DecryptRequest) (*kms.DecryptResponse, error) {
	plain, err := p.open(r.Ciphertext)
	return &kms.DecryptResponse{Plaintext: plain}, err
}

// encryptionKeys writes the entries of providers: each is named for itself, aescbc:key-of-aescbc.
func encryptionKeys(kmsEndpoint string) map[string]string {
	keys := map[string]string{"identity": "{identity: {}}"}
	for _, name := range []string{"aescbc", "aesgcm", "secretbox"} {
		secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name[:1]), 32))
		keys[name] = fmt.Sprintf("{%s: {keys: [{name: key-of-%s, secret: %s}]}}", name, name, secret)
	}
	keys["kms-v1"] = fmt.Sprintf("{kms: {name: key-of-kms, endpoint: %q, cachesize: 100}}", kmsEndpoint)
	keys["kms"] = fmt.Sprintf("{kms: {name: key-of-kms, endpoint: %q, apiVersion: v2}}", kmsEndpoint)
	return keys
}

// writeEncryption writes the configuration in the form that all releases read.
func writeEncryption(t *testing.T, file string, keys map[string]string, order ...string) {
	t.Helper()
	var entries []string
	for _, name := range order {
		entries = append(entries, keys[name])
	}
	must(t, os.WriteFile(file, []byte("kind: EncryptionConfig\napiVersion: v1\nresources:\n- resources: [secrets]\n"+
		"  providers: ["+strings.Join(entries, ", ")+"]\n"), 0o600))
}

// TestSecretsAreReadByBothSidesWhateverEncryptsThem: the steps of the runbook in docs/encryption.md, from one provider
// to the next. Servers are restarted one after the other, as on hosts, and at no moment is a secret out of sight.
func TestSecretsAreReadByBothSidesWhateverEncryptsThem(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.15.12", "1.36.3"
	r := rig.New(t)
	keys := encryptionKeys("")
	file := filepath.Join(r.Dir(), "encryption.yaml")
	writeEncryption(t, file, keys, "aescbc", "identity")
	argument := "encryption-provider-config=" + file
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, NoModernManager: true,
		NoControllers: true, More: access, LegacyServerArgs: []string{argument},
		ModernServerArgs: []string{argument}})
	clients := map[pair.Side]*rig.Client{}
	clients[pair.Legacy], clients[pair.Modern] = startBare(t, r, p)
	const path = "/api/v1/namespaces/demo/secrets"
	written := 0
	bothReadBoth := func(step string) {
		t.Helper()
		for _, side := range pair.Sides() {
			written++
			must(t, clients[side].Call(t.Context(), http.MethodPost, path, object{"metadata": object{
				"name": fmt.Sprintf("secret-%d", written)}, "data": object{"key": "dmFsdWU="}}, nil))
		}
		for _, side := range pair.Sides() {
			r.Eventually(fmt.Sprintf("%s: the %s side reads all secrets", step, side), func(ctx context.Context) error {
				var list struct {
					Items []struct {
						Metadata struct{ Name string }
						Data     map[string]string
					}
				}
				if err := clients[side].Call(ctx, http.MethodGet, path, nil, &list); err != nil {
					return err
				}
				readable := 0
				for _, secret := range list.Items {
					if strings.HasPrefix(secret.Metadata.Name, "secret-") && secret.Data["key"] == "dmFsdWU=" {
						readable++
					}
				}
				if readable != written {
					return fmt.Errorf("%d secrets, want %d", readable, written)
				}
				return nil
			})
		}
	}
	bothReadBoth("at first")
	configure := func(step string, order ...string) {
		t.Helper()
		writeEncryption(t, file, keys, order...)
		for _, server := range []*rig.APIServer{p.Legacy, p.Modern} {
			server.Restart()
			bothReadBoth(fmt.Sprintf("%s, %s restarted", step, server.Name))
		}
	}
	rewrite := func(provider string) {
		t.Helper()
		var list struct{ Items []map[string]any }
		must(t, clients[pair.Legacy].Call(t.Context(), http.MethodGet, "/api/v1/secrets", nil, &list))
		for _, secret := range list.Items {
			metadata := secret["metadata"].(map[string]any)
			must(t, clients[pair.Legacy].Call(t.Context(), http.MethodPut, fmt.Sprintf(
				"/api/v1/namespaces/%s/secrets/%s", metadata["namespace"], metadata["name"]), secret, nil))
		}
		storedWith(t, p.Stores["core"], "/registry/secrets/", provider)
	}
	rewrite("k8s:enc:aescbc:v1:key-of-aescbc:")
	configure("the next key is added", "aescbc", "aesgcm")
	configure("it is first", "aesgcm", "aescbc")
	rewrite("k8s:enc:aesgcm:v1:key-of-aesgcm:")
	configure("the old key is removed, the next one is added", "aesgcm", "secretbox")
	configure("it is first", "secretbox", "aesgcm")
	rewrite("k8s:enc:secretbox:v1:key-of-secretbox:")
	configure("the old key is removed", "secretbox")
	proved(t, spec.LayoutSplit, legacy, modern, "both sides read all secrets at each step of a rotation from aescbc "+
		"to aesgcm and secretbox")
}

// storedWith fails unless every value below the prefix begins so.
func storedWith(t *testing.T, store *rig.Etcd, prefix, begin string) {
	t.Helper()
	response, err := store.Client().Get(t.Context(), prefix, clientv3.WithPrefix())
	must(t, err)
	if len(response.Kvs) == 0 {
		t.Errorf("no keys below %s", prefix)
	}
	for _, kv := range response.Kvs {
		if !bytes.HasPrefix(kv.Value, []byte(begin)) {
			t.Errorf("%s begins with %.40q, want %q", kv.Key, kv.Value, begin)
		}
	}
}

// TestKMSOfTheSecondVersion: each API server that knows KMS v2 reads what the others have written, before and after the
// plugin's key was replaced.
func TestKMSOfTheSecondVersion(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	plugin, endpoint := startKMS(t)
	file := filepath.Join(r.Dir(), "encryption.yaml")
	writeEncryption(t, file, encryptionKeys(endpoint), "kms")
	store := r.StartEtcd("core")
	provider, _ := kubever.EncryptionProviderOf("kms/v2")
	const path = "/api/v1/namespaces/default/secrets"
	written := 0
	for key := range plugin.keys {
		plugin.current.Store(int64(key))
		for _, release := range releases(t) {
			if _, on := provider.GateIn(release.Minor); !provider.In(release.Minor) || !on {
				continue
			}
			server := r.StartAPIServer(fmt.Sprintf("apiserver-%s-%d", release.Minor, key), release.Minor,
				append(r.APIServerArgs(release.Minor, store), "--encryption-provider-config="+file))
			server.WaitReady()
			client := server.Client("admin", "system:masters")
			written++
			r.Eventually(server.Name+" writes a secret", func(ctx context.Context) error {
				return client.Call(ctx, http.MethodPost, path, object{"metadata": object{
					"name": fmt.Sprintf("secret-%d", written)}}, nil)
			})
			var list struct{ Items []any }
			must(t, client.Call(t.Context(), http.MethodGet, path, nil, &list))
			if len(list.Items) != written {
				t.Errorf("%s reads %d secrets, want %d", server.Name, len(list.Items), written)
			}
			server.Stop()
		}
	}
	if written < 2 {
		t.Error("no API server was run with KMS v2")
	}
	storedWith(t, store, "/registry/secrets/default/", "k8s:enc:kms:v2:key-of-kms:")
}

// TestKMSOfTheFirstVersion: with one plugin and one key for both, the modern API server reads what the legacy one has
// written, and not the other way: one secret that it writes makes every list of the legacy side fail.
func TestKMSOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.15.12", "1.36.3"
	r := rig.New(t)
	_, endpoint := startKMS(t)
	file := filepath.Join(r.Dir(), "encryption.yaml")
	writeEncryption(t, file, encryptionKeys(endpoint), "kms-v1")
	argument := "encryption-provider-config=" + file
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, NoModernManager: true,
		NoControllers: true, More: access, LegacyServerArgs: []string{argument},
		ModernServerArgs: []string{argument, "feature-gates=KMSv1=true"}})
	old, young := startBare(t, r, p)
	const path = "/api/v1/namespaces/demo/secrets"
	write := func(client *rig.Client, name string) {
		t.Helper()
		must(t, client.Call(t.Context(), http.MethodPost, path, object{"metadata": object{"name": name},
			"data": object{"key": "dmFsdWU="}}, nil))
	}
	write(old, "of-legacy")
	storedWith(t, p.Stores["core"], "/registry/secrets/demo/of-legacy", "k8s:enc:kms:v1:key-of-kms:")
	var read struct{ Data map[string]string }
	must(t, young.Call(t.Context(), http.MethodGet, path+"/of-legacy", nil, &read))
	if read.Data["key"] != "dmFsdWU=" {
		t.Errorf("%s reads %q of a secret that %s has encrypted", modern, read.Data, legacy)
	}
	must(t, old.Call(t.Context(), http.MethodGet, path, nil, nil))

	write(young, "of-modern")
	must(t, young.Call(t.Context(), http.MethodGet, path+"/of-modern", nil, nil))
	if err := old.Call(t.Context(), http.MethodGet, path, nil, nil); rig.Code(err) !=
		http.StatusInternalServerError {
		t.Errorf("listing secrets through %s, one of which %s has encrypted: %v, want 500", legacy, modern, err)
	}
	must(t, young.Call(t.Context(), http.MethodDelete, path+"/of-modern", nil, nil))
	must(t, old.Call(t.Context(), http.MethodGet, path, nil, nil))
	seenDamage(t, spec.LayoutSplit, legacy, modern, "with a KMS plugin of the first interface one secret of the "+
		"modern side makes every list of secrets through the legacy one answer 500")
}
