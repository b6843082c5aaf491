package guardattack

import (
	"fmt"
	"slices"
	"strings"
)

// disguiser rewrites attacks into alternative forms.
type disguiser struct{ *Attacker }

// disguise rewrites one in six attacks to another form that a server may treat as equivalent.
func (a disguiser) disguise(attack Attack) Attack {
	switch a.IntN(6) {
	case 0:
		return a.reformatted(a.respelled(attack))
	case 1, 2:
		return a.reformatted(attack)
	}
	return attack
}

// respelled changes the spelling of the URL: percent-encoded letters, extra path segments, suffixes or query separators.
func (a disguiser) respelled(attack Attack) Attack {
	path, query, searched := strings.Cut(attack.Path, "?")
	switch a.IntN(8) {
	case 0, 1, 2:
		path = a.escaped(path)
	case 3, 4:
		query = a.escaped(query)
	case 5:
		path = pick(a, "./", "/", "%2e/", "Patient/../", ";x/", "%20", "x/..%2f") + path
	case 6:
		path += pick(a, "/", "//", "/.", "%00", ";a=b", "%3Fx=y", "%23", "%2f", ".json", "/%2e%2e", "%20")
	case 7:
		query = strings.ReplaceAll(query, "&", pick(a, ";", "&&", "%26", "&;"))
	}
	if attack.Path = path; searched {
		attack.Path += "?" + query
	}
	return attack
}

// escaped percent-encodes some letters of a text once or twice.
func (a disguiser) escaped(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		switch {
		case c == '%' || c == '=' || c == '&' || c == '/' && !a.oneIn(20) || !a.oneIn(6):
			b.WriteByte(c)
		case a.oneIn(12):
			fmt.Fprintf(&b, "%%25%02x", c)
		default:
			fmt.Fprintf(&b, pick(a, "%%%02x", "%%%02X"), c)
		}
	}
	return b.String()
}

// reformatted requests another format, or adds headers that some servers support.
func (a disguiser) reformatted(attack Attack) Attack {
	attack.Headers = append(slices.Clip(attack.Headers), pick(a,
		[]string{"Accept", "application/fhir+xml"}, []string{"Accept", "text/html"}, []string{"Accept", "application/x-turtle"}, []string{"Accept", "*/*;q=0.1"},
		[]string{"Accept", "application/octet-stream"}, []string{"Accept", "application/fhir+ndjson"}, []string{"Accept-Encoding", "gzip"},
		[]string{"X-HTTP-Method-Override", "GET"}, []string{"X-HTTP-Method-Override", "DELETE"}, []string{"X-Original-URL", "/fhir/Patient"},
		[]string{"X-Rewrite-URL", "/fhir/Patient"}, []string{"X-Forwarded-Prefix", "/fhir/Patient"}, []string{"X-Forwarded-Host", "zq.example"},
		[]string{"Prefer", "handling=lenient"}, []string{"Prefer", "respond-async"}, []string{"Prefer", "return=OperationOutcome"}, []string{"Cache-Control", "no-store, max-results=20"},
		[]string{"X-Retry-On-Version-Conflict", "retry; max-retries=2"}, []string{"X-Upsert-Extistence-Check", "disabled"}, []string{"X-Cascade", "delete"},
		[]string{"X-Progress", "x"}, []string{"X-Authorization", "x"}, []string{"If-None-Match", "*"}, []string{"Accept", "application/fhir+json; fhirVersion=3.0"},
	)...)
	return attack
}
