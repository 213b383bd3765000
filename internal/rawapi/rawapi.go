// Package rawapi asks API servers of any version in plain JSON, without types of their objects: connections, what a server itself says
// about an error, and lists that are read as they arrive.
package rawapi

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// What a request accepts that wants metadata alone, in the words that a server understands. One that does not know the form sends whole
// objects, or answers 406 (1.6) and is to be asked in plain JSON. The form's version v1beta1, of 1.8 to 1.14, is no use: its lists have
// no resource version to watch from, and do not name objects well enough to go on from (seen with 1.10).
const (
	AcceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	AcceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// Connect makes a client of the configuration, which stays as it is. The client reads the errors that a server writes.
// Errors: an unusable configuration. The server is not asked yet.
func Connect(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for the Status that an error is
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	return rest.UnversionedRESTClientFor(config)
}

// Answer is a result's body, or what the server itself says about an error: Raw alone does not read that.
func Answer(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// Absent reports whether err is the server's own word that there is no object of that name: a path that is not served, or a proxy on the
// way, answers 404 too.
func Absent(err error, name string) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}

// Code is the code with which a server answered; 0 when nobody did.
func Code(err error) int {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

// Unanswered reports whether nobody answered: the connection was refused, broke, or took too long.
func Unanswered(err error) bool {
	return Code(err) == 0 && (utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err))
}
