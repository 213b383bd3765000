module github.com/kubefusion/fusionctl/test/rig/kube-1.6

go 1.16

tool (
	k8s.io/kubernetes/cmd/kube-apiserver
	k8s.io/kubernetes/cmd/kube-controller-manager
)

require (
	bitbucket.org/ww/goautoneg v0.0.0 // indirect
	cloud.google.com/go v0.1.1-0.20160913182117-3b1ae45394a2 // indirect
	github.com/Azure/azure-sdk-for-go v7.0.1-beta+incompatible // indirect
	github.com/Azure/go-autorest v7.2.3+incompatible // indirect
	github.com/PuerkitoBio/purell v1.0.0 // indirect
	github.com/PuerkitoBio/urlesc v0.0.0-20160726150825-5bd2802263f2 // indirect
	github.com/aws/aws-sdk-go v1.6.10 // indirect
	github.com/beorn7/perks v0.0.0-20160229213445-3ac7bf7a47d1 // indirect
	github.com/cloudflare/cfssl v0.0.0-20160330011424-db0d0650b649 // indirect
	github.com/clusterhq/flocker-go v0.0.0-20160920122132-2b8b7259d313 // indirect
	github.com/codedellemc/goscaleio v0.0.0-20170830184815-20e2ce2cf885 // indirect
	github.com/coreos/etcd v3.0.17+incompatible // indirect
	github.com/coreos/go-oidc v0.0.0-20170307191026-be73733bb8cc // indirect
	github.com/coreos/go-systemd v0.0.0-20160527140244-4484981625c1 // indirect
	github.com/coreos/pkg v0.0.0-20160620232715-fa29b1d70f0b // indirect
	github.com/davecgh/go-spew v0.0.0-20151105211317-5215b55f46b2 // indirect
	github.com/dgrijalva/jwt-go v3.0.1-0.20160705203006-01aeca54ebda+incompatible // indirect
	github.com/docker/distribution v2.4.0-rc.1+incompatible // indirect
	github.com/docker/engine-api v0.3.2-0.20160509170047-dea108d3aa0c // indirect
	github.com/docker/go-connections v0.2.1-0.20160304224811-f549a9393d05 // indirect
	github.com/docker/go-units v0.3.2-0.20161130221531-e30f1e79f3cd // indirect
	github.com/elazarl/go-bindata-assetfs v0.0.0-20150624150248-3dcc96556217 // indirect
	github.com/emicklei/go-restful v1.1.4-0.20161212084525-09691a3b6378 // indirect
	github.com/evanphx/json-patch v0.0.0-20170123154800-ba18e35c5c1b // indirect
	github.com/exponent-io/jsonpath v0.0.0-20151013193312-d6023ce2651d // indirect
	github.com/ghodss/yaml v0.0.0-20150909031657-73d445a93680 // indirect
	github.com/go-ini/ini v0.0.0-20151119163333-2e44421e256d // indirect
	github.com/go-openapi/jsonpointer v0.0.0-20160704185906-46af16f9f7b1 // indirect
	github.com/go-openapi/jsonreference v0.0.0-20160704190145-13c6e3589ad9 // indirect
	github.com/go-openapi/spec v0.0.0-20160808142527-6aced65f8501 // indirect
	github.com/go-openapi/swag v0.0.0-20160704191624-1d0bd113de87 // indirect
	github.com/gogo/protobuf v0.0.0-20160718161353-e18d7aa8f8c6 // indirect
	github.com/golang/glog v0.0.0-20141105023935-44145f04b68c // indirect
	github.com/golang/groupcache v0.0.0-20160516000752-02826c3e7903 // indirect
	github.com/golang/protobuf v0.0.0-20160608215545-8616e8ee5e20 // indirect
	github.com/google/certificate-transparency v0.0.0 // indirect
	github.com/google/gofuzz v0.0.0-20161122191042-44d81051d367 // indirect
	github.com/gophercloud/gophercloud v0.0.0-20180210024343-6da026c32e2d // indirect
	github.com/grpc-ecosystem/grpc-gateway v1.0.1-0.20160715013742-f52d055dc48a // indirect
	github.com/hashicorp/golang-lru v0.0.0-20160207214719-a0d98a5f2880 // indirect
	github.com/heketi/heketi v4.0.0+incompatible // indirect
	github.com/howeyc/gopass v0.0.0-20160826175423-3ca23474a7c7 // indirect
	github.com/imdario/mergo v0.0.0-20141206190957-6633656539c1 // indirect
	github.com/influxdata/influxdb v1.1.1 // indirect
	github.com/jmespath/go-jmespath v0.0.0-20151117175822-3433f3ea46d9 // indirect
	github.com/jonboulle/clockwork v0.0.0-20141017032234-72f9bd7c4e0c // indirect
	github.com/juju/ratelimit v0.0.0-20151125201925-77ed1c8a0121 // indirect
	github.com/lpabon/godbc v0.1.2-0.20140613165803-9577782540c1 // indirect
	github.com/mailru/easyjson v0.0.0-20160728113105-d5b7844b561a // indirect
	github.com/matttproud/golang_protobuf_extensions v0.0.0-20150406173934-fc2b8d3a73c4 // indirect
	github.com/mesos/mesos-go v0.0.3-0.20160213225051-45c8b08e9af6 // indirect
	github.com/mitchellh/mapstructure v0.0.0-20140721150620-740c764bc614 // indirect
	github.com/mxk/go-flowrate v0.0.0-20140419014527-cca7078d478f // indirect
	github.com/pborman/uuid v0.0.0-20150603214016-ca53cad383ca // indirect
	github.com/pkg/errors v0.7.1-0.20160808055540-a22138067af1 // indirect
	github.com/prometheus/client_golang v0.0.0-20151008143247-e51041b3fa41 // indirect
	github.com/prometheus/client_model v0.0.0-20150212101744-fa8ad6fec335 // indirect
	github.com/prometheus/common v0.0.0-20151014055050-ffe929a3f4c4 // indirect
	github.com/prometheus/procfs v0.0.0-20150928173926-454a56f35412 // indirect
	github.com/quobyte/api v0.1.2 // indirect
	github.com/rackspace/gophercloud v1.0.1-0.20161013232434-e00690e87603 // indirect
	github.com/robfig/cron v0.0.0-20170309132418-df38d32658d8 // indirect
	github.com/rubiojr/go-vhd v0.0.0-20160810183302-0bfd3b39853c // indirect
	github.com/samuel/go-zookeeper v0.0.0-20150817175050-177002e16a00 // indirect
	github.com/sirupsen/logrus v1.0.4-0.20170822132746-89742aefa4b2 // indirect
	github.com/spf13/cobra v0.0.0-20160722081547-f62e98d28ab7 // indirect
	github.com/spf13/pflag v0.0.0-20170130214245-9ff6c6923cff // indirect
	github.com/square/go-jose v0.0.0-20160903044734-789a4c4bd4c1 // indirect
	github.com/ugorji/go v0.0.0 // indirect
	github.com/vmware/govmomi v0.12.1 // indirect
	github.com/vmware/photon-controller-go-sdk v0.0.0-20170310013346-4a435daef6cc // indirect
	github.com/xanzy/go-cloudstack v0.0.0-20160728180336-1e2cbf647e57 // indirect
	golang.org/x/crypto v0.0.0-20161006174701-d172538b2cfc // indirect
	golang.org/x/net v0.0.0-20160715184138-e90d6d0afc4c // indirect
	golang.org/x/oauth2 v0.0.0-20160902055913-3c3a985cb79f // indirect
	golang.org/x/sys v0.0.0-20160916181909-8f0908ab3b24 // indirect
	golang.org/x/text v0.0.0-20160726164857-2910a502d2bf // indirect
	google.golang.org/api v0.0.0-20161214193051-55146ba61254 // indirect
	google.golang.org/grpc v1.0.1-0.20160819002236-231b4cfea0e7 // indirect
	gopkg.in/gcfg.v1 v1.0.0 // indirect
	gopkg.in/inf.v0 v0.9.0 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.0.0-20150622162204-20b71e5b60d7 // indirect
	gopkg.in/yaml.v2 v2.0.0-20150924142314-53feefa2559f // indirect
	k8s.io/apimachinery v0.0.0 // indirect
	k8s.io/apiserver v0.0.0 // indirect
	k8s.io/client-go v0.0.0 // indirect
	k8s.io/heapster v1.2.0-beta.1 // indirect
	k8s.io/kubernetes v1.6.13 // indirect
	k8s.io/metrics v0.0.0 // indirect
)

replace (
	bitbucket.org/ww/goautoneg => github.com/munnerz/goautoneg v0.0.0-20120707110453-a547fc61f48d
	github.com/google/certificate-transparency => ../stub/certificate-transparency
	github.com/ugorji/go => ../.build/kube-1.6/ugorji
	k8s.io/apimachinery => ../.build/kube-1.6/src/staging/src/k8s.io/apimachinery
	k8s.io/apiserver => ../.build/kube-1.6/src/staging/src/k8s.io/apiserver
	k8s.io/client-go => ../.build/kube-1.6/src/staging/src/k8s.io/client-go
	k8s.io/kubernetes => ../.build/kube-1.6/src
	k8s.io/metrics => ../.build/kube-1.6/metrics
)
