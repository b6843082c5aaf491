package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestGuardAddresses checks that no response contains the FHIR server's address, in JSON and XML, for three kinds of FHIR
// servers. It also checks that the framing follows RFC 9110 over HTTP/1.1 and HTTP/2.
func TestGuardAddresses(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	h.store(t, w.records(pairedRules[1].before+pairedRecords))
	h.warmUp(t)
	for _, server := range []struct {
		name     string
		naming   func(base string) func(*http.Request)
		compress bool
	}{
		{"by its own address", ownAddress, false},
		{"by the host, without TLS", func(string) func(*http.Request) { return hostWithoutTLS }, false},
		{"compressed in spite of identity", ownAddress, true},
	} {
		t.Run(server.name, func(t *testing.T) {
			f := frontOf(t, h.fhirAPI)
			f.naming, f.compress = server.naming(f.base), server.compress
			g := startGuarded(t, "addresses-"+strings.ReplaceAll(server.name[:6], " ", "-"), f.fhirAPI)
			internal := []string{
				strings.TrimSuffix(strings.TrimPrefix(f.base, "http://"), "/fhir"), strings.TrimPrefix(h.base, "http://"),
				"http://" + strings.TrimPrefix(g.gateway.issuer, "https://"),
			}
			for name, who := range holdersByScope(w) {
				first := server.name == "by its own address"
				if name != "system" && !first {
					continue // only the first server is tested with all scopes
				}
				for n, request := range addressRequests(w) {
					if strings.Contains(request, "+xml") && (name != "system" || !first) || strings.HasPrefix(request, "GET metadata") && name != "system" {
						continue // XML is allowed only with unbound scopes, and metadata needs no scopes
					}
					a, err := g.http1(t, who, request)
					if err != nil {
						t.Errorf("%s: %s by HTTP/1.1: %v", name, w.template(request), err)
						continue
					}
					if n%4 == 0 || strings.HasPrefix(request, "GET metadata") { // Go's HTTP/2 client checks the framing
						g.sendLine(t, who, request)
					}
					if a.status == http.StatusBadGateway && server.compress {
						continue // the guard may reject compressed responses
					}
					text := responseText(httpResponse{header: a.header}) + string(uncompressed(t, a))
					for _, address := range internal {
						if at := strings.Index(text, address); at >= 0 {
							t.Errorf("%s: %s shows %s: …%.200s", name, w.template(request), address, w.template(text[max(0, at-80):]))
						}
					}
					if first && name != "user" {
						g.checkHead(t, who, request)
					}
				}
			}
		})
	}
}

// addressRequests returns each line of addressed as two requests: one for JSON and one for XML.
func addressRequests(w *testPatients) []string {
	var all []string
	for line := range strings.Lines(strings.TrimSpace(addressed)) {
		line = w.text(strings.TrimSuffix(line, "\n"))
		all = append(all, line)
		request, body, found := strings.Cut(line, "\t")
		if found {
			request += " Accept=application/fhir+xml\t" + body
		} else {
			request += " Accept=application/fhir+xml"
		}
		all = append(all, request)
	}
	return all
}

const addressed = `GET metadata
GET Patient/{patient}
GET Patient/{patient} If-None-Match=W/"1"
GET Patient/{patient}/_history/1
GET Patient/{patient}/_history
GET Patient/_history?_count=2
GET _history?_count=2
GET Patient?_id={patient}
GET Patient/nobody
GET Patient?nothing=1
GET Observation?patient=Patient/{patient}&_count=1
GET Observation?patient=Patient/{patient}&_include=Observation:patient&_revinclude=Provenance:target
GET Observation?patient=Patient/{patient}&_count=0
GET Observation?patient=Patient/{patient}&_summary=count
GET Observation?patient=Patient/{patient}&_elements=status
GET DiagnosticReport?_id={report}&_include=*
GET Patient/{patient}/$everything
GET Patient/{patient}/$everything?_count=2
GET Patient/{patient}/$meta
GET Binary/{noteBinary}
GET DocumentReference/$docref?patient={patient}
GET $export?_type=Patient Prefer=respond-async
GET Observation/$lastn?patient=Patient/{patient}
GET nothing/at/all
POST Observation/_search Content-Type=application/x-www-form-urlencoded	patient=Patient/{patient}&_count=1
POST Patient/$validate	{"resourceType":"Patient"}
POST Observation	{"resourceType":"Observation","status":"final","code":{"text":"new"},"subject":{"reference":"Patient/{patient}"}}
POST Observation	{"resourceType":"Observation","status":
PUT Observation/{weight}	{"resourceType":"Observation","id":"{weight}","status":"amended","code":{"text":"new"},"subject":{"reference":"Patient/{patient}"}}
PUT Observation/{weight} If-Match=W/"99"	{"resourceType":"Observation","id":"{weight}","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/{patient}"}}
PATCH Observation/{weight} Content-Type=application/json-patch+json	[{"op":"replace","path":"/status","value":"final"}]
POST Observation If-None-Exist=_id={pulse}	{"resourceType":"Observation","status":"final","code":{"text":"new"},"subject":{"reference":"Patient/{patient}"}}
POST 	{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"Patient/{patient}"}},{"request":{"method":"GET","url":"Observation?patient=Patient/{patient}&_count=1"}},{"request":{"method":"GET","url":"Patient/nobody"}},{"resource":{"resourceType":"Observation","status":"final","code":{"text":"new"},"subject":{"reference":"Patient/{patient}"}},"request":{"method":"POST","url":"Observation"}}]}
POST 	{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"Observation","status":"final","code":{"text":"new"},"subject":{"reference":"Patient/{patient}"}},"request":{"method":"POST","url":"Observation"}}]}
DELETE Observation/{smoking}`
