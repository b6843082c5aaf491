package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

const gender = "http://hl7.org/fhir/ValueSet/administrative-gender"

func TestBadRequests(t *testing.T) {
	long := strings.Repeat("a", api.MaxParameterLength+1)
	tests := []struct {
		name, query string
		status      int
		code, part  string
	}{
		{"no url", "filter=a", 400, "required", "url"},
		{"empty url", "url=", 400, "required", "url"},
		{"nothing", "", 400, "required", "url"},
		{"unknown url", terminologytest.Query("url", "http://x/none"), 404, "not-found", "http://x/none"},
		{"unknown version", terminologytest.Query("url", gender+"|9"), 404, "not-found", gender + "|9"},
		{"negative count", terminologytest.Query("url", gender, "count", "-1"), 400, "invalid", "count"},
		{"negative offset", terminologytest.Query("url", gender, "offset", "-1"), 400, "invalid", "offset"},
		{"fraction", terminologytest.Query("url", gender, "count", "1.5"), 400, "invalid", "count"},
		{"no number", terminologytest.Query("url", gender, "offset", "ten"), 400, "invalid", "offset"},
		{"empty number", terminologytest.Query("url", gender, "count", ""), 400, "invalid", "count"},
		{"number with sign", terminologytest.Query("url", gender, "count", "+1"), 400, "invalid", "count"},
		{"number with space", terminologytest.Query("url", gender, "count", " 1"), 400, "invalid", "count"},
		{"more than 31 bits", terminologytest.Query("url", gender, "count", "2147483648"), 400, "invalid", "too large"},
		{"more than 64 bits", terminologytest.Query("url", gender, "offset", "99999999999999999999999"), 400, "invalid", "too large"},
		{"repeated url", terminologytest.Query("url", gender, "url", gender), 400, "invalid", "url"},
		{"repeated filter", terminologytest.Query("url", gender, "filter", "a", "filter", "b"), 400, "invalid", "filter"},
		{"repeated count", terminologytest.Query("url", gender, "count", "1", "count", "1"), 400, "invalid", "count"},
		{"repeated displayLanguage", terminologytest.Query("url", gender, "displayLanguage", "de", "displayLanguage", "en"), 400, "invalid", "displayLanguage"},
		{"long filter", terminologytest.Query("url", gender, "filter", long), 400, "too-long", "8192"},
		{"long unknown parameter", terminologytest.Query("url", gender, "x", long), 400, "too-long", "8192"},
		{"control character", "url=" + gender + "&filter=%00", 400, "invalid", "character"},
		{"no UTF-8", "url=%ff", 400, "invalid", "character"},
		{"malformed escape", "url=%zz", 400, "invalid", "query string"},
		{"semicolon", "url=a;count=1", 400, "invalid", "query string"},
		{"activeOnly", terminologytest.Query("url", gender, "activeOnly", "yes"), 400, "invalid", "activeOnly"},
		{"contextDirection", terminologytest.Query("url", gender, "contextDirection", "up"), 400, "invalid", "contextDirection"},
		{"date", terminologytest.Query("url", gender, "date", "31.1.2026"), 400, "invalid", "date"},
		{"valueSet in the query", terminologytest.Query("valueSet", gender), 400, "invalid", "valueSet"},
		{"unknown valueSetVersion", terminologytest.Query("url", gender, "valueSetVersion", "1"), 404, "not-found", gender + "|1"},
		{"two versions", terminologytest.Query("url", gender+"|4.0.1", "valueSetVersion", "1"), 400, "invalid", "valueSetVersion"},
		{"unknown context", terminologytest.Query("context", "http://x#y"), 404, "not-found", "http://x#y"},
		{"system-version without a version", terminologytest.Query("url", gender, "system-version", "http://x"), 400, "invalid", "system-version"},
		{"empty exclude-system", terminologytest.Query("url", gender, "exclude-system", ""), 400, "invalid", "exclude-system"},
		{"filter over the limit", terminologytest.Query("url", gender, "filter", long[:1001]), 400, "too-long", "1000"},
		{"words over the limit", terminologytest.Query("url", gender, "filter", strings.Repeat("a ", 21)), 400, "too-long", "20 words"},
	}
	h := &api.Handler{Library: terminologytest.Core(t)}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := terminologytest.Request(h, http.MethodGet, test.query)
			var e *outcome.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			if e.Status != test.status || e.IssueType() != test.code {
				t.Errorf("got %d %s, want %d %s", e.Status, e.IssueType(), test.status, test.code)
			}
			fixture.WantContains(t, e.Error(), test.part)
			if len(e.Error()) > 1000 {
				t.Errorf("the text has %d bytes", len(e.Error()))
			}
			if errors.Is(err, outcome.ErrUnknown) != (test.status == 404) || errors.Is(err, outcome.ErrUnsupported) != (test.code == "not-supported") || errors.Is(err, outcome.ErrIncomplete) {
				t.Errorf("wraps %v", e.Err)
			}
			if w.Body.Len() > 0 {
				t.Errorf("wrote %q", w.Body)
			}
		})
	}
}

func TestEchoedParameters(t *testing.T) {
	l := terminologytest.Core(t)
	got := terminologytest.Expand(t, l, "url", gender, "displayLanguage", "de", "includeDesignations", "true", "designation", "a|b", "designation", "b|c",
		"activeOnly", "false", "excludeNested", "true", "excludeNotForUI", "false", "x", "ignored", "contextDirection", "incoming")
	want := []string{
		"displayLanguage=de", "designation=a|b", "designation=b|c", "excludeNested=true", "activeOnly=false", "includeDesignations=true",
		"excludeNotForUI=false", "used-codesystem=http://hl7.org/fhir/administrative-gender|4.0.1",
	}
	if !slices.Equal(got.Parameters(), want) {
		t.Errorf("got %v", got.Parameters())
	}
	terminologytest.WantCodes(t, got, "male female other unknown")
}

func TestPaging(t *testing.T) {
	l := terminologytest.Core(t)
	tests := []struct {
		name   string
		params []string
		codes  string
		total  int
		offset int
		echo   []string
	}{
		{"all", nil, "male female other unknown", 4, 0, []string{}},
		{"count", []string{"count", "2"}, "male female", 4, 0, []string{"count=2"}},
		{"offset", []string{"offset", "3"}, "unknown", 4, 3, []string{"offset=3"}},
		{"both", []string{"offset", "1", "count", "2"}, "female other", 4, 1, []string{"offset=1", "count=2"}},
		{"more than there are", []string{"count", "2147483647", "offset", "2"}, "other unknown", 4, 2, []string{"offset=2", "count=2147483647"}},
		{"behind the end", []string{"offset", "2147483647", "count", "2147483647"}, "", 4, 2147483647, []string{"offset=2147483647", "count=2147483647"}},
		{"none", []string{"count", "0"}, "", 4, 0, []string{"count=0"}},
		{"filter", []string{"filter", "e"}, "male female other", 3, 0, []string{"filter=e"}},
		{"filter and page", []string{"filter", "e", "offset", "1", "count", "1"}, "female", 3, 1, []string{"filter=e", "offset=1", "count=1"}},
		{"filter and none", []string{"filter", "e", "count", "0"}, "", 3, 0, []string{"filter=e", "count=0"}},
		{"empty filter", []string{"filter", ""}, "male female other unknown", 4, 0, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := terminologytest.Expand(t, l, append([]string{"url", gender}, test.params...)...)
			terminologytest.WantCodes(t, got, test.codes)
			if *got.Expansion.Total != test.total || *got.Expansion.Offset != test.offset {
				t.Errorf("got total %d, offset %d", *got.Expansion.Total, *got.Expansion.Offset)
			}
			want := append(test.echo, "used-codesystem=http://hl7.org/fhir/administrative-gender|4.0.1")
			if !slices.Equal(got.Parameters(), want) {
				t.Errorf("got parameters %v, want %v", got.Parameters(), want)
			}
		})
	}
}

func TestTooCostly(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t), Limits: expansion.Limits{Entries: 3}}
	for _, params := range [][]string{{}, {"count", "4"}, {"offset", "0"}} {
		_, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query(append([]string{"url", gender}, params...)...))
		var e *outcome.Error
		if !errors.As(err, &e) || e.Status != 422 || e.Code != "too-costly" {
			t.Errorf("%v: got %v", params, err)
		}
	}
	terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", gender, "count", "3"), "male female other")
	terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", gender, "count", "4", "offset", "3"), "unknown")
	terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", gender, "filter", "e"), "male female other")
	if got := terminologytest.ExpandWith(t, h, "url", gender, "count", "0"); *got.Expansion.Total != 4 {
		t.Errorf("got total %d", *got.Expansion.Total)
	}
}

func TestDefaultMaxEntries(t *testing.T) {
	var concepts []string
	for i := range 10_000 + 1 {
		concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","display":"D"}`, i))
	}
	l := terminologytest.Library(t, `{"resourceType":"CodeSystem","url":"http://x/big","status":"active","content":"complete","concept":[`+strings.Join(concepts, ",")+`]}`, fixture.AllCodesOf("http://x/big"))
	if e := terminologytest.ExpandError(t, l, "url", "http://x/big-all"); e.Code != "too-costly" {
		t.Errorf("got %v", e)
	}
	got := terminologytest.Expand(t, l, "url", "http://x/big-all", "count", "10000")
	if len(got.Codes()) != 10000 || *got.Expansion.Total != 10001 {
		t.Errorf("got %d of %d", len(got.Codes()), *got.Expansion.Total)
	}
}

func TestResponseShape(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	w, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query("url", gender, "count", "0"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"resourceType":"ValueSet","url":"http://hl7.org/fhir/ValueSet/administrative-gender","version":"4.0.1",` +
		`"name":"AdministrativeGender","title":"AdministrativeGender","status":"active","experimental":false,` +
		`"expansion":{"identifier":"urn:uuid:00000000-0000-5000-8000-000000000000","timestamp":"2026-01-02T03:04:05Z","total":4,"offset":0,` +
		`"parameter":[{"name":"count","valueInteger":0},{"name":"used-codesystem","valueUri":"http://hl7.org/fhir/administrative-gender|4.0.1"}]}}`
	got := w.Body.String()
	at := strings.Index(got, "urn:uuid:") + len("urn:uuid:")
	id := got[at : at+36]
	if got = strings.Replace(got, id, "00000000-0000-5000-8000-000000000000", 1); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if id[14] != '5' || !strings.ContainsRune("89ab", rune(id[19])) {
		t.Errorf("%s is no UUID of version 5", id)
	}
	if got := w.Header().Get("Content-Type"); got != "application/fhir+json" {
		t.Errorf("got Content-Type %q", got)
	}
}

func TestHead(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	get, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query("url", gender))
	if err != nil {
		t.Fatal(err)
	}
	head, err := terminologytest.Request(h, http.MethodHead, terminologytest.Query("url", gender))
	if err != nil {
		t.Fatal(err)
	}
	if head.Body.Len() != 0 || head.Header().Get("Content-Length") != fmt.Sprint(get.Body.Len()) || head.Code != 200 {
		t.Errorf("got %d %v %q", head.Code, head.Header(), head.Body)
	}
	var e *outcome.Error
	if _, err := terminologytest.Request(h, http.MethodPut, terminologytest.Query("url", gender)); !errors.As(err, &e) || e.Status != http.StatusMethodNotAllowed {
		t.Errorf("got %v", err)
	}
}

func TestDeterministic(t *testing.T) {
	ask := func(l *terminology.Library, pairs ...string) string {
		w, err := terminologytest.Request(&api.Handler{Library: l}, http.MethodGet, terminologytest.Query(pairs...))
		if err != nil {
			t.Fatal(err)
		}
		return w.Body.String()
	}
	identifier := func(answer string) string {
		var e terminologytest.Expanded
		if err := json.Unmarshal([]byte(answer), &e); err != nil {
			t.Fatal(err)
		}
		return e.Expansion.Identifier
	}
	one := terminologytest.Library(t, fixture.SingleConceptCodeSystem("http://x/a", "1", "c"), fixture.AllCodesOf("http://x/a"))
	same := terminologytest.Library(t, fixture.SingleConceptCodeSystem("http://x/a", "1", "c"), fixture.AllCodesOf("http://x/a"))
	other := terminologytest.Library(t, fixture.SingleConceptCodeSystem("http://x/a", "1", "d"), fixture.AllCodesOf("http://x/a"))
	answer := ask(one, "url", "http://x/a-all")
	if ask(one, "url", "http://x/a-all") != answer || ask(same, "url", "http://x/a-all") != answer {
		t.Error("the same question has different answers")
	}
	if ask(one, "url", "http://x/a-all", "_format", "json") != answer {
		t.Error("a parameter that is ignored changes the answer")
	}
	ids := map[string]bool{identifier(answer): true, identifier(ask(other, "url", "http://x/a-all")): true,
		identifier(ask(one, "url", "http://x/a-all", "count", "1")): true, identifier(ask(one, "url", "http://x/a-all", "filter", "c")): true}
	if len(ids) != 4 {
		t.Errorf("different answers share an identifier: %v", ids)
	}
}

func TestEscaping(t *testing.T) {
	l := terminologytest.Library(t, `{"resourceType":"CodeSystem","url":"http://x/\"q\"","status":"active","content":"complete",
		"concept":[{"code":"a\"\\\u0001\n","display":"tab\t, <b>&, \u2028, 😀, é, \u007f"}]}`, fixture.AllCodesOf(`http://x/"q"`))
	got := terminologytest.Expand(t, l, "url", `http://x/"q"-all`, "filter", "x\t\"tab\\\u2028</é")
	if p := got.Parameters()[0]; p != "filter=x\t\"tab\\\u2028</é" {
		t.Errorf("got parameter %q", p)
	}
	got = terminologytest.Expand(t, l, "url", `http://x/"q"-all`)
	want := terminologytest.Entry{System: `http://x/"q"`, Code: "a\"\\\x01\n", Display: "tab\t, <b>&, \u2028, 😀, é, \x7f"}
	if !reflect.DeepEqual(got.Expansion.Contains[0], want) || got.URL != `http://x/"q"-all` {
		t.Errorf("got %+v", got)
	}
}

func TestWriteError(t *testing.T) {
	w := brokenWriter{httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodGet, "/ValueSet/$expand?"+terminologytest.Query("url", gender), nil)
	var e *outcome.Error
	if err := (&api.Handler{Library: terminologytest.Core(t)}).Expand(w, r); !errors.Is(err, http.ErrHandlerTimeout) || errors.As(err, &e) {
		t.Errorf("got %v", err)
	}
}

// brokenWriter simulates the writer of a closed connection.
type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { return 0, http.ErrHandlerTimeout }

func TestBodyIsPutBack(t *testing.T) {
	body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/none"}]}`
	r := httptest.NewRequest("POST", "/fhir/R4/ValueSet/$expand", strings.NewReader(body))
	err := (&api.Handler{Library: terminologytest.Core(t)}).Expand(httptest.NewRecorder(), r)
	if again, _ := io.ReadAll(r.Body); !errors.Is(err, outcome.ErrUnknown) || string(again) != body {
		t.Errorf("got %v, %s", err, again)
	}
}

func TestBodyLimits(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	resource := `{"name":"tx-resource","resource":` + fixture.SingleConceptCodeSystem("http://x/a", "1", "a") + `}`
	tests := []struct {
		name, body string
		status     int
	}{
		{"too large", `{"resourceType":"Parameters","x":"` + strings.Repeat("x", api.MaxBody) + `"}`, http.StatusRequestEntityTooLarge},
		{"too many resources", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/a-all"},` + resource + strings.Repeat(","+resource, api.MaxResources) + `]}`, http.StatusRequestEntityTooLarge},
		{"not JSON", `nothing`, 400},
		{"cut off", `{"resourceType":"Parameters","parameter":[`, 400},
		{"two resources", `{"resourceType":"Parameters"}{}`, 400},
		{"another resource", `{"resourceType":"Patient"}`, 400},
		{"broken tx-resource", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"x"},{"name":"tx-resource","resource":{"resourceType":"CodeSystem","concept":3}}]}`, 400},
		{"empty", ``, 400},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, answer := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", test.body)
			if w.Code != test.status || answer["resourceType"] != "OperationOutcome" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}
