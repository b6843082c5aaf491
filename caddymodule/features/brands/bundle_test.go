package brands_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

const fhirBase = "https://fhir.example.org/fhir/R4"

func network(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/network.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRead(t *testing.T) {
	t.Parallel()
	b, err := brands.Parse([]byte(network(t)), fhirBase, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Primary(); got == nil || got.Value != "https://hospital.example" {
		t.Errorf("primary %v", got)
	}
}

// The documented example is valid.
func TestReadExample(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../../docs/examples/user-access-brands.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := brands.Parse(example, fhirBase, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := *b.Primary(); got != (smart.Identifier{System: brands.URISystem, Value: "https://hospital.example"}) {
		t.Errorf("primary %v", got)
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, old, replacement, want string }{
		{"no JSON", `"resourceType": "Bundle",`, `resourceType`, "invalid JSON"},
		{"a name twice", `"type": "collection",`, `"type": "collection", "type": "collection",`, "name"},
		{"another type of Bundle", `"collection"`, `"searchset"`, `Bundle.type: "searchset" is not allowed: use collection`},
		{"no timestamp", `"timestamp": "2026-03-01T08:00:00Z",`, ``, "Bundle.timestamp: is missing"},
		{"date instead of an instant", `"timestamp": "2026-03-01T08:00:00Z"`, `"timestamp": "2026-03-01"`, "Bundle.timestamp: \"2026-03-01\" is not an instant"},
		{"meta without lastUpdated", `"lastUpdated": "2026-03-01T08:00:00Z", `, ``, "Bundle.meta.lastUpdated: is missing"},
		{"a total", `"type": "collection",`, `"type": "collection", "total": 3,`, "Bundle.total"},
		{"another resource", `"resourceType": "Endpoint"`, `"resourceType": "Patient"`, `Bundle.entry[2].resource.resourceType: "Patient"`},
		{"a fullUrl twice", `"fullUrl": "https://hospital.example/Endpoint/r4"`, `"fullUrl": "https://hospital.example/Organization/clinic"`, "Bundle.entry[2].fullUrl"},
		{"a version's fullUrl", `"fullUrl": "https://hospital.example/Endpoint/r4"`, `"fullUrl": "https://hospital.example/Endpoint/r4/_history/1"`, "bdl-8"},
		{"an id twice", `"id": "clinic"`, `"id": "network"`, "Bundle.entry[1].resource.id"},
		{"no id", `"id": "r4",`, ``, "Bundle.entry[2].resource.id: is missing"},
		{"a search's entry", `"fullUrl": "https://hospital.example/Endpoint/r4",`, `"search": {"mode": "match"},`, "Bundle.entry[2].search"},
		{"no name", `"name": "Example Clinic",`, ``, "Bundle.entry[1].resource.name: is missing"},
		{"an empty name", `"name": "Example Clinic"`, `"name": " "`, "Bundle.entry[1].resource.name: must not be empty"},
		{"a number for a name", `"name": "Example Clinic"`, `"name": 7`, "Bundle.entry[1].resource.name: must be a string"},
		{"null for a name", `"name": "Example Clinic"`, `"name": null`, "Bundle.entry[1].resource.name: must not be null"},
		{"an empty array", `"alias": ["Example Health"]`, `"alias": []`, "Bundle.entry[0].resource.alias: must not be empty"},
		{"no array", `"alias": ["Example Health"]`, `"alias": "Example Health"`, "Bundle.entry[0].resource.alias: must be an array"},
		{"two websites", `[{"system": "url", "value": "https://www.hospital.example/"}]`, `[{"system": "url", "value": "https://a.example"}, {"system": "url", "value": "https://b.example"}]`, "one website, but has 2"},
		{"a telephone", `"system": "url", "value": "https://www.hospital.example/"`, `"system": "phone", "value": "https://www.hospital.example/"`, "Bundle.entry[0].resource.telecom[0].system"},
		{"no URL", `"https://www.hospital.example/"`, `"www.hospital.example"`, "Bundle.entry[0].resource.telecom[0].value"},
		{"a home's website", `"system": "url", "value": "https://www.hospital.example/"`, `"system": "url", "use": "home", "value": "https://www.hospital.example/"`, "org-3"},
		{"another reason", `"asked-unknown"`, `"masked"`, `Bundle.entry[1].resource.telecom[0]._value.extension[0].valueCode: "masked"`},
		{"an identifier of nothing", `{"system": "urn:oid:2.16.840.1", "value": "17"}`, `{"system": "urn:oid:2.16.840.1"}`, "Bundle.entry[0].resource.identifier[1].value: is missing"},
		{"an identifier that is no URL", `"value": "https://clinic.example"`, `"value": "clinic"`, "Bundle.entry[1].resource.identifier[0].value"},
		{"the primary identifier twice", `"value": "https://clinic.example"`, `"value": "https://hospital.example"`, "2 Organizations have the identifier"},
		{"a street alone", `"city": "Springfield", "state": "MA", `, ``, "Bundle.entry[0].resource.address[0]: has a line but no city"},
		{"a city alone", `{"postalCode": "01102"}`, `{"city": "Springfield"}`, "neither state nor country"},
		{"a country alone", `{"postalCode": "01102"}`, `{"country": "US"}`, "Bundle.entry[0].resource.address[1]: must have"},
		{"a home", `{"postalCode": "01102"}`, `{"postalCode": "01102", "use": "home"}`, "org-2"},
		{"a code without system", `"system": "http://terminology.hl7.org/CodeSystem/organization-type", `, ``, "Bundle.entry[0].resource.type[0].coding[0].system"},
		{"an endpoint elsewhere", `"reference": "https://hospital.example/Endpoint/r4"`, `"reference": "Endpoint/r5"`, `Bundle.entry[1].resource.endpoint[0]: "Endpoint/r5" is not an Endpoint`},
		{"an Organization as endpoint", `"reference": "https://hospital.example/Endpoint/r4"`, `"reference": "Organization/network"`, "is not an Endpoint"},
		{"a portal's endpoint of another", `"valueReference": {"reference": "Endpoint/r4"}`, `"valueReference": {"reference": "Endpoint/r5"}`, "uab-1"},
		{"a logo by http", `"https://hospital.example/logo.svg"`, `"http://hospital.example/logo.svg"`, "extension[0].extension[0].valueUrl"},
		{"unknown part of the extension", `"url": "portalName"`, `"url": "portalTitle"`, `"portalTitle" is not defined in this extension`},
		{"two names", `"url": "portalDescription", "valueMarkdown"`, `"url": "portalName", "valueString"`, "portalName is repeated: only one"},
		{"of another type", `"valueMarkdown"`, `"valueString"`, "valueMarkdown: is missing"},
		{"partOf a missing organization", `"Organization/network"}`, `"Organization/holding"}`, "Bundle.entry[1].resource.partOf"},
		{"part of a part", `"active": true,`, `"partOf": {"reference": "Organization/clinic"},`, "two levels"},
		{"no status", `"status": "active",`, ``, "Bundle.entry[2].resource.status: is missing"},
		{"another connection", `"hl7-fhir-rest"`, `"dicom-wado-rs"`, "connectionType.code"},
		{"no version", `endpoint-fhir-version"`, `endpoint-version"`, "endpoint-fhir-version is missing"},
		{"a version in words", `"4.0.1"`, `"R4"`, "must be a FHIR version such as"},
		{"no page for developers", `"system": "url", "value": "https://developers.hospital.example"`, `"system": "email", "value": "a@hospital.example"`, "Bundle.entry[2].resource.contact"},
		{"developers by http", `"https://developers.hospital.example"`, `"http://developers.hospital.example"`, "contact[0].value"},
		{"another payload", `"code": "none"`, `"code": "any"`, "payloadType"},
		{"no address", `"address": "https://fhir.example.org/fhir/R4"`, `"address": "/fhir/R4"`, "Bundle.entry[2].resource.address"},
		{"another server", `"address": "https://fhir.example.org/fhir/R4"`, `"address": "https://fhir.example.net/fhir/R4"`, "this server's FHIR base"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text := network(t)
			changed := strings.Replace(text, test.old, test.replacement, 1)
			if changed == text {
				t.Fatal("nothing was changed")
			}
			if _, err := brands.Parse([]byte(changed), fhirBase, nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

func TestReadRefusesUnusedEndpoint(t *testing.T) {
	t.Parallel()
	second := `"id": "r4",`
	text := strings.NewReplacer(second, `"id": "r5",`, `/Endpoint/r4"`, `/Endpoint/r5"`).Replace(network(t))
	third := text[strings.LastIndex(text, `{
			"fullUrl"`):strings.LastIndex(text, "]")]
	text = strings.Replace(network(t), `"entry": [`, `"entry": [`+strings.TrimSpace(third)+",", 1)
	if _, err := brands.Parse([]byte(text), fhirBase, nil); err == nil || err.Error() != "Bundle.entry[0].resource: is not the endpoint of any Organization in this Bundle" {
		t.Error(err)
	}
}

// The error lists all problems of a Bundle, up to the limit.
func TestReadReportsAllProblems(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer(`"status": "active",`, "", `"name": "Example Clinic",`, "").Replace(network(t))
	_, err := brands.Parse([]byte(text), fhirBase, nil)
	if err == nil || !strings.Contains(err.Error(), "status") || !strings.Contains(err.Error(), "name") {
		t.Error(err)
	}
	many := `{"resourceType":"Bundle","entry":[` + strings.Repeat(`{},`, 1000) + `{}]}`
	_, err = brands.Parse([]byte(many), fhirBase, nil)
	if err == nil || strings.Count(err.Error(), "\n") > 20 || !strings.Contains(err.Error(), "more") {
		t.Error(err)
	}
	for _, text := range []string{"", "[]", "null", "7"} {
		if _, err := brands.Parse([]byte(text), fhirBase, nil); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	if _, err := brands.Parse(make([]byte, brands.MaxSize+1), fhirBase, nil); err == nil || !strings.Contains(err.Error(), "the maximum is") {
		t.Error(err)
	}
}

func TestPrimary(t *testing.T) {
	t.Parallel()
	const system = "urn:ietf:rfc:3986"
	for _, test := range []struct {
		name      string
		change    *strings.Replacer
		base      string
		configure *smart.Identifier
		want      string // substring of the error
	}{
		{"configured", strings.NewReplacer(), "https://other.example/fhir", &smart.Identifier{System: system, Value: "https://clinic.example"}, "https://clinic.example"},
		{"configured, of no brand", strings.NewReplacer(), fhirBase, &smart.Identifier{System: system, Value: "https://x.example"}, "0 Organizations have the identifier"},
		{"configured, of another system", strings.NewReplacer(), fhirBase, &smart.Identifier{System: "urn:x", Value: "17"}, "0 Organizations have the identifier"},
		{"a slash at the end of the address", strings.NewReplacer(`/fhir/R4"`, `/fhir/R4/"`), fhirBase, nil, "https://hospital.example"},
		{"two on top", strings.NewReplacer(`"partOf": {"reference": "Organization/network"},`, ""), fhirBase, nil, "primary"},
		{"no URL", strings.NewReplacer(`{"system": "urn:ietf:rfc:3986", "value": "https://hospital.example"}, `, ""), fhirBase, nil, "17"},
		{"no identifier", strings.NewReplacer(`"identifier": [{"system": "urn:ietf:rfc:3986", "value": "https://hospital.example"}, {"system": "urn:oid:2.16.840.1", "value": "17"}],`, ""), fhirBase, nil, "this server's brand must have an identifier"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b, err := brands.Parse([]byte(test.change.Replace(network(t))), test.base, test.configure)
			got := fmt.Sprint(err)
			if err == nil {
				got = b.Primary().Value
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// FuzzRead parses arbitrary text. Accepted text is valid JSON and is served unchanged.
func FuzzRead(f *testing.F) {
	f.Add(network(f))
	f.Add(`{"resourceType":"Bundle","type":"collection","entry":[{"resource":{"resourceType":"Organization","telecom":[null]}}]}`)
	f.Add(`{"entry":{"resource":[]},"meta":7,"timestamp":[[]]}`)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := brands.Parse([]byte(text), fhirBase, nil)
		if err != nil {
			return
		}
		if r := get(b, nil); r.Body.String() != text || !json.Valid([]byte(text)) {
			t.Errorf("served %s", r.Body)
		}
	})
}
