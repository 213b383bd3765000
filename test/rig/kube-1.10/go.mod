module github.com/kubefusion/fusionctl/test/rig/kube-1.10

go 1.16

tool (
	k8s.io/code-generator/cmd/openapi-gen
	k8s.io/kubernetes/cmd/kube-apiserver
	k8s.io/kubernetes/cmd/kube-controller-manager
	k8s.io/kubernetes/cmd/kube-proxy
	k8s.io/kubernetes/cmd/kube-scheduler
	k8s.io/kubernetes/cmd/kubelet
)

require (
	bitbucket.org/ww/goautoneg v0.0.0 // indirect
	cloud.google.com/go v0.1.1-0.20160913182117-3b1ae45394a2 // indirect
	github.com/Azure/azure-sdk-for-go v12.4.0-beta+incompatible // indirect
	github.com/Azure/go-autorest v9.9.0+incompatible // indirect
	github.com/JeffAshton/win_pdh v0.0.0-20161109143554-76bb4ee9f0ab
	github.com/MakeNowJust/heredoc v0.0.0-20170808103936-bb23615498cd
	github.com/Microsoft/go-winio v0.4.5
	github.com/NYTimes/gziphandler v0.0.0-20170623195520-56545f4a5d46 // indirect
	github.com/Nvveen/Gotty v0.0.0-20120604004816-cd527374f1e5 // indirect
	github.com/PuerkitoBio/purell v1.0.0 // indirect
	github.com/PuerkitoBio/urlesc v0.0.0-20160726150825-5bd2802263f2 // indirect
	github.com/abbot/go-http-auth v0.4.0 // indirect
	github.com/appc/spec v0.8.11
	github.com/armon/circbuf v0.0.0-20150827004946-bbbad097214e
	github.com/asaskevich/govalidator v0.0.0-20160715170612-593d64559f76 // indirect
	github.com/aws/aws-sdk-go v1.12.7 // indirect
	github.com/beorn7/perks v0.0.0-20160229213445-3ac7bf7a47d1 // indirect
	github.com/blang/semver v3.5.0+incompatible
	github.com/cloudflare/cfssl v0.0.0-20160330011424-db0d0650b649 // indirect
	github.com/clusterhq/flocker-go v0.0.0-20160920122132-2b8b7259d313 // indirect
	github.com/codedellemc/goscaleio v0.0.0-20170830184815-20e2ce2cf885 // indirect
	github.com/container-storage-interface/spec v0.2.0 // indirect
	github.com/containerd/console v0.0.0-20170925154832-84eeaae905fa
	github.com/containerd/containerd v1.0.2
	github.com/containernetworking/cni v0.6.0
	github.com/coreos/etcd v3.2.13+incompatible // indirect
	github.com/coreos/go-oidc v0.0.0-20180117170138-065b426bd416 // indirect
	github.com/coreos/go-semver v0.0.0-20150304020126-568e959cd898 // indirect
	github.com/coreos/go-systemd v0.0.0-20161114122254-48702e0da86b // indirect
	github.com/cyphar/filepath-securejoin v0.0.0-20170720062807-ae69057f2299
	github.com/d2g/dhcp4 v0.0.0-20170904100407-a1d1b6c41b1c // indirect
	github.com/d2g/dhcp4client v0.0.0-20170829104524-6e570ed0a266 // indirect
	github.com/davecgh/go-spew v1.1.1-0.20170626231645-782f4967f2dc // indirect
	github.com/dchest/safefile v0.0.0-20151022103144-855e8d98f185
	github.com/dgrijalva/jwt-go v3.0.1-0.20160705203006-01aeca54ebda+incompatible // indirect
	github.com/docker/distribution v2.6.0-rc.1.0.20170726174610-edc3ab29cdff+incompatible // indirect
	github.com/docker/docker v1.4.2-0.20170731201938-4f3616fb1c11 // indirect
	github.com/docker/go-connections v0.3.0 // indirect
	github.com/docker/go-units v0.3.2-0.20170127094116-9e638d38cf69 // indirect
	github.com/docker/libnetwork v0.0.0-20180830151422-a9cd636e3789
	github.com/docker/libtrust v0.0.0-20160708172513-aabc10ec26b7
	github.com/docker/spdystream v0.0.0-20160310174837-449fdfce4d96 // indirect
	github.com/elazarl/go-bindata-assetfs v0.0.0-20150624150248-3dcc96556217 // indirect
	github.com/emicklei/go-restful v1.1.4-0.20170410110728-ff4f55a20633 // indirect
	github.com/emicklei/go-restful-swagger12 v0.0.0-20170208215640-dcef7f557305 // indirect
	github.com/euank/go-kmsg-parser v2.0.0+incompatible
	github.com/evanphx/json-patch v3.0.1-0.20180525161421-94e38aa1586e+incompatible // indirect
	github.com/exponent-io/jsonpath v0.0.0-20151013193312-d6023ce2651d
	github.com/fatih/camelcase v0.0.0-20160318181535-f6a740d52f96 // indirect
	github.com/fsnotify/fsnotify v1.3.2-0.20160816051541-f12c6236fe7b // indirect
	github.com/ghodss/yaml v0.0.0-20150909031657-73d445a93680 // indirect
	github.com/go-ini/ini v1.25.4 // indirect
	github.com/go-openapi/analysis v0.0.0-20160815203709-b44dc874b601 // indirect
	github.com/go-openapi/errors v0.0.0-20160704190347-d24ebc2075ba // indirect
	github.com/go-openapi/jsonpointer v0.0.0-20160704185906-46af16f9f7b1 // indirect
	github.com/go-openapi/jsonreference v0.0.0-20160704190145-13c6e3589ad9 // indirect
	github.com/go-openapi/loads v0.0.0-20170520182102-a80dea3052f0 // indirect
	github.com/go-openapi/runtime v0.0.0-20160704190703-11e322eeecc1 // indirect
	github.com/go-openapi/spec v0.0.0-20180213232550-1de3e0542de6 // indirect
	github.com/go-openapi/strfmt v0.0.0-20160812050534-d65c7fdb29ec // indirect
	github.com/go-openapi/swag v0.0.0-20170606142751-f3f9494671f9 // indirect
	github.com/go-openapi/validate v0.0.0-20171117174350-d509235108fc // indirect
	github.com/go-ozzo/ozzo-validation v3.5.0+incompatible // indirect
	github.com/godbus/dbus v0.0.0-20151105175453-c7fdd8b5cd55
	github.com/gogo/protobuf v0.0.0-20170330071051-c0656edd0d9e // indirect
	github.com/golang/glog v0.0.0-20141105023935-44145f04b68c // indirect
	github.com/golang/groupcache v0.0.0-20160516000752-02826c3e7903 // indirect
	github.com/golang/protobuf v0.0.0-20171021043952-1643683e1b54 // indirect
	github.com/google/btree v0.0.0-20160524151835-7d79101e329e // indirect
	github.com/google/cadvisor v0.29.1
	github.com/google/certificate-transparency v0.0.0 // indirect
	github.com/google/gofuzz v0.0.0-20161122191042-44d81051d367 // indirect
	github.com/googleapis/gnostic v0.0.0-20170729233727-0c5108395e2d // indirect
	github.com/gophercloud/gophercloud v0.0.0-20180210024343-6da026c32e2d // indirect
	github.com/gregjones/httpcache v0.0.0-20170728041850-787624de3eb7
	github.com/hashicorp/golang-lru v0.0.0-20160207214719-a0d98a5f2880 // indirect
	github.com/heketi/heketi v5.0.1+incompatible // indirect
	github.com/howeyc/gopass v0.0.0-20170109162249-bf9dde6d0d2c // indirect
	github.com/imdario/mergo v0.0.0-20141206190957-6633656539c1 // indirect
	github.com/influxdata/influxdb v1.1.1 // indirect
	github.com/jmespath/go-jmespath v0.0.0-20160202185014-0b12d6b521d8 // indirect
	github.com/json-iterator/go v0.0.0-20180612202835-f2b4162afba3 // indirect
	github.com/kardianos/osext v0.0.0-20150410034420-8fef92e41e22 // indirect
	github.com/karrick/godirwalk v1.7.5
	github.com/kr/fs v0.0.0-20131111012553-2788f0dbd169 // indirect
	github.com/kr/pty v1.1.5
	github.com/libopenstorage/openstorage v0.0.0-20170906232338-093a0c388875 // indirect
	github.com/lpabon/godbc v0.1.2-0.20140613165803-9577782540c1 // indirect
	github.com/mailru/easyjson v0.0.0-20170624190925-2f5df55504eb // indirect
	github.com/marstr/guid v1.1.1-0.20170427235115-8bdf7d1a087c // indirect
	github.com/matttproud/golang_protobuf_extensions v0.0.0-20150406173934-fc2b8d3a73c4 // indirect
	github.com/mindprince/gonvml v0.0.0-20190828220739-9ebdce4bb989
	github.com/mistifyio/go-zfs v0.0.0-20151009155749-1b4ae6fb4e77
	github.com/mitchellh/go-wordwrap v0.0.0-20150314170334-ad45545899c7
	github.com/mitchellh/mapstructure v0.0.0-20170307201123-53818660ed49 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	github.com/mohae/deepcopy v0.0.0-20170603005431-491d3605edfb // indirect
	github.com/mrunalp/fileutils v0.0.0-20160930181131-4ee1cc9a8058
	github.com/mxk/go-flowrate v0.0.0-20140419014527-cca7078d478f // indirect
	github.com/opencontainers/go-digest v0.0.0-20170106003457-a6d0ee40d420 // indirect
	github.com/opencontainers/image-spec v1.0.0-rc6.0.20170604055404-372ad780f634 // indirect
	github.com/opencontainers/runc v0.0.0-20181113202123-f000fe11ece1
	github.com/opencontainers/runtime-spec v1.0.0
	github.com/opencontainers/selinux v0.0.0-20170621221121-4a2974bf1ee9
	github.com/pborman/uuid v0.0.0-20150603214016-ca53cad383ca // indirect
	github.com/peterbourgon/diskv v2.0.1+incompatible
	github.com/pkg/errors v0.8.0 // indirect
	github.com/pkg/sftp v0.0.0-20160930220758-4d0e916071f6 // indirect
	github.com/pquerna/cachecontrol v0.0.0-20171018203845-0dec1b30a021 // indirect
	github.com/prometheus/client_golang v0.8.1-0.20170531130054-e7e903064f5e // indirect
	github.com/prometheus/client_model v0.0.0-20150212101744-fa8ad6fec335 // indirect
	github.com/prometheus/common v0.0.0-20170427095455-13ba4ddd0caa // indirect
	github.com/prometheus/procfs v0.0.0-20170519190837-65c1f6f8f0fc // indirect
	github.com/quobyte/api v0.1.2 // indirect
	github.com/rancher/go-rancher v0.1.0
	github.com/renstrom/dedent v1.1.0
	github.com/robfig/cron v1.0.1-0.20170309132418-df38d32658d8 // indirect
	github.com/rubiojr/go-vhd v0.0.0-20160810183302-0bfd3b39853c // indirect
	github.com/russross/blackfriday v0.0.0-20151117072312-300106c228d5
	github.com/satori/go.uuid v1.1.0 // indirect
	github.com/seccomp/libseccomp-golang v0.0.0-20150813023252-1b506fc7c24e
	github.com/shurcooL/sanitized_anchor_name v1.0.0 // indirect
	github.com/sigma/go-inotify v0.0.0-20181102212354-c87b6cf5033d
	github.com/sirupsen/logrus v1.0.4-0.20170822132746-89742aefa4b2 // indirect
	github.com/spf13/afero v0.0.0-20160816080757-b28a7effac97 // indirect
	github.com/spf13/cobra v0.0.2-0.20180228053838-6644d46b81fa // indirect
	github.com/spf13/pflag v1.0.1 // indirect
	github.com/syndtr/gocapability v0.0.0-20160928074757-e7cb7fa329f4
	github.com/ugorji/go v0.0.0 // indirect
	github.com/vishvananda/netlink v0.0.0-20171020171820-b2de5d10e38e
	github.com/vishvananda/netns v0.0.0-20171111001504-be1fbeda1936
	github.com/vmware/govmomi v0.16.0 // indirect
	github.com/vmware/photon-controller-go-sdk v0.0.0-20170310013346-4a435daef6cc // indirect
	github.com/xanzy/go-cloudstack v0.0.0-20160728180336-1e2cbf647e57 // indirect
	golang.org/x/crypto v0.0.0-20170825220121-81e90905daef // indirect
	golang.org/x/exp v0.0.0-20180321215751-8460e604b9de
	golang.org/x/net v0.0.0-20170809000501-1c05540f6879 // indirect
	golang.org/x/oauth2 v0.0.0-20170412232759-a6bd8cefa181 // indirect
	golang.org/x/sys v0.0.0-20171031081856-95c657629925 // indirect
	golang.org/x/text v0.0.0-20170810154203-b19bf474d317 // indirect
	golang.org/x/time v0.0.0-20161028155119-f51c12702a4d // indirect
	golang.org/x/tools v0.0.0-20170428054726-2382e3994d48 // indirect
	google.golang.org/api v0.0.0-20180603000442-8e296ef26005 // indirect
	google.golang.org/genproto v0.0.0-20170731182057-09f6ed296fc6 // indirect
	google.golang.org/grpc v1.7.5 // indirect
	gopkg.in/gcfg.v1 v1.2.0 // indirect
	gopkg.in/inf.v0 v0.9.0 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.0.0-20150622162204-20b71e5b60d7 // indirect
	gopkg.in/square/go-jose.v2 v2.1.3 // indirect
	gopkg.in/warnings.v0 v0.1.1 // indirect
	gopkg.in/yaml.v2 v2.0.0-20170721113624-670d4cfef054 // indirect
	k8s.io/api v0.0.0 // indirect
	k8s.io/apiextensions-apiserver v0.0.0 // indirect
	k8s.io/apimachinery v0.0.0 // indirect
	k8s.io/apiserver v0.0.0 // indirect
	k8s.io/client-go v0.0.0 // indirect
	k8s.io/code-generator v0.0.0 // indirect
	k8s.io/gengo v0.0.0-20180223161844-01a732e01d00 // indirect
	k8s.io/heapster v1.2.0-beta.1 // indirect
	k8s.io/kube-aggregator v0.0.0 // indirect
	k8s.io/kube-openapi v0.0.0-20180509051136-39cb288412c4 // indirect
	k8s.io/kubernetes v1.10.13 // indirect
	k8s.io/metrics v0.0.0 // indirect
	k8s.io/utils v0.0.0-20171122000934-aedf551cdb8b // indirect
	vbom.ml/util v0.0.0-20180919145318-efcd4e0f9787
)

replace (
	bitbucket.org/ww/goautoneg => github.com/munnerz/goautoneg v0.0.0-20120707110453-a547fc61f48d
	github.com/google/certificate-transparency => ../stub/certificate-transparency
	github.com/ugorji/go => ../.build/kube-1.10/ugorji
	k8s.io/api => ../.build/kube-1.10/src/staging/src/k8s.io/api
	k8s.io/apiextensions-apiserver => ../.build/kube-1.10/src/staging/src/k8s.io/apiextensions-apiserver
	k8s.io/apimachinery => ../.build/kube-1.10/src/staging/src/k8s.io/apimachinery
	k8s.io/apiserver => ../.build/kube-1.10/src/staging/src/k8s.io/apiserver
	k8s.io/client-go => ../.build/kube-1.10/src/staging/src/k8s.io/client-go
	k8s.io/code-generator => ../.build/kube-1.10/src/staging/src/k8s.io/code-generator
	k8s.io/kube-aggregator => ../.build/kube-1.10/src/staging/src/k8s.io/kube-aggregator
	k8s.io/kubernetes => ../.build/kube-1.10/src
	k8s.io/metrics => ../.build/kube-1.10/src/staging/src/k8s.io/metrics
)

replace github.com/google/cadvisor => ../.build/kube-1.10/cadvisor

replace github.com/renstrom/dedent => github.com/lithammer/dedent v1.1.0

replace vbom.ml/util => github.com/fvbommel/util v0.0.0-20180919145318-efcd4e0f9787
