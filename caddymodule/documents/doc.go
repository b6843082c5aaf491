// Package documents tests that the README, the pages in docs, package comments and CHANGELOG.md agree with the standard build
// on options, metrics, Caddyfiles, links and file names. The documents describe all features, so these tests require all of
// them.
package documents
