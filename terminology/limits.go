package terminology

import "github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"

// Defaults of the limits of a [Handler] and of [Fetched].
const (
	defaultMaxEntries      = 10_000
	defaultMaxBody         = 16 << 20
	defaultMaxResources    = 200
	defaultMaxFilterLength = 1000
	defaultMaxFilterWords  = 20
	defaultMaxRemembered   = 16 << 20
	defaultMaxFetched      = 64 << 20
)

// maxWritten bounds an answer made of many parts, in bytes.
const maxWritten = 64 << 20

func tooLong() error {
	return unprocessable("too-costly", "the answer would be larger than %s; ask for less at once", fhirjson.SizeText(maxWritten))
}
