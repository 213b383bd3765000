package scan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cputest"
	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// TestAServiceOfManyAddressesTakesNotLong: each is kept once.
func TestAServiceOfManyAddressesTakesNotLong(t *testing.T) {
	var ips []string
	for i := range 100_000 {
		ips = append(ips, fmt.Sprintf(`"10.%d.%d.%d"`, i>>16, i>>8&255, i&255))
	}
	list := strings.Join(append(ips, ips...), ",")
	e := storage.Envelope{Encoding: storage.JSON, Body: []byte(`{"spec":{"clusterIP":"10.0.0.0","clusterIPs":[` + list +
		`]}}`)}
	var s service
	var err error
	if took := cputest.Thread(t, func() { s, err = readService(&e) }); took > 3*time.Second {
		t.Errorf("%v", took)
	}
	if err != nil || len(s.ClusterIPs) != len(ips) || !slices.Contains(s.ClusterIPs, "10.1.134.159") {
		t.Errorf("%d addresses, %v; want %d", len(s.ClusterIPs), err, len(ips))
	}
}

// FuzzReadDetails: no reader of contents may fall over, whatever kind the value claims to be.
func FuzzReadDetails(f *testing.F) {
	storetest.RealEntries(f, "../snapshot/testdata", func(_ string, value []byte) { f.Add(value) })
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := storage.ReadEnvelope(value)
		if err != nil {
			return
		}
		var m storage.Meta
		_ = e.ReadMeta(&m)
		_, _ = readService(&e)
		_, _ = readAllocation(&e)
		_, _ = readAddress(&e)
		_, _ = readServiceCIDRs(&e)
		_, _ = readSecretType(&e)
		_, _ = readCRD(&e)
		_, _ = readAPIService(&e)
		readHolder(&e, &m)
		memberNames(e.Body)
	})
}
