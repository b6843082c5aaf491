package enforce_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// deniedCase is a request that is sent to one server with denied records and to one without.
type deniedCase struct {
	request string // method, path and query
	body    string
	header  string // "Name: value", or empty
}

func deniedReads(requests ...string) (cases []deniedCase) {
	for _, r := range requests {
		cases = append(cases, deniedCase{request: "GET " + r})
	}
	return cases
}

const (
	ofStar    = `{"resourceType":"Observation","id":"s1","status":"amended","subject":{"reference":"Patient/star"}}`
	ofA1      = `{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/a"}}`
	aboutStar = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"},"focus":[{"reference":"Patient/star"}]}`
	byName    = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient?family=Smithson"}}`
	plainVIP  = `{"resourceType":"Binary","id":"vip","contentType":"text/plain","data":"aGVsbG8="}`
	plainStar = `{"resourceType":"Patient","id":"star","name":[{"family":"Smithson"}]}`
)

// searchCases are searches that could find a denied Patient or Observation.
var searchCases = []string{
	"Patient", "Patient?family=Smithson", "Patient?family=Smi", "Patient?family:exact=Smithson", "Patient?_id=star", "Patient?_id=star,a",
	"Patient?_id:not=star", "Patient?_summary=count", "Patient?_count=0", "Patient?_count=1", "Patient?_count=2", "Patient?_total=accurate",
	"Patient?_sort=family", "Patient?_sort=-_lastUpdated&_count=1", "Patient?_elements=id", "Patient?_summary=true", "Patient?_security=VIP",
	"Patient?_has:Observation:subject:status=final", "Patient?_revinclude=Observation:subject", "Patient?_revinclude=*",
	"Patient?_revinclude=Provenance:target", "Patient?link:Patient.family=Smithson",
	"Observation", "Observation?patient.family=Smithson", "Observation?patient.family=Smi", "Observation?subject:Patient.family=Smithson",
	"Observation?patient._id=star", "Observation?subject=Patient/star", "Observation?patient=star", "Observation?subject:missing=false",
	"Observation?_include=Observation:subject", "Observation?_include=*", "Observation?_include:iterate=Observation:subject",
	"Observation?_sort=subject", "Observation?_sort=patient", "Observation?_filter=subject.family eq Smithson", "Observation?_list=star",
	"Observation?_query=star", "Observation?_text=Smithson", "Observation?_content=Smithson", "Observation?subject:above=Patient/star",
	"Observation?_count=1", "Observation?_count=2", "Observation?_count=2&_sort=_id", "Observation?_count=3&_sort=-_id",
	"Observation?patient=Patient/a&_count=1", "Observation?patient=Patient/a&_count=2", "Observation?patient=Patient/a&_count=3&_sort=status", "Observation?patient=Patient/a&_count=4", "Observation?patient=Patient/a&_count=1&_include=*",
	"Observation?patient=Patient/a&code=http://c|seen,http://c|guessed&_count=1", "Observation?code=http://c|seen,http://c|guessed&_count=1", "Observation?code=http://c|seen,http://c|guessed&_count=1&_sort=-date", "Observation?status=final&_summary=count", "Observation?_lastUpdated=gt2000",
	"Observation?subject:identifier=Smithson", "Observation?_has:Provenance:target:_id=p", "Observation?date=2026",
	"Provenance", "Provenance?target=Patient/star", "Provenance?target:Patient.family=Smithson", "Provenance?_include=Provenance:target",
	"Patient?_revinclude:iterate=Observation:subject", "Observation?_include=Observation:subject&_include:iterate=Patient:link", "Patient?name:contains=Smith",
	"Patient?family:missing=false&_total=accurate", "Observation?subject:not=Patient/star", "Observation?subject.name:contains=Smi", "Observation?focus=Patient/star",
	"Observation?_has:Observation:focus:subject.family=Smithson", "Patient?_has:Observation:subject:_has:Provenance:target:_id=p", "Observation?focus:Patient.family=Smithson",
	"Observation?subject:Patient._has:Observation:subject:status=final", "Patient?_id=star&_sort=family", "Patient?_count=1&_sort=-family", "Observation?subject=Patient/star/_history/1",
	"Observation?subject=https://gateway.example/fhir/R4/Patient/star", "Patient?link=Patient/star", "Observation?_elements=subject&_count=1",
	"Binary", "Binary?_id=free", "Group?member=Patient/star", "Group?member:Patient.family=Smithson", "Device?patient.family=Smithson",
}

// exportCases are exports that could find denied records.
var exportCases = []string{
	"$export", "$export?_type=Patient", "$export?_type=Observation", "$export?_type=Observation,Patient", "$export?_type=Observation,Group",
	"$export?_type=Patient&_typeFilter=Patient?family=Smithson", "$export?_type=Patient&_typeFilter=Patient?family=Smi", "$export?_typeFilter=Patient?family=Smithson",
	"$export?_type=Observation&_typeFilter=Observation?subject:Patient.family=Smithson", "$export?_type=Observation&_typeFilter=Observation?patient.family=Smi",
	"$export?_type=Observation&_typeFilter=Observation?patient.birthdate=1950-01-02", "$export?_type=Observation&_typeFilter=Observation?status=final",
	"$export?_type=Patient&_typeFilter=Patient?_has:Observation:patient:status=final", "$export?_type=Observation&_typeFilter=Observation?_content=Smithson",
	"$export?_type=Observation&_typeFilter=Observation?subject=Patient/star", "$export?_type=Patient&_typeFilter=Patient?_id=star", "$export?_type=Observation&_typeFilter=Observation?_include=Observation:subject",
	"$export?_since=2000-01-01T00:00:00Z", "$export?_elements=id", "$export?includeAssociatedData=LatestProvenanceResources", "$export?organizeOutputBy=Patient",
	"$export?_type=observation", "$export?_type=Observation,,Patient", "$export?_type=Observation&_typeFilter=Observation%3Fpatient.family%3DSmi",
	"$export?_type=Observation&_typeFilter=Observation%253Fpatient.family%253DSmi", "$export?_typeFilter=Observation?status=final,Patient?family=Smithson",
	"$export?_type=Observation&_typeFilter=Observation?status=final%2526patient.family=Smi", "$export?_type=Observation&_typeFilter=Observation?status=final%26patient.family=Smi",
	"$export?_type=Observation&_typeFilter=Observation?status=final%26_sort=subject", "$export?_type=Observation&_typeFilter=Observation?status=final;patient.family=Smi",
	"$export?_type=Observation&_typeFilter=Observation?status=final&_typeFilter=Observation?patient.family=Smi", "Group/g/$export?_type=Patient&_typeFilter=Patient?family=Smithson",
	"Group/g/$export?_type=Observation,Patient&_typeFilter=Patient?family=Smithson", "Group/none/$export", "$export?_outputFormat=ndjson&_type=Patient", "$export?_until=2000-01-01T00:00:00Z",
	"$export?_typeFilter=Observation?_security=VIP", "Patient/$export?patient=Patient/past", "$export?_type=Binary&_typeFilter=Binary?_id=vip",
	"$export?_type=Binary", "Patient/$export", "Patient/$export?_type=Patient", "Patient/$export?patient=Patient/star", "Patient/$export?patient=star",
	"Patient/$export?patient=Patient/a,Patient/star", "Patient/$export?patient=Patient/a&patient=Patient/star",
	"Patient/$export?_type=Observation,Patient&_typeFilter=Patient?family=Smithson", "Patient/$export?_type=Observation&_typeFilter=Patient?family=Smithson",
	"Group/g/$export", "Group/g/$export?_type=Observation", "Group/vip/$export", "Group/vip/$export?_type=Patient", "Patient/star/$export", "Patient/a/$export",
}

// deniedCases are requests of each interaction, by its code, and of each operation, by its name.
var deniedCases = map[string][]deniedCase{
	"capabilities":       deniedReads("metadata"),
	"read":               append(deniedReads("Patient/star", "Patient/past", "Observation/vip", "Group/vip", "Observation/s1", "Provenance/p", "Binary/free"), conditionalReads("Patient/star", "Patient/past", "Observation/vip", "Binary/free", "Binary/vip")...),
	"vread":              append(conditionalReads("Patient/star/_history/1", "Binary/vip/_history/1"), deniedReads("Patient/star/_history/1", "Patient/star/_history/2", "Patient/past/_history/1", "Observation/vip/_history/1", "Observation/s1/_history/1")...),
	"history-instance":   deniedReads("Binary/vip/_history", "Patient/star/_history?_summary=count", "Patient/star/_history?_elements=id", "Patient/star/_history", "Patient/star/_history?_count=1", "Patient/star/_history?_since=2000-01-01", "Patient/past/_history", "Observation/vip/_history", "Observation/s1/_history"),
	"history-type":       deniedReads("Patient/_history", "Observation/_history", "Observation/_history?_count=1"),
	"history-system":     deniedReads("_history"),
	"search-type":        append(deniedReads(searchCases...), deniedCase{"GET Patient?_foo=1&family=Smithson", "", "Prefer handling=lenient"}, deniedCase{"GET Observation?patient.family=Smithson&_foo=2", "", "Prefer handling=lenient"}, deniedCase{request: "HEAD Patient?family=Smithson"}, deniedCase{"POST Patient/_search", "family=Smithson", "Content-Type application/x-www-form-urlencoded"}, deniedCase{"POST Observation/_search", "patient.family=Smithson", "Content-Type application/x-www-form-urlencoded"}),
	"search-system":      deniedReads("?_type=Patient,Observation", "?_type=Patient&family=Smithson", "?_id=star", "?_type=Patient,Observation&_count=1&_sort=_id", "?_type=Observation,Patient&_count=1", "?_type=Patient,Observation&_count=2", "?_type=Patient,Observation,Group&_count=3&_sort=-_id", "?_type=Observation&patient.family=Smithson"),
	"search-compartment": deniedReads("Patient/star/Observation", "Patient/star/*", "Patient/a/Observation", "Patient/a/*?_type=Observation,Patient", "Patient/star/Patient", "Patient/a/Observation?_count=1", "Patient/a/Observation?_count=2", "Patient/a/*?_type=Observation,Patient&_count=1"),
	"create": {
		{request: "POST Observation", body: ofStar}, {request: "POST Observation", body: aboutStar}, {request: "POST Observation", body: byName},
		{request: "POST Patient", body: plainStar}, {request: "POST Provenance", body: `{"resourceType":"Provenance","target":[{"reference":"Patient/star"}]}`},
		{request: "POST Binary", body: `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Patient/star"}}`},
		{request: "POST Subscription", body: `{"resourceType":"Subscription","status":"requested","reason":"r","criteria":"Patient?family=Smithson","channel":{"type":"rest-hook","endpoint":"https://app.example/hook"}}`},
		{request: "POST Task", body: `{"resourceType":"Task","status":"ready","intent":"order","for":{"reference":"Patient/star"}}`},
	},
	"conditional-create": {
		{"POST Patient", plainStar, "If-None-Exist family=Smithson"}, {"POST Observation", aboutStar, "If-None-Exist status=final&_id=vip"},
		{"POST Observation", ofStar, "If-None-Exist patient.family=Smithson"}, {"POST Device", `{"resourceType":"Device"}`, "If-None-Exist patient.family=Smithson"},
	},
	"update": {
		{request: "PUT Patient/star", body: plainStar}, {"PUT Patient/star", plainStar, `If-Match W/"2"`}, {"PUT Patient/star", plainStar, "If-None-Match *"},
		{request: "PUT Patient/past", body: strings.Replace(plainStar, "star", "past", 1)},
		{request: "PUT Observation/a1", body: ofA1}, {request: "PUT Observation/vip", body: strings.Replace(ofStar, "s1", "vip", 1)},
		{request: "PUT Observation/a1", body: `{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/star"}}`},
	},
	"conditional-update": {
		{request: "PUT Patient?family=Smithson", body: plainStar}, {request: "PUT Patient?_id=star", body: plainStar},
		{request: "PUT Observation?patient.family=Smithson", body: ofStar}, {request: "PUT Observation?_id=vip", body: aboutStar},
	},
	"patch": {
		{"PATCH Patient/star", `[{"op":"add","path":"/active","value":true}]`, "Content-Type application/json-patch+json"},
		{"PATCH Patient/star", `[{"op":"test","path":"/name/0/family","value":"Smithson"}]`, "Content-Type application/json-patch+json"},
		{"PATCH Observation/vip", `[{"op":"remove","path":"/meta/security"}]`, "Content-Type application/json-patch+json"},
		{"PATCH Observation/a1", `[{"op":"replace","path":"/subject","value":{"reference":"Patient/star"}}]`, "Content-Type application/json-patch+json"},
	},
	"conditional-patch": {
		{"PATCH Patient?family=Smithson", `[{"op":"add","path":"/active","value":true}]`, "Content-Type application/json-patch+json"},
		{"PATCH Observation?patient.family=Smithson", `[{"op":"add","path":"/active","value":true}]`, "Content-Type application/json-patch+json"},
	},
	"delete": {{request: "DELETE Patient/star"}, {request: "DELETE Observation/vip"}, {"DELETE Patient/star", "", "X-Cascade delete"}, {request: "DELETE Patient/past"}},
	"conditional-delete": {
		{request: "DELETE Patient?family=Smithson"}, {request: "DELETE Patient?_id=star"}, {request: "DELETE Observation?patient.family=Smithson"}, {request: "DELETE Observation?_id=vip"},
	},
	"bundle": deniedBundles(),
	"operation": {
		{request: "GET Patient/star/$unknown"}, {request: "POST Patient/star/$unknown", body: `{"resourceType":"Parameters"}`},
	},

	"$everything": deniedReads("Patient/star/$everything", "Patient/a/$everything", "Patient/a/$everything?_count=1", "Patient/a/$everything?_count=2", "Patient/a/$everything?_count=3",
		"Patient/a/$everything?_type=Observation", "Encounter/none/$everything", "Encounter/e/$everything", "Encounter/e/$everything?_count=1", "Patient/$everything", "Patient/$everything?_count=2"),
	"$lastn":  deniedReads("Observation/$lastn?patient=Patient/a&max=1", "Observation/$lastn?max=1", "Observation/$lastn?patient=Patient/star"),
	"$docref": deniedReads("DocumentReference/$docref?patient=star", "DocumentReference/$docref?patient=a"),
	"$validate": {
		{request: "POST Observation/$validate", body: ofStar}, {request: "POST Observation/$validate", body: aboutStar},
		{request: "POST Patient/star/$validate", body: plainStar}, {request: "POST Observation/vip/$validate", body: strings.Replace(ofStar, "s1", "vip", 1)},
	},
	"$meta":   deniedReads("Patient/star/$meta", "Observation/vip/$meta", "Patient/star/_history/1/$meta", "Patient/$meta", "$meta"),
	"$export": append(deniedReads(exportCases...), deniedCase{request: "POST Patient/$export", body: `{"resourceType":"Parameters","parameter":[{"name":"patient","valueReference":{"reference":"Patient/star"}}]}`}),

	"$expand":              deniedReads("ValueSet/$expand?url=http://example.org/vs", "ValueSet/star/$expand"),
	"$validate-code":       deniedReads("ValueSet/$validate-code?url=http://example.org/vs&code=a"),
	"$batch-validate-code": deniedReads("ValueSet/$batch-validate-code"),
	"$related":             deniedReads("ValueSet/$related?thisUrl=http://example.org/vs&otherUrl=http://example.org/vs"),
	"$compare":             deniedReads("ValueSet/$compare"),
	"$lookup":              deniedReads("CodeSystem/$lookup?code=a"),
	"$subsumes":            deniedReads("CodeSystem/$subsumes?codeA=a&codeB=b"),
	"$find-matches":        deniedReads("CodeSystem/$find-matches"),
	"$translate":           deniedReads("ConceptMap/$translate?code=a"),
	"$versions":            deniedReads("$versions"),
}

// conditionalReads returns conditional reads and reads in other formats.
func conditionalReads(targets ...string) (cases []deniedCase) {
	for _, target := range targets {
		for _, header := range []string{
			`If-None-Match W/"1"`, `If-None-Match W/"2"`, "If-Modified-Since Fri, 01 Jan 2100 00:00:00 GMT", "If-Match *", "Range bytes=0-1", "Accept text/plain", "Accept application/fhir+xml",
		} {
			cases = append(cases, deniedCase{"GET " + target, "", header})
		}
		cases = append(cases, deniedCase{request: "HEAD " + target})
		cases = append(cases, deniedReads(target+"?_format=xml", target+"?_summary=true", target+"?_elements=id")...)
	}
	return cases
}

// deniedBundles returns batches and transactions that contain such requests as entries.
func deniedBundles() (cases []deniedCase) {
	for _, kind := range []string{"batch", "transaction"} {
		for _, entry := range []string{
			`{"request":{"method":"GET","url":"Patient/star"}}`, `{"request":{"method":"GET","url":"Patient/star/_history/1"}}`,
			`{"request":{"method":"GET","url":"Patient?family=Smithson"}}`, `{"request":{"method":"GET","url":"Observation?patient.family=Smithson"}}`,
			`{"request":{"method":"GET","url":"Patient/star","ifNoneMatch":"W/\"2\""}}`, `{"request":{"method":"GET","url":"Binary/vip"}}`, `{"request":{"method":"GET","url":"Patient?_summary=count"}}`,
			`{"resource":` + plainStar + `,"request":{"method":"PUT","url":"Patient/star","ifMatch":"W/\"2\""}}`,
			`{"fullUrl":"urn:uuid:1","resource":` + plainStar + `,"request":{"method":"POST","url":"Patient","ifNoneExist":"family=Smithson"}},{"resource":` + strings.Replace(ofStar, "Patient/star", "urn:uuid:1", 1) + `,"request":{"method":"POST","url":"Observation"}}`,
			`{"request":{"method":"GET","url":"Patient/star/_history"}}`, `{"request":{"method":"GET","url":"Patient/a/$everything"}}`,
			`{"request":{"method":"DELETE","url":"Patient/star"}}`, `{"request":{"method":"DELETE","url":"Patient?family=Smithson"}}`,
			`{"resource":` + plainStar + `,"request":{"method":"PUT","url":"Patient/star"}}`, `{"resource":` + plainStar + `,"request":{"method":"PUT","url":"Patient?family=Smithson"}}`,
			`{"resource":` + plainStar + `,"request":{"method":"POST","url":"Patient","ifNoneExist":"family=Smithson"}}`,
			`{"resource":` + ofStar + `,"request":{"method":"POST","url":"Observation"}}`, `{"resource":` + byName + `,"request":{"method":"POST","url":"Observation"}}`,
			`{"resource":` + ofA1 + `,"request":{"method":"PUT","url":"Observation/a1"}},{"request":{"method":"GET","url":"Observation/vip/_history/1"}}`,
		} {
			cases = append(cases, deniedCase{request: "POST ", body: `{"resourceType":"Bundle","type":"` + kind + `","entry":[` + entry + `]}`})
		}
	}
	return cases
}

// deniedRules maps rules to the records that they deny, by reference.
var deniedRules = map[string]struct {
	rule   string
	denied map[string][]string // versions to store before the final record; an empty one is a deletion
}{
	"research": {
		`deny resource.resourceType == 'Patient'`,
		map[string][]string{"Patient/b": {plainStar}, "Device/a1": {strings.Replace(plainStar, "star", "past", 1), "Patient/past"},
			"Group/g": {strings.Replace(plainStar, "star", "last", 1)}},
	},
	"vip": {
		`deny resource.meta.security.code == 'VIP'`,
		map[string][]string{
			"Patient/b":      {plainStar, label(plainStar), label(strings.Replace(plainStar, "star", "past", 1)), "Patient/past"},
			"Observation/a2": {label(`{"resourceType":"Observation","id":"vip","status":"final","subject":{"reference":"Patient/a"}}`)},
			"Group/g":        {label(`{"resourceType":"Observation","id":"last","status":"final","code":{"coding":[{"system":"http://c","code":"guessed"}]},"subject":{"reference":"Patient/a"},"encounter":{"reference":"Encounter/e"},"hasMember":[{"reference":"Observation/weight"}],"performer":[{"reference":"Practitioner/hidden"}],"device":{"reference":"Device/a1"},"focus":[{"reference":"Device/b1"}]}`), label(strings.Replace(plainStar, "star", "last", 1))},
			"Device/a1":      {label(`{"resourceType":"Group","id":"vip","type":"person","actual":true,"member":[{"entity":{"reference":"Patient/a"}}]}`), plainVIP, label(plainVIP)},
		},
	},
}

// label adds the security label VIP to a resource.
func label(resource string) string {
	return strings.TrimSuffix(resource, "}") + `,"meta":{"security":[{"code":"VIP"}]}}`
}

// The responses to each request and to all links in them are byte for byte equal with and without the denied records. The test
// fails if an interaction or operation has no requests.
func TestDeniedRecord(t *testing.T) {
	t.Parallel()
	names := slices.Collect(maps.Keys(operation.NewOperations()))
	for k := interaction.Kind(1); k.String() != "unknown"; k++ {
		names = append(names, k.String())
	}
	slices.Sort(names)
	if rows := slices.Sorted(maps.Keys(deniedCases)); !slices.Equal(names, rows) {
		t.Fatalf("requests of %q, want %q", rows, names)
	}
	for name, rules := range deniedRules {
		for _, holder := range []access.Holder{{Scope: "system/*.cruds"}, clinician, patientA, {Scope: "system/Observation.cruds system/Patient.cruds system/Group.rs"}} {
			for _, row := range names {
				t.Run(name+" "+holder.Scope+" "+row, func(t *testing.T) {
					t.Parallel()
					for _, c := range deniedCases[row] {
						with, without := deniedAnswers(t, rules.rule, rules.denied, holder, c), deniedAnswers(t, rules.rule, nil, holder, c)
						if with != without {
							t.Errorf("%s %s\n%s\n%s\n--- without the denied records:\n%s", c.request, c.header, c.body, with, without)
						}
						for _, secret := range []string{"Patient/star\",\"name", "VIP", "\"id\":\"vip\""} {
							if strings.Contains(with, secret) && !strings.Contains(c.request+c.body, "VIP") {
								t.Errorf("%s: the answer has %s", c.request, secret)
							}
						}
					}
				})
			}
		}
	}
}

// If rules may deny the content of export files, Binaries that contain such files cannot be read or found.
func TestDeniedExportBinary(t *testing.T) {
	t.Parallel()
	for name, rules := range deniedRules {
		for _, holder := range []access.Holder{{Scope: "system/*.cruds"}, clinician} {
			g := newDeniedGateway(t, rules.denied).withRules(rules.rule)
			g.send(access.Holder{Scope: "system/*.rs"}, kickOff("GET $export", ""))
			if g.server.Get("Binary/export-0-Observation-0") == "" {
				t.Fatal("the server keeps no files")
			}
			found := g.found(holder, "Binary")
			read := g.get(holder, "Binary/export-0-Observation-0").StatusCode
			if strings.Contains(strings.Join(found, " "), "export") || !slices.Contains(found, "Binary/free") || read != http.StatusNotFound {
				t.Errorf("%s, %s: found %q, status %d", name, holder.Scope, found, read)
			}
		}
	}
}

// If a rule denies an entire type, its export files are not read to find visible lines.
func TestDeniedTypeIsNotRead(t *testing.T) {
	t.Parallel()
	var query string
	g, h := newExportGateway(t, &query).withRules(`deny resource.resourceType == 'Patient'`), access.Holder{Scope: "system/*.rs"}
	g.server.Handlers["Binary/patients"] = func(http.ResponseWriter, *http.Request) { t.Error("the file was read") }
	text, _ := io.ReadAll(g.send(h, linkRequest("GET", g.export(h, "$export"))).Body)
	if !strings.Contains(string(text), `"output":[]`) {
		t.Errorf("%s", text)
	}
}

var (
	sealedLink = regexp.MustCompile(`https://gateway\.example/fhir/R4/(_page|_job|_file)/[A-Za-z0-9_-]+`)
	reference  = regexp.MustCompile(`"reference":"([A-Z][A-Za-z]+/[A-Za-z0-9.-]+)"`)
	newID      = regexp.MustCompile(`new-\d+`)
)

// maxFollowed is the maximum number of links followed from one response.
const maxFollowed = 40

// deniedAnswers returns the responses to a request and to all links in them, without their random parts.
func deniedAnswers(t *testing.T, rule string, denied map[string][]string, holder access.Holder, c deniedCase) string {
	t.Helper()
	g := newDeniedGateway(t, denied).withRules(rule)
	method, target, _ := strings.Cut(c.request, " ")
	path, query, _ := strings.Cut(target, "?")
	if query != "" {
		path += "?" + strings.ReplaceAll(url.PathEscape(query), "%26", "&")
	}
	r := requestOf(method+" "+path, c.body)
	if strings.Contains(path, "$export") {
		r.Header.Set("Prefer", "respond-async")
	}
	if name, value, ok := strings.Cut(c.header, " "); ok {
		r.Header.Set(name, value)
	}
	var out strings.Builder
	var links []string
	seen := map[string]bool{}
	for {
		got := g.send(holder, r)
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(got.StatusCode, got.Header, "\n", string(body), "\n")
		for _, link := range sealedLink.FindAllString(text, -1) {
			if !seen[link] { // a page can link to itself
				seen[link] = true
				links = append(links, link)
			}
		}
		out.WriteString(newID.ReplaceAllString(sealedLink.ReplaceAllString(text, "<$1>"), "new"))
		if got.StatusCode == http.StatusAccepted && strings.Contains(r.URL.Path, "/_job/") {
			links = append(links, r.URL.String()) // job still in progress
		}
		if len(links) == 0 {
			return out.String()
		}
		if len(seen) > maxFollowed {
			t.Fatalf("%s: too many links", c.request)
		}
		r = httptest.NewRequest(http.MethodGet, strings.TrimPrefix(links[0], "https://gateway.example"), nil)
		links = links[1:]
	}
}

// newDeniedGateway returns a gateway for a server with the test records and the denied ones.
func newDeniedGateway(t *testing.T, denied map[string][]string) *gateway {
	t.Helper()
	g := newGateway(t)
	s := g.server
	for _, text := range slices.Concat(records, []string{
		ofStar, `{"resourceType":"Provenance","id":"p","target":[{"reference":"Patient/star"}]}`, `{"resourceType":"Observation","id":"z","status":"final","code":{"coding":[{"system":"http://c","code":"seen"}]},"subject":{"reference":"Patient/a"},"encounter":{"reference":"Encounter/e"}}`,
		`{"resourceType":"Encounter","id":"e","status":"finished","subject":{"reference":"Patient/a"}}`,
		// The only resource that refers to this Location is a denied Observation of Patient/a. The Location refers to an
		// Organization that is not denied.
		`{"resourceType":"Observation","id":"weight","status":"final","subject":{"reference":"Patient/b"},"performer":[{"reference":"Organization/org"}]}`,
		`{"resourceType":"Practitioner","id":"hidden"}`, `{"resourceType":"Organization","id":"org"}`,
		`{"resourceType":"Group","id":"g","type":"person","actual":true,"member":[{"entity":{"reference":"Patient/a"}},{"entity":{"reference":"Patient/star"}}]}`,
	}) {
		for before, versions := range denied {
			resourceType, id, _ := strings.Cut(before, "/")
			if !strings.Contains(text, `"resourceType":"`+resourceType+`","id":"`+id+`"`) {
				continue
			}
			for _, version := range versions {
				if strings.HasPrefix(version, "{") {
					s.Put(version)
				} else {
					s.Delete(version)
				}
			}
		}
		s.Put(text)
	}
	s.ChecksReferences = true
	// everything behaves like HAPI: it returns a compartment's resources and all resources that they refer to, in pages.
	everything := func(path string, keep func(key, text string) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			all, keys := s.All(), []string{}
			for _, key := range slices.Backward(slices.Sorted(maps.Keys(all))) {
				if all[key] != "" && keep(key, all[key]) {
					keys = append(keys, key)
				}
			}
			for n := 0; n < len(keys); n++ {
				for _, match := range reference.FindAllStringSubmatch(all[keys[n]], -1) {
					if all[match[1]] != "" && !slices.Contains(keys, match[1]) {
						keys = append(keys, match[1])
					}
				}
			}
			count, _ := strconv.Atoi(r.URL.Query().Get("_count"))
			offset, _ := strconv.Atoi(r.URL.Query().Get("_offset"))
			links, entries := `{"relation":"self","url":"`+fhirtest.Address+"/"+path+`"}`, []string{}
			for _, key := range keys[offset:min(len(keys), offset+count)] {
				entries = append(entries, `{"resource":`+all[key]+`,"search":{"mode":"match"}}`)
			}
			if offset+count < len(keys) {
				links += fmt.Sprintf(`,{"relation":"next","url":"%s/%s?_count=%d&_offset=%d"}`, fhirtest.Address, path, count, offset+count)
			}
			newHandler(`{"resourceType":"Bundle","type":"searchset","link":[`+links+`],"entry":[`+strings.Join(entries, ",")+`]}`)(w, r)
		}
	}
	bundleOf := func(keep func(key, text string) bool, limit int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			all := s.All()
			var entries []string
			for _, key := range slices.Backward(slices.Sorted(maps.Keys(all))) {
				if all[key] != "" && keep(key, all[key]) && len(entries) < limit {
					entries = append(entries, `{"resource":`+all[key]+`,"search":{"mode":"match"}}`)
				}
			}
			newHandler(`{"resourceType":"Bundle","type":"searchset","entry":[`+strings.Join(entries, ",")+`]}`)(w, r)
		}
	}
	ofPatient := func(id string) func(key, text string) bool {
		return func(key, text string) bool {
			return key == "Patient/"+id || strings.Contains(text, `"subject":{"reference":"Patient/`+id+`"}`)
		}
	}
	meta := func(key string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if s.Get(key) == "" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			newHandler(`{"resourceType":"Parameters"}`)(w, r)
		}
	}
	validate := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		newHandler(fmt.Sprintf(`{"resourceType":"OperationOutcome","issue":[{"severity":"information","code":"informational","diagnostics":"%t"}]}`,
			!strings.Contains(string(body), "Patient/star") || s.Get("Patient/star") != ""))(w, r)
	}
	s.Handlers = map[string]http.HandlerFunc{
		"Patient/star/$everything": everything("Patient/star/$everything", ofPatient("star")), "Patient/a/$everything": everything("Patient/a/$everything", ofPatient("a")),
		"Patient/$everything": everything("Patient/$everything", func(key, text string) bool { return ofPatient("a")(key, text) || ofPatient("b")(key, text) }),
		"Encounter/e/$everything": everything("Encounter/e/$everything", func(key, text string) bool {
			return key == "Encounter/e" || strings.Contains(text, `"encounter":{"reference":"Encounter/e"}`)
		}),
		"Observation/$lastn": bundleOf(func(key, text string) bool {
			return strings.HasPrefix(key, "Observation/") && ofPatient("a")(key, text) && key != "Observation/z"
		}, 1),
		"Patient/star/$meta": meta("Patient/star"), "Observation/vip/$meta": meta("Observation/vip"), "Observation/$validate": validate,
		"Patient/star/$validate": validate, "Observation/vip/$validate": validate,
	}
	return g
}

// If the FHIR server returns no totals, a denied match on the last page affects no total: the total does not depend on whether
// that page is full.
func TestDeniedTotal(t *testing.T) {
	t.Parallel()
	rules := deniedRules["vip"]
	for _, target := range []string{"Observation?_count=1", "Observation?_count=2", "Observation?_count=3", "Observation?_count=4", "Observation?_count=5", "Observation?_count=6", "Observation?_count=7", "Observation?_count=8", "Observation"} {
		var answers [2]string
		for n, denied := range []map[string][]string{rules.denied, nil} {
			g := newDeniedGateway(t, denied).withRules(rules.rule)
			g.server.OmitsTotals = true
			for next := target; next != ""; {
				b := mustDecode[bundle](t, g.get(access.Holder{Scope: "system/*.rs"}, next))
				next = b.next()
				answers[n] += fmt.Sprintf("%d entries, total %d\n", len(b.Entry), b.total())
			}
		}
		if answers[0] != answers[1] {
			t.Errorf("%s\n%s--- without the denied records:\n%s", target, answers[0], answers[1])
		}
	}
}
