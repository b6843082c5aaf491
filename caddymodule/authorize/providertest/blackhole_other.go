//go:build !linux

package providertest

import "testing"

// BlackHole skips the test: only Linux reliably drops SYNs when the backlog is full.
func BlackHole(tb testing.TB) string {
	tb.Helper()
	tb.Skip("dropping SYNs is done on Linux alone")
	return ""
}
