package cli

// NewRootCmd is for tests from outside that look at every verb.
var NewRootCmd = newRootCmd

// PKISpec is a spec of two hosts that needs certificates.
const PKISpec = pkiSpec
