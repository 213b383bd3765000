module github.com/kubefusion/fusionctl/test/rig/etcd-3.1

go 1.26.0

tool github.com/coreos/etcd

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cockroachdb/cmux v0.1.4 // indirect
	github.com/coreos/bbolt v1.3.6 // indirect
	github.com/coreos/etcd v3.1.20+incompatible // indirect
	github.com/coreos/go-semver v0.2.0 // indirect
	github.com/coreos/go-systemd v0.0.0-20161114122254-48702e0da86b // indirect
	github.com/coreos/pkg v0.0.0-20160727233714-3ac0863d7acf // indirect
	github.com/ghodss/yaml v1.0.0 // indirect
	github.com/gogo/protobuf v1.0.0 // indirect
	github.com/golang/protobuf v1.5.0 // indirect
	github.com/google/btree v1.0.0 // indirect
	github.com/grpc-ecosystem/go-grpc-prometheus v1.2.0 // indirect
	github.com/grpc-ecosystem/grpc-gateway v1.2.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jonboulle/clockwork v0.1.0 // indirect
	github.com/karlseguin/ccache v2.0.8+incompatible // indirect
	github.com/matttproud/golang_protobuf_extensions v1.0.0 // indirect
	github.com/prometheus/client_golang v0.8.0 // indirect
	github.com/prometheus/client_model v0.0.0-20150212101744-fa8ad6fec335 // indirect
	github.com/prometheus/common v0.0.0-20170427095455-13ba4ddd0caa // indirect
	github.com/prometheus/procfs v0.0.0-20170519190837-65c1f6f8f0fc // indirect
	github.com/soheilhy/cmux v0.1.5 // indirect
	github.com/spf13/cobra v0.0.3 // indirect
	github.com/spf13/pflag v1.0.1 // indirect
	github.com/stretchr/testify v1.6.1 // indirect
	github.com/ugorji/go v0.0.0 // indirect
	github.com/xiang90/probing v0.0.0-20190116061207-43a291ad63a2 // indirect
	golang.org/x/crypto v0.0.0-20220411220226-7b82a4e95df4 // indirect
	golang.org/x/net v0.0.0-20211112202133-69e39bad7dc2 // indirect
	golang.org/x/sys v0.0.0-20211019181941-9d821ace8654 // indirect
	golang.org/x/text v0.3.7 // indirect
	golang.org/x/time v0.0.0-20180412165947-fbb02b2291d2 // indirect
	google.golang.org/genproto v0.0.0-20190819201941-24fa4b261c55 // indirect
	google.golang.org/grpc v1.19.0 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)

replace (
	github.com/cockroachdb/cmux => github.com/soheilhy/cmux v0.1.4
	github.com/coreos/bbolt => go.etcd.io/bbolt v1.3.6
	github.com/golang/protobuf => github.com/golang/protobuf v1.3.2
	github.com/karlseguin/ccache => github.com/karlseguin/ccache/v2 v2.0.8
	github.com/ugorji/go => ../.build/etcd-3.1/ugorji
	google.golang.org/grpc => google.golang.org/grpc v1.3.0
)
