package scan

import (
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

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
