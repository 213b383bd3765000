// Package gateway serves one endpoint over the API servers of both sides of a pair. Which side serves a request is
// decided by package routes; answers of both are made one by package merge, and what a side has in another version is
// converted on the way to it by package convert/client. What these do not cover is refused with a Status, never
// answered by half.
//
// The gateway knows its clients by their certificates or tokens and forwards who they are in the headers of a front
// proxy, so that each side's own authorization decides.
package gateway
