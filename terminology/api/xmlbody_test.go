package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

// asXML returns a resource, which is given in JSON, in XML.
func asXML(t testing.TB, resource string) string {
	t.Helper()
	document, err := fhirxml.Append(nil, []byte(resource))
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

// A body has the same answer in XML as in JSON.
func TestXMLBody(t *testing.T) {
	inline := `{"resourceType":"ValueSet","status":"active","contained":[{"resourceType":"ValueSet","id":"in","compose":{"include":[
		{"system":"http://x/colours","concept":[{"code":"blue"}]}]}}],"compose":{"inactive":false,"include":[{"valueSet":["#in"]}]}}`
	parameters := func(list string) string { return `{"resourceType":"Parameters","parameter":[` + list + `]}` }
	for _, test := range []struct{ name, path, body string }{
		{"bare value set", "/ValueSet/$expand", inline},
		{"value set in Parameters", "/ValueSet/$expand", parameters(`{"name":"valueSet","resource":` + inline + `},{"name":"count","valueInteger":1},{"name":"includeDefinition","valueBoolean":true}`)},
		{"brought along", "/ValueSet/$expand", parameters(`{"name":"url","valueUri":"http://x/v"},{"name":"tx-resource","resource":{"resourceType":"CodeSystem","url":"http://x/s",
			"valueSet":"http://x/v","status":"active","content":"complete","property":[{"code":"p","type":"decimal"}],
			"concept":[{"code":"a","property":[{"code":"p","valueDecimal":1.50}],"concept":[{"code":"b"}]}]}},{"name":"property","valueString":"p"}`)},
		{"a coding", "/ValueSet/$validate-code", parameters(`{"name":"url","valueUri":"http://x/is-red"},{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`)},
		{"a concept", "/ValueSet/$validate-code", parameters(`{"name":"url","valueUri":"http://x/is-red"},{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://x/colours","code":"blue"}]}}`)},
		{"lookup", "/CodeSystem/$lookup", parameters(`{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`)},
		{"translate", "/ConceptMap/$translate", parameters(`{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`)},
		{"a batch", "/ValueSet/$batch-validate-code", parameters(`{"name":"validation","resource":` + parameters(`{"name":"url","valueUri":"http://x/is-red"},{"name":"system","valueUri":"http://x/colours"},{"name":"code","valueCode":"red"}`) + `}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &Handler{Library: colourLibrary(t)}
			want, _ := call(t, h, "POST", test.path, test.body)
			if want.Code != http.StatusOK {
				t.Fatalf("as JSON: %d %s", want.Code, want.Body)
			}
			for _, kind := range []string{"application/fhir+xml; charset=utf-8", "application/xml", "text/xml"} {
				got, _ := call(t, h, "POST", test.path, asXML(t, test.body), "Content-Type", kind)
				if got.Body.String() != want.Body.String() {
					t.Errorf("as %s: got %s\nwant %s", kind, got.Body, want.Body)
				}
			}
		})
	}
}

func TestXMLBodyRefused(t *testing.T) {
	h := &Handler{Library: colourLibrary(t), MaxBody: 1000}
	for name, test := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"JSON":            {`{"resourceType":"Parameters"}`, 400, "XML"},
		"a document type": {`<!DOCTYPE a [<!ENTITY b "c">]><Parameters xmlns="http://hl7.org/fhir"/>`, 400, "document type"},
		"another type":    {`<Patient xmlns="http://hl7.org/fhir"/>`, 400, "must be a ValueSet"},
		"too large":       {asXML(t, `{"resourceType":"ValueSet","name":"`+strings.Repeat("a", 1000)+`"}`), 413, "larger"},
	} {
		w, _ := call(t, h, "POST", "/ValueSet/$expand", test.body, "Content-Type", "application/fhir+xml")
		if w.Code != test.status {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
		wantText(t, w.Body.String(), test.want)
	}
}
