module github.com/kubefusion/fusionctl/test/convertdiff/old

go 1.26.0

require (
	k8s.io/api v0.17.17
	k8s.io/apimachinery v0.17.17
)

require (
	github.com/gogo/protobuf v1.2.2-0.20190723190241-65acae22fc9d // indirect
	github.com/google/gofuzz v1.0.0 // indirect
	golang.org/x/net v0.0.0-20191004110552-13f9640d40b9 // indirect
	golang.org/x/text v0.3.2 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/klog v1.0.0 // indirect
)
