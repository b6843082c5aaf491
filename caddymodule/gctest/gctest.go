// Package gctest lets the tests of packages that import it collect garbage less often, which took up to a third of
// their time. Benchmarks collect it as ever.
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
