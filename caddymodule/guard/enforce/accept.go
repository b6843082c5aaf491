package enforce

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// accept is what an Accept header takes (RFC 9110 §12.5.1), by media types in small letters.
type accept map[string]float64

// parseAccept reads Accept. A malformed range is none, and one without a weight that can be read counts in full.
func parseAccept(header http.Header) accept {
	a := accept{}
	for element := range strings.SplitSeq(strings.Join(header["Accept"], ","), ",") {
		media, parameters, err := mime.ParseMediaType(element)
		if err != nil {
			continue
		}
		weight, err := strconv.ParseFloat(parameters["q"], 64)
		if err != nil {
			weight = 1
		}
		a[media] = max(a[media], weight)
	}
	return a
}

// fhirMedia are the names of FHIR's own formats, with those of DSTU2, and the general ones that FHIR's clients send for
// them (R4 http.html#mime-type).
var fhirMedia = setOf(typeJSON, "application/json", "application/json+fhir", "text/json", typeXML, "application/xml+fhir", "application/fhir+turtle")

// typeXML is the media type that nothing here is read or written in.
const typeXML = "application/fhir+xml"

// fhir is how much FHIR's formats are wanted by name, but for one name.
func (a accept) fhir(but string) (weight float64) {
	for media, w := range a {
		if media != but && fhirMedia[media] {
			weight = max(weight, w)
		}
	}
	return weight
}
