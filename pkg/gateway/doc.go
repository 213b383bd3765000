// Package gateway serves one endpoint over the API servers of both sides of a pair.
package gateway
