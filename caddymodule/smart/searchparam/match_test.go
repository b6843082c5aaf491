package searchparam

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

const (
	observation = `{"resourceType":"Observation","id":"o1","status":"final",
		"meta":{"tag":[{"system":"http://x/tags","code":"t"}],"profile":["http://x/profile|2"],"lastUpdated":"2024-03-05T10:11:12.345+01:00"},
		"category":[{"coding":[{"system":"http://x/cat","code":"laboratory"},{"code":"odd,one|two"}]}],
		"identifier":[{"system":"http://x/id","value":"A-1"}],
		"subject":{"reference":"Patient/1/_history/4"},"encounter":{"reference":"https://own.example/fhir/Encounter/e"},
		"performer":[{"reference":"https://x.example/fhir/Practitioner/p"},{"reference":"#c"},{"identifier":{"value":"1"}}],
		"contained":[{"resourceType":"Practitioner","id":"c"}],
		"effectivePeriod":{"start":"2024-03-05","end":"2024-03-10"},
		"valueQuantity":{"value":5.40,"unit":"milligram","system":"http://unitsofmeasure.org","code":"mg"},
		"component":[{"valueQuantity":{"value":7,"comparator":"<"}}]}`
	patient = `{"resourceType":"Patient","id":"p","active":true,"gender":"female","birthDate":"1980-05",
		"name":[{"family":"Müller-Lüdenscheidt","given":["Ève"," Maria  Ann"]}],
		"telecom":[{"system":"phone","value":"555"},{"system":"email","value":"a@b.example"}],
		"address":[{"line":["1 High Street"],"city":"Ørsted"}]}`
)

// matchCase is a resource and a search with the expected result.
type matchCase struct {
	name, resource, parameter, value string
	want                             bool
}

func testMatches(t *testing.T, tests []matchCase) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := parse(t, tt.resource)
			p, ok := Lookup(r.Type, tt.parameter)
			if !ok {
				t.Fatal("no such parameter")
			}
			if got, err := p.Matches(r, tt.value); got != tt.want || err != nil {
				t.Errorf("got %v %v", got, err)
			}
		})
	}
}

// TestMatches covers the kinds of parameters in https://hl7.org/fhir/R4/search.html.
func TestMatches(t *testing.T) {
	t.Parallel()
	testMatches(t, []matchCase{
		{"token, code", observation, "category", "laboratory", true},
		{"token, other code", observation, "category", "vital-signs", false},
		{"token, part of a code", observation, "category", "lab", false},
		{"token, case", observation, "category", "Laboratory", false},
		{"token, system and code", observation, "category", "http://x/cat|laboratory", true},
		{"token, other system", observation, "category", "http://y/cat|laboratory", false},
		{"token, system alone", observation, "category", "http://x/cat|", true},
		{"token, other system alone", observation, "category", "http://y/cat|", false},
		{"token, without a system", observation, "category", `|odd\,one\|two`, true},
		{"token, without a system though it has one", observation, "category", "|laboratory", false},
		{"token, escapes", observation, "category", `odd\,one\|two`, true},
		{"token, alternatives", observation, "category", "vital-signs,laboratory", true},
		{"token, no alternative", observation, "category", "vital-signs,survey", false},
		{"token, code element", observation, "status", "final", true},
		{"token, code element and its system", observation, "status", "http://hl7.org/fhir/observation-status|final", true},
		{"token, code element and the system alone", observation, "status", "http://hl7.org/fhir/observation-status|", true},
		{"token, code element and another system", observation, "status", "http://x|final", false},
		{"token, code element without a system", observation, "status", "|final", false},
		{"token, boolean without a system", patient, "active", "|true", false},
		{"token, other code element", observation, "status", "amended", false},
		{"token, identifier", observation, "identifier", "http://x/id|A-1", true},
		{"token, other identifier", observation, "identifier", "http://x/id|A-2", false},
		{"token, boolean", patient, "active", "true", true},
		{"token, other boolean", patient, "active", "false", false},
		{"token, contact point", patient, "phone", "555", true},
		{"token, contact point of another system", patient, "phone", "a@b.example", false},
		{"token, any contact point", patient, "telecom", "a@b.example", true},
		{"token, id", patient, "_id", "p", true},
		{"token, other id", patient, "_id", "q", false},
		{"token, tag", observation, "_tag", "http://x/tags|t", true},
		{"token, not there", patient, "_tag", "t", false},
		{"reference, relative", observation, "subject", "Patient/1", true},
		{"reference, of a version", observation, "subject", "Patient/1/_history/5", true},
		{"reference, id", observation, "subject", "1", true},
		{"reference, URL", observation, "subject", "https://own.example/fhir/Patient/1", true},
		{"reference, other id", observation, "subject", "Patient/2", false},
		{"reference, other type", observation, "subject", "Group/1", false},
		{"reference, URL of another server", observation, "subject", "https://x.example/fhir/Patient/1", false},
		{"reference, to one type", observation, "patient", "1", true},
		{"reference, of no such type", observation, "patient", "Encounter/e", false},
		{"reference, written as URL", observation, "encounter", "Encounter/e", true},
		{"reference, on another server", observation, "performer", "https://x.example/fhir/Practitioner/p", true},
		{"reference, on another server by id", observation, "performer", "p", false},
		{"reference, on another server as if here", observation, "performer", "Practitioner/p", false},
		{"reference, contained", observation, "performer", "c", false},
		{"reference, fragment", observation, "performer", "#c", false},
		{"reference, fragment where any type may be", `{"resourceType":"Basic","subject":{"reference":"#c"}}`, "subject", "#c", false},
		{"reference, id of a type that the parameter is not for", `{"resourceType":"Observation","encounter":{"reference":"Group/g"}}`, "encounter", "g", false},
		{"reference, identifier", observation, "performer", "1", false},
		{"string, start", patient, "family", "mull", true},
		{"string, accents and case", patient, "family", "MÜLLER", true},
		{"string, not the start", patient, "family", "denscheidt", false},
		{"string, part of a name", patient, "name", "eve", true},
		{"string, spaces", patient, "given", "maria ann", true},
		{"string, other", patient, "given", "anna", false},
		{"string, address", patient, "address", "1 high", true},
		{"string, other address", patient, "address", "2 high", false},
		{"uri", observation, "_profile", "http://x/profile|2", true},
		{"uri, of any version", observation, "_profile", "http://x/profile", true},
		{"uri, other version", observation, "_profile", "http://x/profile|3", false},
		{"uri, start", observation, "_profile", "http://x/prof", false},
		{"date, equal", patient, "birthdate", "1980-05", true},
		{"date, within", patient, "birthdate", "1980", true},
		{"date, more precise", patient, "birthdate", "1980-05-01", false},
		{"date, ne", patient, "birthdate", "ne1980", false},
		{"date, ne of a part", patient, "birthdate", "ne1980-05-01", true},
		{"date, gt", patient, "birthdate", "gt1980-04", true},
		{"date, gt the same", patient, "birthdate", "gt1980-05", false},
		{"date, gt a part", patient, "birthdate", "gt1980-05-10", true},
		{"date, ge the same", patient, "birthdate", "ge1980-05", true},
		{"date, ge later", patient, "birthdate", "ge1980-06", false},
		{"date, lt", patient, "birthdate", "lt1980-06", true},
		{"date, lt the same", patient, "birthdate", "lt1980-05", false},
		{"date, le the same", patient, "birthdate", "le1980-05", true},
		{"date, le earlier", patient, "birthdate", "le1980-04", false},
		{"date, sa", patient, "birthdate", "sa1980-04", true},
		{"date, sa a part", patient, "birthdate", "sa1980-05-10", false},
		{"date, eb", patient, "birthdate", "eb1980-06", true},
		{"date, eb a part", patient, "birthdate", "eb1980-05-10", false},
		{"date, ap", patient, "birthdate", "ap1980-05-10", true},
		{"date, ap another", patient, "birthdate", "ap1980-06", false},
		{"date, range", patient, "birthdate", "ge2000,le1990", true},
		{"date, instant and zone", observation, "_lastUpdated", "2024-03-05T09:11:12Z", true},
		{"date, instant in another second", observation, "_lastUpdated", "2024-03-05T09:11:13Z", false},
		{"date, period within", observation, "date", "2024-03", true},
		{"date, period longer", observation, "date", "2024-03-06", false},
		{"date, period overlaps", observation, "date", "ap2024-03-10", true},
		{"date, end of a period belongs to it", observation, "date", "sa2024-03-04", true},
		{"quantity", observation, "value-quantity", "5.4", true},
		{"quantity, rounded", observation, "value-quantity", "5", true},
		{"quantity, more precise", observation, "value-quantity", "5.41", false},
		{"quantity, exponent", observation, "value-quantity", "54e-1", true},
		{"quantity, with unit", observation, "value-quantity", "5.4|http://unitsofmeasure.org|mg", true},
		{"quantity, with other unit", observation, "value-quantity", "5.4|http://unitsofmeasure.org|g", false},
		{"quantity, with other system", observation, "value-quantity", "5.4|http://x|mg", false},
		{"quantity, with system and unit as written", observation, "value-quantity", "5.4|http://unitsofmeasure.org|milligram", false},
		{"quantity, with unit in any system", observation, "value-quantity", "5.4||mg", true},
		{"quantity, with unit as written", observation, "value-quantity", "5.4||milligram", true},
		{"quantity, without unit", observation, "value-quantity", "5.4||", true},
		{"quantity, gt", observation, "value-quantity", "gt5.3", true},
		{"quantity, gt the same", observation, "value-quantity", "gt5.4", false},
		{"quantity, ge the same", observation, "value-quantity", "ge5.4", true},
		{"quantity, lt", observation, "value-quantity", "lt5.4", false},
		{"quantity, le", observation, "value-quantity", "le5.4", true},
		{"quantity, ne", observation, "value-quantity", "ne5.4", false},
		{"quantity, ap", observation, "value-quantity", "ap5", true},
		{"quantity, not ap", observation, "value-quantity", "ap4", false},
		{"quantity, a bound", observation, "component-value-quantity", "7", false},
	})
}

func TestMatchesMore(t *testing.T) {
	t.Parallel()
	testMatches(t, []matchCase{
		{"integer", `{"resourceType":"MolecularSequence","variant":[{"start":3}],"referenceSeq":{"windowStart":10}}`, "window-start", "10", true},
		{"decimal", `{"resourceType":"RiskAssessment","prediction":[{"probabilityDecimal":0.25}]}`, "probability", "gt0.2", true},
		{"decimal, too small", `{"resourceType":"RiskAssessment","prediction":[{"probabilityDecimal":0.25}]}`, "probability", "gt0.3", false},
		{"decimal, with a unit", `{"resourceType":"RiskAssessment","prediction":[{"probabilityDecimal":0.25}]}`, "probability", "0.25||mg", false},
		{"money of another system", `{"resourceType":"Invoice","totalNet":{"value":10,"currency":"EUR"}}`, "totalnet", "10|http://x|EUR", false},
		{"money", `{"resourceType":"Invoice","totalNet":{"value":10,"currency":"EUR"}}`, "totalnet", "10|urn:iso:std:iso:4217|EUR", true},
		{"other money", `{"resourceType":"Invoice","totalNet":{"value":10,"currency":"EUR"}}`, "totalnet", "10|urn:iso:std:iso:4217|USD", false},
		{"timing", `{"resourceType":"Observation","effectiveTiming":{"event":["2024-01-01","2024-02-01"]}}`, "date", "2024-02", true},
		{"timing at another time", `{"resourceType":"Observation","effectiveTiming":{"event":["2024-01-01"]}}`, "date", "2024-02", false},
		{"open period", `{"resourceType":"Encounter","period":{"start":"2024-01-01"}}`, "date", "gt2030", true},
		{"open period has begun", `{"resourceType":"Encounter","period":{"start":"2024-01-01"}}`, "date", "eb2025", false},
		{"empty period", `{"resourceType":"Encounter","period":{}}`, "date", "ap2025", false},
		{"no date", `{"resourceType":"Patient","birthDate":"soon"}`, "birthdate", "ne2025", false},
		{"date in words", `{"resourceType":"Procedure","performedString":"2024"}`, "date", "2024", false},
		{"canonical", `{"resourceType":"Measure","library":["http://x/l|1"]}`, "depends-on", "http://x/l", true},
		{"text of a concept", `{"resourceType":"Observation","valueCodeableConcept":{"text":"Positive"}}`, "value-string", "pos", true},
		{"time without a zone", `{"resourceType":"Encounter","period":{"start":"2024-01-01T10:00:00Z","end":"2024-01-01T10:00:30Z"}}`, "date", "2024-01-01T10:00", true},
	})
}

func TestMatchesErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, parameter, value string
		want                   error
	}{
		{"composite", "code-value-quantity", "a$5", errNotEvaluable},
		{"no paths", "_text", "a", errNotEvaluable},
		{"empty", "status", "", errMalformedValue},
		{"empty alternative", "status", "final,", errMalformedValue},
		{"bars alone", "category", "|", errMalformedValue},
		{"too many bars", "category", "a|b|c", errMalformedValue},
		{"string of accents alone", "value-string", "\u0301", errMalformedValue},
		{"string of spaces", "value-string", "  ", errMalformedValue},
		{"no date", "date", "soon", errMalformedValue},
		{"no date behind a good one", "date", "2024,soon", errMalformedValue},
		{"unknown prefix", "date", "xx2024", errMalformedValue},
		{"prefix across two", "date", "q 2024", errMalformedValue},
		{"no number", "value-quantity", "five", errMalformedValue},
		{"fraction", "value-quantity", "1/2", errMalformedValue},
		{"hexadecimal", "value-quantity", "0x10", errMalformedValue},
		{"huge exponent", "value-quantity", "1e999999999", errMalformedValue},
		{"too many digits", "value-quantity", strings.Repeat("1", 41), errMalformedValue},
		{"one bar", "value-quantity", "5|mg", errMalformedValue},
	}
	r := parse(t, `{"resourceType":"Observation"}`)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, ok := Lookup("Observation", tt.parameter)
			if !ok {
				t.Fatal("no such parameter")
			}
			if got, err := p.Matches(r, tt.value); got || !errors.Is(err, tt.want) {
				t.Errorf("got %v %v", got, err)
			}
		})
	}
}

func FuzzMatches(f *testing.F) {
	names := []string{"category", "subject", "value-string", "date", "value-quantity", "_profile", "_lastUpdated", "status"}
	f.Add(uint8(0), observation, `http://x/cat|laboratory,a\,b`)
	f.Add(uint8(3), observation, "ge2024-03,lt2023-01-01T10:00:00Z")
	f.Add(uint8(4), observation, "gt5.4|http://unitsofmeasure.org|mg")
	f.Fuzz(func(t *testing.T, which uint8, text, value string) {
		r, err := resource.Parse([]byte(text))
		if err != nil {
			return
		}
		p, _ := Lookup("Observation", names[int(which)%len(names)])
		if matched, err := p.Matches(r, value); matched && err != nil {
			t.Errorf("matched, and %v", err)
		}
	})
}

func BenchmarkMatches(b *testing.B) {
	r, err := resource.Parse([]byte(observation))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p, _ := Lookup("Observation", "category")
		if ok, err := p.Matches(r, "http://x/cat|laboratory"); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func parse(t *testing.T, text string) resource.Resource {
	t.Helper()
	r, err := resource.Parse([]byte(text), "https://own.example/fhir")
	if err != nil {
		t.Fatal(err)
	}
	return r
}
