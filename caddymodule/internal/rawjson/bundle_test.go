package rawjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// entry is an entry of a bundle of search results. %d is the resource's id.
const entry = `{"fullUrl":"https://fhir.example.org/fhir/R4/Observation/%[1]d","resource":{"resourceType":"Observation","id":"%[1]d",
"meta":{"versionId":"1","lastUpdated":"2026-03-04T05:06:07.089+00:00","source":"#5Yp8mQ2rTz1aBcDe","profile":["http://hl7.org/fhir/StructureDefinition/vitalsigns"]},
"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\">Blood pressure of Zoë Müller: 107/60 mmHg</div>"},
"identifier":[{"use":"official","system":"urn:ietf:rfc:3986","value":"urn:uuid:187e0c12-8dd2-67e2-99b2-bf273c878281"}],
"status":"final","category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"vital-signs","display":"Vital Signs"}]}],
"code":{"coding":[{"system":"http://loinc.org","code":"85354-9","display":"Blood pressure panel with all children optional"}],"text":"Blood pressure"},
"subject":{"reference":"Patient/%[1]d"},"encounter":{"reference":"Encounter/1%[1]d"},"effectiveDateTime":"2026-03-04T05:06:07+01:00",
"performer":[{"reference":"Practitioner/example","display":"Dr. Adam Careful"}],
"interpretation":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationInterpretation","code":"L","display":"low"}]}],
"component":[{"code":{"coding":[{"system":"http://loinc.org","code":"8480-6","display":"Systolic blood pressure"}]},
"valueQuantity":{"value":107.5,"unit":"mmHg","system":"http://unitsofmeasure.org","code":"mm[Hg]"}},
{"code":{"coding":[{"system":"http://loinc.org","code":"8462-4","display":"Diastolic blood pressure"}]},
"valueQuantity":{"value":60,"unit":"mmHg","system":"http://unitsofmeasure.org","code":"mm[Hg]"}}]},
"search":{"mode":"match"}}`

// bundle returns a page of search results, as servers write it, compact or indented.
func bundle(t testing.TB, indented bool) []byte {
	t.Helper()
	var whole, text bytes.Buffer
	whole.WriteString(`{"resourceType":"Bundle","id":"page","type":"searchset","total":50,"entry":[`)
	for id := range 50 {
		if id > 0 {
			whole.WriteByte(',')
		}
		fmt.Fprintf(&whole, entry, id)
	}
	whole.WriteString(`]}`)
	err := json.Compact(&text, whole.Bytes())
	if indented {
		text.Reset()
		err = json.Indent(&text, whole.Bytes(), "", "  ")
	}
	if err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func BenchmarkSkip(b *testing.B) {
	for _, layout := range []struct {
		name     string
		indented bool
	}{{"compact", false}, {"indented", true}} {
		text := bundle(b, layout.indented)
		for _, way := range []struct {
			name string
			read func() error
		}{
			{"Cursor", func() error { return rawjson.NewCursor(text).Skip() }},
			{"Cursor that allows duplicates", func() error { return rawjson.NewCursor(text).AllowDuplicates().Skip() }},
			{"jsontext", func() error { return jsontext.NewDecoder(bytes.NewBuffer(text)).SkipValue() }},
		} {
			b.Run(layout.name+"/"+way.name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					if err := way.read(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
