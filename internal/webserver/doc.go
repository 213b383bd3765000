// Package webserver is what every webhook of fusionctl stands on: HTTP with certificates that are read again when they
// change, files whose last good content stays in use, and the metrics of both.
//
//	source, err := webserver.Open(webserver.OneFile("policy.jsonl"), read, metrics)
//	go source.Watch(ctx, 2*time.Second, report)
//	err = webserver.Serve(ctx, listener, handlerOf(source.Current), log)
package webserver
