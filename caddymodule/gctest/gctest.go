// Package gctest reduces garbage collection in tests of packages that import it. Garbage collection took up to a third of the
// test time. Benchmarks are not affected.
package gctest

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

func init() {
	measures := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.bench=") })
	if os.Getenv("GOGC") == "" && !measures {
		debug.SetGCPercent(400)
	}
}
