package terminology

import "github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"

// Defaults of the limits of a [Handler].
const (
	defaultMaxEntries      = 10_000
	defaultMaxBody         = 16 << 20
	defaultMaxResources    = 200
	defaultMaxFilterLength = 1000
	defaultMaxFilterWords  = 20
	defaultMaxRemembered   = 16 << 20
)

// maxWritten bounds how large an answer may get that is made of many parts, in bytes.
const maxWritten = 64 << 20

// tooLong is the error for an answer that would be larger.
func tooLong() error {
	return unprocessable("too-costly", "the answer would be larger than %s; ask for less at once", fhirjson.SizeText(maxWritten))
}
