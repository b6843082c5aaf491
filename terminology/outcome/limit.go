package outcome

import "github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"

// MaxWritten bounds an answer made of many parts, in bytes.
const MaxWritten = 64 << 20

// TooLong is the error for an answer that would be larger.
func TooLong() error {
	return Unprocessable("too-costly", "the answer would be larger than %s; ask for less at once", fhirjson.SizeText(MaxWritten))
}
