package outcome

import "github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"

// maxWritten bounds an answer made of many parts, in bytes.
const MaxWritten = 64 << 20

func TooLong() error {
	return Unprocessable("too-costly", "the answer would be larger than %s; ask for less at once", fhirjson.SizeText(MaxWritten))
}
