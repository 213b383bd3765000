package scan

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

// What the findings need from the few kinds whose content decides who writes what. Each reader takes an envelope of its
// kind in protobuf or JSON.

// service is the part of a v1 Service that the allocators allocate.
type service struct {
	ClusterIPs []string
	NodePorts  []nodePort
}

type nodePort struct {
	Port     int32
	Protocol string
}

type jsonService struct {
	Spec struct {
		ClusterIP  string   `json:"clusterIP"`
		ClusterIPs []string `json:"clusterIPs"`
		Ports      []struct {
			NodePort int32  `json:"nodePort"`
			Protocol string `json:"protocol"`
		} `json:"ports"`
		HealthCheckNodePort int32 `json:"healthCheckNodePort"`
	} `json:"spec"`
}

// readService reads ServiceSpec: ports = 1 {protocol = 2, nodePort = 5}, clusterIP = 3, healthCheckNodePort = 12,
// clusterIPs = 18.
func readService(e *storage.Envelope) (service, error) {
	var s jsonService
	if e.Encoding == storage.JSON {
		if err := json.Unmarshal(e.Body, &s); err != nil {
			return service{}, unreadable(err)
		}
	} else {
		spec := storage.ProtoBytes(e.Body, 2)
		w := storage.WalkProto(spec)
		for w.Next() {
			switch w.Number {
			case 1:
				port, err := storage.ProtoVarint(w.Bytes, 5)
				if err != nil {
					return service{}, unreadable(err)
				}
				s.Spec.Ports = append(s.Spec.Ports, struct {
					NodePort int32  `json:"nodePort"`
					Protocol string `json:"protocol"`
				}{int32(port), string(storage.ProtoBytes(w.Bytes, 2))})
			case 3:
				s.Spec.ClusterIP = string(w.Bytes)
			case 12:
				s.Spec.HealthCheckNodePort = int32(w.Varint)
			case 18:
				s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, string(w.Bytes))
			}
		}
		if err := w.Err(); err != nil {
			return service{}, unreadable(err)
		}
	}
	var result service
	for _, ip := range append(s.Spec.ClusterIPs, s.Spec.ClusterIP) {
		if ip != "" && ip != "None" {
			result.ClusterIPs = append(result.ClusterIPs, ip)
		}
	}
	slices.Sort(result.ClusterIPs)
	result.ClusterIPs = slices.Compact(result.ClusterIPs)
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			result.NodePorts = append(result.NodePorts, nodePort{p.NodePort, p.Protocol})
		}
	}
	if s.Spec.HealthCheckNodePort != 0 {
		result.NodePorts = append(result.NodePorts, nodePort{s.Spec.HealthCheckNodePort, "TCP"})
	}
	return result, nil
}

// allocation is a RangeAllocation: which part of a range is allocated.
type allocation struct {
	Range string
	Data  []byte // a big-endian number: bit i is the i-th address or port
}

// readAllocation reads RangeAllocation: range = 2, data = 3.
func readAllocation(e *storage.Envelope) (allocation, error) {
	if e.Encoding == storage.JSON {
		var a struct {
			Range string `json:"range"`
			Data  []byte `json:"data"`
		}
		if err := json.Unmarshal(e.Body, &a); err != nil {
			return allocation{}, unreadable(err)
		}
		return allocation{a.Range, a.Data}, nil
	}
	a := allocation{}
	w := storage.WalkProto(e.Body)
	for w.Next() {
		switch w.Number {
		case 2:
			a.Range = string(w.Bytes)
		case 3:
			a.Data = slices.Clone(w.Bytes)
		}
	}
	if err := w.Err(); err != nil {
		return allocation{}, unreadable(err)
	}
	return a, nil
}

// has reports whether the i-th number of the range is allocated.
func (a *allocation) has(i int) bool {
	at := len(a.Data) - 1 - i/8
	return i >= 0 && at >= 0 && a.Data[at]&(1<<(i%8)) != 0
}

// highest is one more than the largest number that the data can mark as allocated.
func (a *allocation) highest() int { return len(a.Data) * 8 }

// addressParent is the Service for which an IPAddress object stands.
type addressParent struct{ Resource, Namespace, Name string }

// readAddress reads IPAddress: spec = 2 {parentRef = 1 {group = 1, resource = 2, namespace = 3, name = 4}}.
func readAddress(e *storage.Envelope) (addressParent, error) {
	if e.Encoding == storage.JSON {
		var a struct {
			Spec struct {
				ParentRef struct {
					Resource, Namespace, Name string
				} `json:"parentRef"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(e.Body, &a); err != nil {
			return addressParent{}, unreadable(err)
		}
		return addressParent(a.Spec.ParentRef), nil
	}
	ref := storage.ProtoBytes(storage.ProtoBytes(e.Body, 2), 1)
	return addressParent{string(storage.ProtoBytes(ref, 2)), string(storage.ProtoBytes(ref, 3)),
		string(storage.ProtoBytes(ref, 4))}, nil
}

// serviceCIDRs reads ServiceCIDR: spec = 2 {cidrs = 1}.
func readServiceCIDRs(e *storage.Envelope) ([]string, error) {
	if e.Encoding == storage.JSON {
		var c struct {
			Spec struct {
				CIDRs []string `json:"cidrs"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(e.Body, &c); err != nil {
			return nil, unreadable(err)
		}
		return c.Spec.CIDRs, nil
	}
	var cidrs []string
	w := storage.WalkProto(storage.ProtoBytes(e.Body, 2))
	for w.Next() {
		if w.Number == 1 {
			cidrs = append(cidrs, string(w.Bytes))
		}
	}
	if err := w.Err(); err != nil {
		return nil, unreadable(err)
	}
	return cidrs, nil
}

// readSecretType reads Secret: type = 3.
func readSecretType(e *storage.Envelope) (string, error) {
	if e.Encoding == storage.JSON {
		var s struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(e.Body, &s); err != nil {
			return "", unreadable(err)
		}
		return s.Type, nil
	}
	return string(storage.ProtoBytes(e.Body, 3)), nil
}

// crd is the part of a CustomResourceDefinition about its versions. It is stored as JSON by every version.
type crd struct {
	Spec struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Scope   string `json:"scope"`
		Names   struct {
			Plural string `json:"plural"`
			Kind   string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name    string  `json:"name"`
			Served  bool    `json:"served"`
			Storage bool    `json:"storage"`
			Schema  present `json:"schema"`
		} `json:"versions"`
		Validation            present `json:"validation"`
		PreserveUnknownFields *bool   `json:"preserveUnknownFields"`
	} `json:"spec"`
	Status struct {
		StoredVersions []string `json:"storedVersions"`
		Conditions     []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// present is whether a member is set, to whatever value: schemas are large, and a scan keeps every CRD to its
// end.
type present bool

// UnmarshalJSON takes null and an empty object for nothing.
func (p *present) UnmarshalJSON(value []byte) error {
	*p = string(value) != "null" && string(value) != "{}"
	return nil
}

func readCRD(e *storage.Envelope) (crd, error) {
	var c crd
	if e.Encoding != storage.JSON {
		return c, fmt.Errorf("%w: a CRD is stored as JSON, this one as %s", storage.ErrUnreadable, e.Encoding)
	}
	if err := json.Unmarshal(e.Body, &c); err != nil {
		return c, unreadable(err)
	}
	return c, nil
}

// apiService is the part of an APIService about its group/version. It is stored as JSON by every
// version.
type apiService struct {
	Spec struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Service *struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"service"`
	} `json:"spec"`
}

func readAPIService(e *storage.Envelope) (apiService, error) {
	var a apiService
	if e.Encoding != storage.JSON {
		return a, fmt.Errorf("%w: an APIService is stored as JSON, this one as %s", storage.ErrUnreadable, e.Encoding)
	}
	if err := json.Unmarshal(e.Body, &a); err != nil {
		return a, unreadable(err)
	}
	return a, nil
}

// readHolder reads the holder of a lock: Lease spec = 2 {holderIdentity = 1}, or the annotation on endpoints and config
// maps.
func readHolder(e *storage.Envelope, m *storage.Meta) string {
	if record, ok := m.Annotation("control-plane.alpha.kubernetes.io/leader"); ok {
		var r struct {
			HolderIdentity string `json:"holderIdentity"`
		}
		if json.Unmarshal(record, &r) == nil {
			return r.HolderIdentity
		}
	}
	if string(e.Kind) != "Lease" {
		return ""
	}
	if e.Encoding == storage.JSON {
		var l struct {
			Spec struct {
				HolderIdentity string `json:"holderIdentity"`
			} `json:"spec"`
		}
		if json.Unmarshal(e.Body, &l) != nil {
			return ""
		}
		return l.Spec.HolderIdentity
	}
	return string(storage.ProtoBytes(storage.ProtoBytes(e.Body, 2), 1))
}

func unreadable(err error) error { return fmt.Errorf("%w: %w", storage.ErrUnreadable, err) }
