// Package webhook answers the conversion webhook of API servers by the rules of package hub, and reads them again when
// they change.
//
// API servers present no client certificate to conversion webhooks unless an --admission-control-config-file gives them
// one for this address, so a server of this handler has to live without; what a stranger learns from it is what the
// rules make of the object that he sends.
package webhook
