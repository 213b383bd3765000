// Package test holds the tests that span packages: scripts of the command line, who may import whom, the lines, words
// and links of everything that is written here.
package test
