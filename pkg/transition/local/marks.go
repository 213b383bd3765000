package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/controllers"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// serverOf is a client of an API server.
func serverOf(a *transition.Access) (*apiserver.Server, error) {
	config := &rest.Config{Host: a.Server,
		TLSClientConfig: rest.TLSClientConfig{CAFile: a.CA, CertFile: a.Cert, KeyFile: a.Key}}
	s, err := apiserver.New(config, apiserver.Options{Timeout: 20 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("the %s API server: %w", a.Side, err)
	}
	return s, nil
}

var namespaces = discovery.Resource{GroupVersion: v1.SchemeGroupVersion, Name: "namespaces", Kind: "Namespace"}

// marked lists the namespaces that have the finalizer of the controllers of both sides.
func marked(ctx context.Context, s *apiserver.Server) (list []*unstructured.Unstructured, err error) {
	for item, err := range s.List(ctx, namespaces.Objects(""), discovery.ListOptions{}) {
		ns := new(unstructured.Unstructured)
		if err == nil {
			err = utiljson.Unmarshal(item, &ns.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("listing namespaces: %w", err)
		}
		has, err := hasFinalizer(ns)
		if err != nil {
			return nil, err
		}
		if has {
			list = append(list, ns)
		}
	}
	return list, nil
}

func hasFinalizer(ns *unstructured.Unstructured) (bool, error) {
	finalizers, _, err := unstructured.NestedStringSlice(ns.Object, "spec", "finalizers")
	if err != nil {
		err = fmt.Errorf("namespace %q: %w", ns.GetName(), err)
	}
	return slices.Contains(finalizers, controllers.NamespaceFinalizer), err
}

// registered lists the paths of what the controllers of both sides registered for pods.
func registered(ctx context.Context, s *apiserver.Server, kinds []transition.Registration) ([]discovery.Path, error) {
	var paths []discovery.Path
	for _, r := range kinds {
		of := discovery.Resource{GroupVersion: schema.GroupVersion{Group: "admissionregistration.k8s.io",
			Version: r.Version}, Name: r.Resource, Kind: r.Kind}
		for item, err := range s.List(ctx, of.Objects(""), discovery.ListOptions{Metadata: true}) {
			var object metav1.PartialObjectMetadata
			if err == nil {
				err = utiljson.Unmarshal(item, &object)
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", of, err)
			}
			if object.Name == admission.Name || strings.HasSuffix(object.Name, "."+admission.Name) {
				paths = append(paths, of.Object("", object.Name))
			}
		}
	}
	return paths, nil
}

// release takes marks out of the API. It can be repeated. No namespace is released that is being deleted: what is left
// in it on the side that no longer looks would stay for ever.
func release(ctx context.Context, m *transition.Marks) error {
	if m.Modern != nil {
		s, err := serverOf(m.Modern)
		if err != nil {
			return err
		}
		paths, err := registered(ctx, s, m.Registrations)
		if err != nil {
			return fmt.Errorf("the modern API server: %w", err)
		}
		for _, at := range paths {
			_, err := s.Send(ctx, apiserver.Write{Verb: http.MethodDelete, Path: at, Repeatable: true,
				Body: []byte(`{"kind":"DeleteOptions","apiVersion":"v1"}`)})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting %s from the modern API server: %w", at, err)
			}
		}
	}
	s, list, err := markedBy(ctx, m)
	if err != nil {
		return err
	}
	if err := deleted(list); err != nil {
		return err
	}
	for _, ns := range list {
		if err := finalize(ctx, s, ns); err != nil {
			return fmt.Errorf("taking the finalizer out of namespace %q: %w", ns.GetName(), err)
		}
	}
	return nil
}

// finalize takes the finalizer out of a namespace, as it is when that is written.
func finalize(ctx context.Context, s *apiserver.Server, ns *unstructured.Unstructured) error {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		if err := deleted([]*unstructured.Unstructured{ns}); err != nil {
			return err
		}
		finalizers, _, err := unstructured.NestedStringSlice(ns.Object, "spec", "finalizers")
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(finalizers, func(f string) bool { return f == controllers.NamespaceFinalizer })
		if len(rest) == len(finalizers) {
			return nil
		}
		if err := unstructured.SetNestedStringSlice(ns.Object, rest, "spec", "finalizers"); err != nil {
			return err
		}
		body, err := json.Marshal(ns.Object)
		if err != nil {
			return err
		}
		_, err = s.Send(ctx, apiserver.Write{Verb: http.MethodPut, Body: body, Repeatable: true,
			Path: namespaces.Object("", ns.GetName(), "finalize")})
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == attempts {
			return err
		}
		text, err := s.Read(ctx, namespaces.Object("", ns.GetName()))
		if errors.Is(err, discovery.ErrNotFound) {
			return nil
		}
		if err == nil {
			ns = new(unstructured.Unstructured)
			err = utiljson.Unmarshal(text, &ns.Object)
		}
		if err != nil {
			return err
		}
	}
}

// deleted is an error that names the namespaces that are being deleted.
func deleted(list []*unstructured.Unstructured) error {
	var names []string
	for _, ns := range list {
		if ns.GetDeletionTimestamp() != nil {
			names = append(names, ns.GetName())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("being deleted, and waiting for the controllers of both sides: namespaces %s",
		strings.Join(names, ", "))
}

// settled checks that no namespace is being deleted that waits for the controllers of both sides.
func settled(ctx context.Context, m *transition.Marks) error {
	_, list, err := markedBy(ctx, m)
	if err != nil {
		return err
	}
	return deleted(list)
}

// markedBy lists the marked namespaces through the server that has them, which it returns too; neither where none is
// asked.
func markedBy(ctx context.Context, m *transition.Marks) (*apiserver.Server, []*unstructured.Unstructured, error) {
	if m.Namespaces == nil {
		return nil, nil, nil
	}
	s, err := serverOf(m.Namespaces)
	if err != nil {
		return nil, nil, err
	}
	list, err := marked(ctx, s)
	if err != nil {
		return nil, nil, fmt.Errorf("the %s API server: %w", m.Namespaces.Side, err)
	}
	return s, list, nil
}

// released checks that there are no marks.
func released(ctx context.Context, m *transition.Marks) error {
	_, list, err := markedBy(ctx, m)
	if err != nil {
		return err
	}
	var left []string
	for _, ns := range list {
		left = append(left, "finalizer "+controllers.NamespaceFinalizer+" of namespace "+ns.GetName())
	}
	if m.Modern != nil {
		s, err := serverOf(m.Modern)
		if err != nil {
			return err
		}
		paths, err := registered(ctx, s, m.Registrations)
		if err != nil {
			return fmt.Errorf("the modern API server: %w", err)
		}
		for _, at := range paths {
			left = append(left, at.String())
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("the controllers of both sides have left: %s", strings.Join(left, ", "))
	}
	return nil
}
