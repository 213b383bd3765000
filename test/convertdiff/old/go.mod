// The types of Kubernetes 1.15, and with -modfile=v1.17.mod those of 1.17. A module of its own: nobody else gets them.
module github.com/kubefusion/fusionctl/test/convertdiff/old

go 1.26.0

require (
	k8s.io/api v0.15.12
	k8s.io/apimachinery v0.15.12
)

require (
	github.com/gogo/protobuf v0.0.0-20171007142547-342cbe0a0415 // indirect
	github.com/google/gofuzz v0.0.0-20170612174753-24818f796faf // indirect
	golang.org/x/net v0.0.0-20190812203447-cdfb69ac37fc // indirect
	golang.org/x/text v0.3.1-0.20181227161524-e6919f6577db // indirect
	gopkg.in/inf.v0 v0.9.0 // indirect
	k8s.io/klog v0.3.1 // indirect
)
