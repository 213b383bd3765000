// Package e2e holds the tests that run real servers of several releases. They are behind the build tag e2e: `make e2e`
// builds the servers first (see test/rig) and runs them.
package e2e
