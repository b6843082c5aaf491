package terminology

import "fmt"

// Defaults of the limits of a [Handler].
const (
	defaultMaxEntries      = 10_000
	defaultMaxBody         = 16 << 20
	defaultMaxResources    = 200
	defaultMaxFilterLength = 1000
	defaultMaxFilterWords  = 20
	defaultMaxRemembered   = 16 << 20
)

// sizeText writes a number of bytes.
func sizeText(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
