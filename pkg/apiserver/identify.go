package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Identify asks the server which it is: its version and, with system, the UID of the namespace kube-system, which two
// servers of one store share. Errors: a version that there are no facts about, unless it is newer than they are.
func (s *Server) Identify(ctx context.Context, system bool) (discovery.Identity, error) {
	at := discovery.Page("version")
	text, date, err := s.read(ctx, at, []string{acceptPage}, s.retry)
	if err != nil {
		return discovery.Identity{}, fmt.Errorf("asking %s for its version: %w", s.name, err)
	}
	var info version.Info
	if len(bytes.TrimSpace(text)) > 0 {
		if err := decode(text, &info); err != nil {
			return discovery.Identity{}, fmt.Errorf("asking %s for its version: %w", s.name, err)
		}
	}
	if info.GitVersion == "" && s.unversioned {
		return discovery.Identity{Date: date}, nil
	}
	if info.GitVersion == "" {
		return discovery.Identity{}, wrong("asking %s for its version: no gitVersion in the answer", s.name)
	}
	identity := discovery.Identity{GitVersion: info.GitVersion, Date: date}
	if identity.Version, err = kubever.Parse(info.GitVersion); err != nil {
		minor, numberErr := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
		if identity.Newer = numberErr == nil && info.Major == "1" &&
			kubever.Minor(minor) > kubever.Newest; !identity.Newer {
			return identity, fmt.Errorf("asking %s for its version: %w", s.name, err)
		}
	}
	if !system {
		return identity, nil
	}
	namespaces := discovery.Resource{GroupVersion: schema.GroupVersion{Version: "v1"}, Name: "namespaces",
		Kind: "Namespace"}
	text, err = s.Read(ctx, namespaces.Object("", metav1.NamespaceSystem))
	var object struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err == nil {
		err = decode(text, &object)
	}
	if identity.SystemUID = object.Metadata.UID; err == nil && identity.SystemUID == "" {
		err = errors.New("it has no UID")
	}
	if err != nil {
		return identity, fmt.Errorf("reading namespace %s of %s: %w", metav1.NamespaceSystem, s.name, err)
	}
	return identity, nil
}
