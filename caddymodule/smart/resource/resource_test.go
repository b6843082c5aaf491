package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// observation is an Observation of about 2 KB, as servers write it.
var observation = []byte(`{"resourceType":"Observation","id":"blood-pressure","meta":{"versionId":"3","lastUpdated":"2024-03-05T10:11:12.345+00:00","profile":["http://hl7.org/fhir/StructureDefinition/vitalsigns"]},"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\"><p><b>Generated Narrative</b></p><p><b>status</b>: final</p><p><b>category</b>: Vital Signs</p><p><b>code</b>: Blood pressure systolic and diastolic</p><p><b>subject</b>: <a>Patient/example</a></p><p><b>effective</b>: 2012-09-17</p></div>"},"identifier":[{"system":"urn:ietf:rfc:3986","value":"urn:uuid:187e0c12-8dd2-67e2-99b2-bf273c878281"}],"status":"final","category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"vital-signs","display":"Vital Signs"}]}],"code":{"coding":[{"system":"http://loinc.org","code":"85354-9","display":"Blood pressure panel with all children optional"}],"text":"Blood pressure systolic & diastolic"},"subject":{"reference":"Patient/example"},"encounter":{"reference":"Encounter/e1"},"effectiveDateTime":"2012-09-17","performer":[{"reference":"Practitioner/a"}],"interpretation":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationInterpretation","code":"L","display":"low"}],"text":"Below low normal"}],"bodySite":{"coding":[{"system":"http://snomed.info/sct","code":"368209003","display":"Right arm"}]},"component":[{"code":{"coding":[{"system":"http://loinc.org","code":"8480-6","display":"Systolic blood pressure"},{"system":"http://acme.org/devices/clinical-codes","code":"bp-s","display":"Systolic Blood pressure"}]},"valueQuantity":{"value":107,"unit":"mmHg","system":"http://unitsofmeasure.org","code":"mm[Hg]"}},{"code":{"coding":[{"system":"http://loinc.org","code":"8462-4","display":"Diastolic blood pressure"}]},"valueQuantity":{"value":60,"unit":"mmHg","system":"http://unitsofmeasure.org","code":"mm[Hg]"}}]}`)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text        string
		typ, id, version  string
		contained, errors string
	}{
		{"whole", `{"resourceType":"Patient","id":"a","meta":{"versionId":"7"}}`, "Patient", "a", "7", "", ""},
		{"type behind", ` {"id":"a","resourceType":"Patient"} `, "Patient", "a", "", "", ""},
		{"new", `{"resourceType":"Patient"}`, "Patient", "", "", "", ""},
		{"escaped name", `{"resource\u0054ype":"Patient"}`, "Patient", "", "", "", ""},
		{"escaped value", `{"resourceType":"P\u0061tient","id":"\u0061"}`, "Patient", "a", "", "", ""},
		{"contained", `{"resourceType":"Patient","contained":[{"a":1},{}]}`, "Patient", "", "", `{"a":1} {}`, ""},
		{"type twice", `{"resourceType":"Patient","resourceType":"Group"}`, "", "", "", "", "duplicate"},
		{"member twice by an escape", `{"resourceType":"Patient","id":"a","i\u0064":"b"}`, "", "", "", "", "duplicate"},
		{"inner member twice", `{"resourceType":"Patient","a":{"b":1,"b":2}}`, "", "", "", "", "duplicate"},
		{"no type", `{"id":"a"}`, "", "", "", "", "resourceType is missing"},
		{"empty type", `{"resourceType":""}`, "", "", "", "", "resourceType is missing"},
		{"type no string", `{"resourceType":1}`, "", "", "", "", "string"},
		{"id no string", `{"resourceType":"Patient","id":1}`, "", "", "", "", "string"},
		{"version no string", `{"resourceType":"Patient","meta":{"versionId":1}}`, "", "", "", "", "string"},
		{"array", `[]`, "", "", "", "", "object"},
		{"cut off", `{"resourceType":"Patient"`, "", "", "", "", "byte"},
		{"more behind", `{"resourceType":"Patient"}{}`, "", "", "", "", "byte"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := Parse([]byte(tt.text))
			if (err != nil) != (tt.errors != "") || err != nil && !strings.Contains(err.Error(), tt.errors) {
				t.Fatalf("error %v, want %q", err, tt.errors)
			}
			if r.Type != tt.typ || r.ID != tt.id || r.VersionID != tt.version {
				t.Errorf("got %s/%s version %s", r.Type, r.ID, r.VersionID)
			}
			if got := join(slices.Collect(r.Contained())); got != tt.contained {
				t.Errorf("contained %s", got)
			}
		})
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	const text = `{"resourceType":"Patient",
		"contained":[{"resourceType":"Patient","id":"p"},{"resourceType":"Group","id":"g"}],
		"name":[{"given":["A","B"]},null,{"given":["C"]},{"family":"D"}],
		"telecom":[{"system":"phone","value":"1"},{"system":"email","value":"2"},{"value":"3"},7],
		"related":[{"type":"x","to":1},{"type":"y","to":2}],
		"who":[{"reference":"Patient/1"},{"reference":"#p"},{"reference":"Group/1"},{"reference":"#g"},{"reference":"#none"},
			{"identifier":{},"type":"Patient"},{"reference":"http://x/fhir/Patient/1/_history/2"},{"reference":5}],
		"deep":{"er":{"still":true}}}`
	tests := []struct {
		name string
		path Path
		want string
	}{
		{"through arrays", Path{Elements: []string{"name", "given"}}, `"A" "B" "C"`},
		{"whole objects", Path{Elements: []string{"related"}}, `{"type":"x","to":1} {"type":"y","to":2}`},
		{"deep", Path{Elements: []string{"deep", "er", "still"}}, `true`},
		{"through a value that is no object", Path{Elements: []string{"deep", "er", "still", "more"}}, ``},
		{"not there", Path{Elements: []string{"other"}}, ``},
		{"filter at the end", Path{Elements: []string{"telecom"}, Filters: []Filter{{Depth: 1, Element: "system", Value: "phone"}}}, `{"system":"phone","value":"1"}`},
		{"filter on the way", Path{Elements: []string{"related", "to"}, Filters: []Filter{{Depth: 1, Element: "type", Value: "y"}}}, `2`},
		{
			"target", Path{Elements: []string{"who"}, Target: "Patient"},
			`{"reference":"Patient/1"} {"reference":"#p"} {"reference":"http://x/fhir/Patient/1/_history/2"}`,
		},
	}
	r, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := join(slices.Collect(r.Values(tt.path))); got != tt.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

// Iteration stops when the caller breaks the loop.
func TestValuesStops(t *testing.T) {
	t.Parallel()
	r, _ := Parse([]byte(`{"resourceType":"X","a":[{"b":[1,2]},{"b":[3]}]}`))
	count := 0
	for range r.Values(Path{Elements: []string{"a", "b"}}) {
		count++
		break
	}
	if count != 1 {
		t.Error(count)
	}
}

func TestParseReference(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reference string
		want            Reference
		ok              bool
	}{
		{"relative", "Patient/1", Reference{Type: "Patient", ID: "1"}, true},
		{"version", "Patient/1/_history/2", Reference{Type: "Patient", ID: "1"}, true},
		{"own server", "https://own.example/fhir/Patient/1", Reference{Type: "Patient", ID: "1"}, true},
		{"own server inside", "http://hapi:8080/fhir/Patient/1/_history/1", Reference{Type: "Patient", ID: "1"}, true},
		{"other server", "https://other.example/fhir/Patient/1", Reference{Type: "Patient", ID: "1", Base: "https://other.example/fhir"}, true},
		{"other server, version", "https://other.example/Patient/1/_history/3", Reference{Type: "Patient", ID: "1", Base: "https://other.example"}, true},
		{"like the own server", "https://own.example/fhir2/Patient/1", Reference{Type: "Patient", ID: "1", Base: "https://own.example/fhir2"}, true},
		{"below the own server", "https://own.example/fhir/x/Patient/1", Reference{}, false},
		{"malformed version", "Patient/1/_history/2?x", Reference{}, false},
		{"no version", "Patient/1/_history/", Reference{}, false},
		{"contained", "#p", Reference{Contained: "p"}, true},
		{"the container", "#", Reference{}, false},
		{"conditional", "Patient?identifier=x", Reference{}, false},
		{"uuid", "urn:uuid:187e0c12-8dd2-67e2-99b2-bf273c878281", Reference{}, false},
		{"id alone", "1", Reference{}, false},
		{"slash before", "/Patient/1", Reference{}, false},
		{"slash behind", "Patient/1/", Reference{}, false},
		{"escaped", "Patient/%31", Reference{}, false},
		{"fragment", "Patient/1#x", Reference{}, false},
		{"query", "Patient/1?x", Reference{}, false},
		{"dots for an id", "Patient/..", Reference{Type: "Patient", ID: ".."}, true},
		{"small letter", "patient/1", Reference{}, false},
		{"long id", "Patient/" + strings.Repeat("a", 65), Reference{}, false},
		{"empty", "", Reference{}, false},
		{"scheme only", "http://", Reference{}, false},
	}
	r, err := Parse([]byte(`{"resourceType":"X"}`), "https://own.example/fhir", "http://hapi:8080/fhir/")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, ok := r.ParseReference(tt.reference); got != tt.want || ok != tt.ok {
				t.Errorf("got %+v %v", got, ok)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(observation)
	f.Add([]byte(`{"resourceType":"X","contained":[{"id":"p"}],"who":{"reference":"#p"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if r.Type == "" {
			t.Error("a resource without a type")
		}
		for _, path := range []Path{{Elements: []string{"who"}, Target: "X"}, {Elements: []string{"meta", "versionId"}}} {
			for range r.Values(path) {
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.SetBytes(int64(len(observation)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(observation); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValues(b *testing.B) {
	r, _ := Parse(observation)
	path := Path{Elements: []string{"subject"}, Target: "Patient"}
	b.ReportAllocs()
	for b.Loop() {
		for range r.Values(path) {
		}
	}
}

// join concatenates texts and removes white space between tokens.
func join(texts [][]byte) string {
	var all []string
	for _, text := range texts {
		all = append(all, string(text))
	}
	return strings.Join(all, " ")
}

// Resources that are read consecutively equal those that are parsed separately, whatever their number of members.
func TestReader(t *testing.T) {
	t.Parallel()
	var texts []string
	for n := range 100 {
		var b strings.Builder
		fmt.Fprintf(&b, `{"resourceType":"%s","id":"%d","meta":{"versionId":"v%[2]d"}`, []string{"Patient", "Patient", "Group"}[n%3], n)
		for m := range n * n % 60 {
			fmt.Fprintf(&b, `,"element%d":[%d,"%d"]`, m, n, m)
		}
		texts = append(texts, b.String()+"}")
	}
	text := []byte("[" + strings.Join(texts, " , ") + "]")
	for n, r := range readAll(t, text, texts) {
		alone, err := Parse([]byte(texts[n]))
		if err != nil {
			t.Fatal(err)
		}
		if r.Type != alone.Type || r.ID != alone.ID || r.VersionID != alone.VersionID {
			t.Errorf("%s/%s version %s: want that of %s", r.Type, r.ID, r.VersionID, texts[n])
		}
		for m := range 61 {
			name := fmt.Sprintf("element%d", m)
			got, ok := r.Member(name)
			if want, exists := alone.Member(name); ok != exists || string(got) != string(want) {
				t.Errorf("%s of %s: %s", name, texts[n], got)
			}
		}
	}
}

func readAll(t *testing.T, text []byte, parts []string) []Resource {
	t.Helper()
	c := rawjson.NewCursor(text)
	reader := NewReader(c, text)
	var all []Resource
	err := c.Array(func() error {
		r, part, err := reader.Read()
		if err == nil && string(part) != parts[len(all)] {
			t.Errorf("part %s", part)
		}
		all = append(all, r)
		return err
	})
	if err != nil || len(all) != len(parts) {
		t.Fatal(len(all), err)
	}
	return all
}

// Reading stops at a value that is not a resource.
func TestReaderStops(t *testing.T) {
	t.Parallel()
	text := []byte(`[{"id":"a"},{"resourceType":"Patient"}]`)
	c := rawjson.NewCursor(text)
	reader := NewReader(c, text)
	read := 0
	if err := c.Array(func() error { read++; _, _, err := reader.Read(); return err }); err == nil || read != 1 {
		t.Errorf("%d were read: %v", read, err)
	}
}
