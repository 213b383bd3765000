package stream_test

import (
	"runtime/debug"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func BenchmarkProfConvert(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	c, _ := convert.New()
	for _, test := range costs() {
		b.Run(test.name, func(b *testing.B) {
			convertText(b, c, kubever.Library, test.text)
			for b.Loop() {
				convertText(b, c, kubever.Library, test.text)
			}
		})
	}
}
