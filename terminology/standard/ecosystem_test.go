package standard_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// ecosystem returns the folder that contains the HL7 terminology ecosystem tests and their runner.
func ecosystem(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("TX_ECOSYSTEM")
	if folder == "" {
		t.Skip("TX_ECOSYSTEM does not name the folder of the HL7 terminology ecosystem's tests")
	}
	return folder
}

// TestEcosystem runs HL7's tests for servers in the terminology ecosystem.
func TestEcosystem(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$lookup", "/CodeSystem/$validate-code", "/ConceptMap/$translate", "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	folder := ecosystem(t)
	output := runEcosystem(t, folder, strings.Fields(os.Getenv("TX_ECOSYSTEM_ARGUMENTS"))...)
	passed, all := 0, 0
	for _, count := range operationCounts.FindAllStringSubmatch(string(output[max(0, bytes.LastIndex(output, []byte("TOTAL"))):]), -1) {
		n, _ := strconv.Atoi(count[2])
		of, _ := strconv.Atoi(count[3])
		if count[1] == "expand" && n < of {
			t.Errorf("%d of %d tests of $expand pass", n, of)
		}
		passed, all = passed+n, all+of
	}
	if all == 0 || passed*10 < all*9 {
		t.Errorf("%d of %d tests pass", passed, all)
	}
}

// runEcosystem runs the tests in a folder and returns the runner's output.
func runEcosystem(t *testing.T, folder string, arguments ...string) []byte {
	t.Helper()
	return runEcosystemWith(t, terminologytest.Core(t), folder, arguments...)
}

// runEcosystemWith is like runEcosystem, but with a library that has more content.
func runEcosystemWith(t *testing.T, l *terminology.Library, folder string, arguments ...string) []byte {
	t.Helper()
	server := httptest.NewServer(terminologytest.Serve(&api.Handler{Library: l, Statement: api.Statement{Version: "0.0.0", Released: fixture.Time}}))
	defer server.Close()
	runner := cmp.Or(os.Getenv("TX_ECOSYSTEM"), filepath.Join(filepath.Dir(folder), "tx-ecosystem"))
	arguments = append([]string{filepath.Join(runner, "run.py"), folder, server.URL + "/fhir/R4", "--out", t.TempDir()}, arguments...)
	output, err := exec.CommandContext(t.Context(), "python3", arguments...).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v", arguments, err)
	}
	t.Logf("%s", output)
	return output
}

// TestEcosystemOfSources runs HL7's tests for servers with content against the built-in code systems.
func TestEcosystemOfSources(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$lookup", "/CodeSystem/$validate-code", "/ValueSet/$validate-code", "http://unitsofmeasure.org", "urn:ietf:bcp:47", "urn:iso:std:iso:3166")
	folder := ecosystem(t) + "-clinical"
	if _, err := os.Stat(folder); err != nil {
		t.Skip(err)
	}
	for _, cases := range []struct {
		suite, test string
		passed      int
		failed      string
	}{
		{"UCUM", "", 5, ""},
		{"bugs", "lang-case", 2, ""},
		{"bugs", "country-code", 1, ""},
		{"bugs", "3166-", 3, ""},
		// The expected display of ia stops at a line break in IANA's file: "Interlingua (International Auxiliary Language".
		{"langcodes", "", 0, "expand-langcodes-all"},
	} {
		output := string(runEcosystem(t, folder, "--modes", "tx.fhir.org", "--suite", cases.suite, "--test", cases.test))
		passed := "TOTAL pass " + strconv.Itoa(cases.passed) + " of"
		if !strings.Contains(output, passed) || !strings.Contains(output, cases.failed) || cases.failed == "" && strings.Contains(output, "FAIL") {
			t.Errorf("%s %s: want %s, failed %q", cases.suite, cases.test, passed, cases.failed)
		}
	}
}

// TestEcosystemOfComparisons runs HL7's tests of $related. One of them needs a complete edition of SNOMED CT,
// for which HL7's server reports too many codes.
func TestEcosystemOfComparisons(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$related")
	folder := os.Getenv("TX_ECOSYSTEM_CLINICAL")
	if folder == "" {
		t.Skip("TX_ECOSYSTEM_CLINICAL does not name the folder of HL7's tests that need content, beside that of their runner")
	}
	output := runEcosystem(t, folder, "--modes", "tx.fhir.org", "--ops", "compare", "-v")
	for line := range strings.Lines(string(output)) {
		if strings.HasPrefix(line, "FAIL") && !strings.Contains(line, "snomed") {
			t.Error(line)
		}
	}
	if !strings.Contains(string(output), "'compare': (") {
		t.Error("no tests of $related")
	}
}

// TestEcosystemOfSNOMED runs HL7's tests for SNOMED CT with their subset, which is licensed and so not part of the repository.
func TestEcosystemOfSNOMED(t *testing.T) {
	folder := os.Getenv("TX_ECOSYSTEM_CLINICAL")
	if folder == "" {
		t.Skip("TX_ECOSYSTEM_CLINICAL does not name the folder of the tests that need content")
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{filepath.Join(folder, "tx-source", "snomed")}})
	if err != nil {
		t.Fatal(err)
	}
	for suite, mode := range map[string]string{"snomed": "snomed", "sct-ecl": "snomed"} {
		output := string(runEcosystemWith(t, l, folder, "--modes", mode, "--suite", suite))
		if strings.Contains(output, "FAIL") || !strings.Contains(output, "TOTAL") {
			t.Errorf("%s: tests fail", suite)
		}
	}
}

// loincCasesWithContent are the LOINC cases for which HL7's subset contains all codes. The other cases need codes, lists or counts
// of the complete release of LOINC 2.82.
var loincCasesWithContent = []string{
	"loinc-validate-invalid", "loinc-expand-parent", "loinc-expand-prop-method", "loinc-expand-filter-answers-for1",
	"loinc-validate-enum-bad", "loinc-validate-filter-dockind-bad",
}

// TestEcosystemOfLOINC runs HL7's tests for LOINC with their subset, which is licensed and so not part of the repository.
func TestEcosystemOfLOINC(t *testing.T) {
	folder := os.Getenv("TX_ECOSYSTEM_CLINICAL")
	if folder == "" {
		t.Skip("TX_ECOSYSTEM_CLINICAL does not name the folder of the tests that need content")
	}
	release := filepath.Join(t.TempDir(), "Loinc_2.82") // the name contains the version
	if err := os.CopyFS(release, os.DirFS(filepath.Join(folder, "tx-source", "loinc"))); err != nil {
		t.Fatal(err)
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{release}})
	if err != nil {
		t.Fatal(err)
	}
	output := string(runEcosystemWith(t, l, folder, "--modes", "tx.fhir.org", "--suite", "tx.fhir.org", "--test", "loinc-"))
	for _, name := range loincCasesWithContent {
		if !strings.Contains(output, "TOTAL") || regexp.MustCompile(`FAIL\S* .*`+name+`\b`).MatchString(output) {
			t.Errorf("%s fails", name)
		}
	}
}

// operationCounts matches an operation in the runner's summary and the number of tests that passed.
var operationCounts = regexp.MustCompile(`'([a-z-]+)': \((\d+), (\d+)\)`)

// ecosystemCase is an $expand test of the terminology ecosystem.
type ecosystemCase struct {
	Name, Operation, Mode, Request, Profile string
	Version                                 string
	Language                                string `json:"Accept-Language"`
}

// sentParameter is an entry of Parameters.parameter in a request.
type sentParameter struct {
	Name     string          `json:"name"`
	Resource json.RawMessage `json:"resource"`
	Boolean  *bool           `json:"valueBoolean"`
	Integer  *int            `json:"valueInteger"`
	Code     string          `json:"valueCode"`
	String   string          `json:"valueString"`
	URI      string          `json:"valueUri"`
	URL      string          `json:"valueUrl"`
	Canon    string          `json:"valueCanonical"`
	UUID     string          `json:"valueUuid"`
}

// query returns the value of a parameter as in a query string.
func (p sentParameter) query() string {
	switch {
	case p.Boolean != nil:
		return strconv.FormatBool(*p.Boolean)
	case p.Integer != nil:
		return strconv.Itoa(*p.Integer)
	}
	return p.Code + p.String + p.URI + p.URL + p.Canon + p.UUID
}

// TestGETMatchesPOST repeats the ecosystem's $expand tests by GET, with the resources of each test loaded as definitions. It
// sends requests at the type level and, if the value set has an ID, at the instance level. The responses must equal those to
// POST, except for the source and time of the definitions.
func TestGETMatchesPOST(t *testing.T) {
	folder := ecosystem(t)
	var tests struct {
		Suites []struct {
			Name, Mode string
			Setup      []string
			Tests      []ecosystemCase
		}
	}
	readJSON(t, filepath.Join(folder, "test-cases.json"), &tests)
	twins := 0
	for _, suite := range tests.Suites {
		if suite.Mode != "" && suite.Mode != "general" {
			continue
		}
		var setup []string
		for _, name := range suite.Setup {
			if data, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
				setup = append(setup, strings.TrimPrefix(string(data), "\ufeff"))
			}
		}
		loaded := libraryWithCore(t, setup)
		for _, test := range suite.Tests {
			general := test.Mode == "" || test.Mode == "general"
			if test.Operation == "expand" && general && strings.HasPrefix("4.0", test.Version[:min(3, len(test.Version))]) {
				twins += compareMethods(t, folder, suite.Name+"/"+test.Name, test, setup, loaded)
			}
		}
	}
	t.Logf("%d answers by GET compared", twins)
	if twins < 100 {
		t.Errorf("only %d answers by GET compared", twins)
	}
}

// libraryWithCore returns a library with the built-in definitions and the given resources.
func libraryWithCore(t *testing.T, resources []string) *terminology.Library {
	t.Helper()
	folder := t.TempDir()
	for i, resource := range resources {
		fixture.WriteFile(t, filepath.Join(folder, strconv.Itoa(1000+i)+".json"), []byte(resource))
	}
	o := definitions.Options{Core: true, Now: func() time.Time { return fixture.Time }}
	if len(resources) > 0 {
		o.Definitions = []string{folder}
	}
	l, err := terminology.Load(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// compareMethods compares the responses to a test by POST and GET. It returns the number of GET requests.
func compareMethods(t *testing.T, folder, name string, test ecosystemCase, setup []string, loaded *terminology.Library) int {
	t.Helper()
	var sent struct {
		Parameter []sentParameter `json:"parameter"`
	}
	readJSON(t, filepath.Join(folder, test.Request), &sent)
	if test.Profile != "" {
		readJSONAppending(t, filepath.Join(folder, test.Profile), &sent.Parameter)
	}
	query, body := url.Values{}, `{"resourceType":"Parameters","parameter":[`
	for _, p := range sent.Parameter {
		if p.Resource != nil {
			return 0 // GET cannot send resources
		}
		query.Add(p.Name, p.query())
		body += `{"name":` + strconv.Quote(p.Name) + `,"valueString":` + strconv.Quote(p.query()) + `},`
	}
	for _, resource := range setup {
		body += `{"name":"tx-resource","resource":` + resource + `},`
	}
	post := sendRequest(t, terminologytest.Core(t), http.MethodPost, "/ValueSet/$expand", strings.TrimSuffix(body, ",")+"]}", test.Language)
	compare := func(path string) {
		got := sendRequest(t, loaded, http.MethodGet, path, "", test.Language)
		shape := flatten
		if query.Get("excludeNested") == "false" {
			shape = withoutOffset
		}
		shape(post)
		shape(got)
		if !reflect.DeepEqual(got, post) {
			t.Errorf("%s: %s:\ngot  %v\nwant %v", name, path, got, post)
		}
	}
	compare("/ValueSet/$expand?" + query.Encode())
	if vs, ok := loaded.Definitions().ResolveValueSet(query.Get("url"), ""); ok && vs.ID != "" && query.Get("valueSetVersion") == "" {
		if same, _ := loaded.Definitions().ValueSets.ValueSetByID(vs.ID); same == nil || same.Canonical() != vs.Canonical() {
			return 1
		}
		query.Del("url")
		compare("/ValueSet/" + vs.ID + "/$expand?" + query.Encode())
		return 2
	}
	return 1
}

// sendRequest returns the response as JSON, without the members that depend on the library.
func sendRequest(t *testing.T, l *terminology.Library, method, path, body, language string) map[string]any {
	t.Helper()
	r := httptest.NewRequest(method, "/fhir/R4"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/fhir+json")
	if language != "" {
		r.Header.Set("Accept-Language", language)
	}
	w := httptest.NewRecorder()
	terminologytest.Serve(&api.Handler{Library: l, Limits: expansion.Limits{Entries: 1000}}).ServeHTTP(w, r)
	var answer map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
	}
	answer["status code"] = w.Code
	if expansion, ok := answer["expansion"].(map[string]any); ok {
		delete(expansion, "identifier")
		delete(expansion, "timestamp")
	}
	return answer
}

// withoutOffset removes the offset, which a response to GET always has.
func withoutOffset(answer map[string]any) {
	if expansion, ok := answer["expansion"].(map[string]any); ok {
		delete(expansion, "offset")
	}
}

// flatten converts a tree to a list, as in responses to GET, and removes the offset.
func flatten(answer map[string]any) {
	withoutOffset(answer)
	expansion, ok := answer["expansion"].(map[string]any)
	if !ok {
		return
	}
	var list []any
	var walk func(contains []any)
	walk = func(contains []any) {
		for _, c := range contains {
			entry := c.(map[string]any)
			within, _ := entry["contains"].([]any)
			delete(entry, "contains")
			list = append(list, entry)
			walk(within)
		}
	}
	within, _ := expansion["contains"].([]any)
	walk(within)
	expansion["contains"] = list
}

// readJSON decodes a JSON file.
func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(string(data), "\ufeff")), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// readJSONAppending appends the parameters in a JSON file to a list.
func readJSONAppending(t *testing.T, name string, list *[]sentParameter) {
	t.Helper()
	var more struct {
		Parameter []sentParameter `json:"parameter"`
	}
	readJSON(t, name, &more)
	*list = append(*list, more.Parameter...)
}
