// Package webhook answers the authorization webhook of API servers by an ABAC policy file, and reads the file again
// when it changes. The server's own ABAC mode reads its file once, when it starts.
//
//	handler := &webhook.Handler{Policy: source.Current, Metrics: metrics}
//
// A [Source] holds the last good version of a file: one that is missing, broken or dangerous does not replace it.
package webhook
