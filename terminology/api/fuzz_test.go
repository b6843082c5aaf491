package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// FuzzExpandQuery checks that any query string results in either a well-formed response within the limits or an Error with a
// 4xx status.
func FuzzExpandQuery(f *testing.F) {
	for _, seed := range []string{
		terminologytest.Query("url", gender), terminologytest.Query("url", gender, "filter", "ma fe", "offset", "1", "count", "2"),
		terminologytest.Query("url", gender+"|4.0.1", "count", "0"), "url=%zz", "url=a;b", terminologytest.Query("url", gender, "filter", "\"\x00\xff\u2028é"),
		terminologytest.Query("url", "http://hl7.org/fhir/ValueSet/service-category", "filter", "%"), terminologytest.Query("url", "http://terminology.hl7.org/ValueSet/v3-ActCode"),
		terminologytest.Query("url", "http://hl7.org/fhir/ValueSet/body-site"), terminologytest.Query("url", gender, "activeOnly", "true"), "offset=1&count=99999999999999999999&url=x",
	} {
		f.Add(seed)
	}
	h := &api.Handler{Library: terminologytest.Core(f), Limits: expansion.Limits{Entries: 1500}}
	f.Fuzz(func(t *testing.T, query string) {
		w, err := terminologytest.Request(h, http.MethodGet, query)
		if err != nil {
			var e *outcome.Error
			if !errors.As(err, &e) || e.Status < 400 || e.Status > 499 || e.Code == "" || e.Text == "" {
				t.Fatalf("got %#v", err)
			}
			if w.Body.Len() > 0 || len(w.Header()) > 0 {
				t.Fatal("wrote something and returned an error")
			}
			return
		}
		checkAnswer(t, h, w.Body.Bytes())
	})
}

// checkAnswer checks the invariants of any response body.
func checkAnswer(t *testing.T, h *api.Handler, body []byte) {
	t.Helper()
	var e terminologytest.Expanded
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil || !utf8.Valid(body) {
		t.Fatalf("%v in %q", err, body)
	}
	entries, total, offset := len(e.Expansion.Contains), *e.Expansion.Total, 0
	if e.Expansion.Offset != nil {
		offset = *e.Expansion.Offset
	}
	if e.ResourceType != "ValueSet" || e.URL == "" || e.Status == "" || entries > h.Limits.MaxEntries() || entries > max(0, total-offset) {
		t.Fatalf("got %q", body)
	}
	seen := map[string]bool{}
	for _, c := range e.Expansion.Contains {
		key := c.System + "|" + c.Version + "#" + c.Code
		if c.System == "" || c.Code == "" || seen[key] {
			t.Fatalf("got %q", body)
		}
		seen[key] = true
	}
}

// FuzzDefinitions checks that any file is either loaded or rejected with an error, and that every loaded definition can be
// requested.
func FuzzDefinitions(f *testing.F) {
	for _, seed := range []string{
		fixture.Animals, fixture.SingleConceptCodeSystem("http://x/a", "1", "c"), fixture.AllCodesOf("http://x/animals"),
		fixture.ValueSet("a", `{"inactive":false,"include":[{"valueSet":["a|1"]},{"system":"s","version":"1","concept":[{"code":"a","display":"b"}]}],"exclude":[{"system":"s"}]}`),
		`{"resourceType":"Bundle","entry":[{"resource":` + fixture.Animals + `},{"resource":` + fixture.AllCodesOf("http://x/animals") + `}]}`,
		`{"concept":[{"code":"a"},{"code":"a"}],"url":"u","content":"complete","resourceType":"CodeSystem"}{"resourceType":"ValueSet","url":"v","compose":{"include":[{"system":"u","filter":[{"property":"code","op":"regex","value":"a+"}]}]}}`,
		`{"resourceType":"CodeSystem","resourceType":"ValueSet"}`, `{`, ``, `[]`, "\xff", `{"resourceType":"ValueSet","compose":{"include":[{"filter":[{}]}]}}`,
	} {
		f.Add([]byte(seed))
		f.Add(fixture.Package(f, "package/x.json", seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "x.json")
		if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
			file = strings.TrimSuffix(file, "json") + "tgz"
		}
		fixture.WriteFile(t, file, data)
		l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{file}})
		if err != nil {
			return
		}
		h := &api.Handler{Library: l}
		for _, vs := range l.Definitions().ValueSets.List {
			w, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query("url", vs.Canonical(), "filter", "a"))
			var e *outcome.Error
			if err != nil && !errors.As(err, &e) {
				t.Fatal(err)
			}
			if err == nil && !strings.Contains(vs.URL, "|") {
				checkAnswer(t, h, w.Body.Bytes())
			}
		}
	})
}
