package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// An answer that says no for lack of a definition is left to others, and stands where they have none (R4
// ValueSet/$validate-code: the result is false where the code "is not valid", which it may be to who has the code system).
func TestOthers(t *testing.T) {
	l := libraryOf(t,
		versionedSystem("http://x/cs", "1", "complete", "a"), versionedSystem("http://x/empty", "1", "not-present", ""),
		composedOf("http://x/known", "1", `{"system":"http://x/cs"}`), composedOf("http://x/other-version", "1", `{"system":"http://x/cs","version":"9"}`),
		composedOf("http://x/imports", "1", `{"valueSet":["http://x/nowhere"]}`), composedOf("http://x/lists", "1", `{"system":"http://x/gone","concept":[{"code":"a"}]}`),
		mapOf("plain", `{"code":"1","target":[{"code":"one"}]},{"code":"2","target":[{"equivalence":"unmatched"}]}`, ""), mapOf("lost", "", handsOn("nowhere")),
	)
	h := &Handler{Library: l}
	others := &Handler{Library: l, Others: true}
	tests := []struct {
		operation, query string
		missing          []outcome.Missing // nil: the answer is for good
	}{
		{"CodeSystem/$validate-code", "url=http://x/cs&code=a", nil},
		{"CodeSystem/$validate-code", "url=http://x/cs&code=b", nil},
		{"CodeSystem/$validate-code", "url=http://x/gone&code=a", outcome.MissingOf("CodeSystem", "http://x/gone", "")},
		{"CodeSystem/$validate-code", "url=http://x/gone&code=a&_format=xml", outcome.MissingOf("CodeSystem", "http://x/gone", "")},
		{"CodeSystem/$validate-code", "url=http://x/cs&version=9&code=a", outcome.MissingOf("CodeSystem", "http://x/cs", "9")},
		{"CodeSystem/$validate-code", "url=http://x/empty&code=a", outcome.MissingOf("CodeSystem", "http://x/empty", "")},
		{"ValueSet/$validate-code", "url=http://x/known&system=http://x/cs&code=b", nil},
		{"ValueSet/$validate-code", "url=http://x/known&system=http://x/gone&code=b", outcome.MissingOf("CodeSystem", "http://x/gone", "")},
		{"ValueSet/$validate-code", "url=http://x/other-version&system=http://x/cs&code=a", outcome.MissingOf("CodeSystem", "http://x/cs", "9")},
		{"ValueSet/$validate-code", "url=http://x/imports&system=http://x/cs&code=a", outcome.MissingOf("ValueSet", "http://x/nowhere", "")},
		{"ValueSet/$validate-code", "url=http://x/lists&system=http://x/gone&code=a", outcome.MissingOf("CodeSystem", "http://x/gone", "")},
		{"ValueSet/$validate-code", "url=http://x/lists&system=http://x/gone&code=a&valueset-membership-only=true", nil},
		{"ConceptMap/$translate", "system=http://x/a&code=1", nil},
		{"ConceptMap/$translate", "system=http://x/gone&code=1", []outcome.Missing{{Kind: "ConceptMap"}}},
		{"ConceptMap/$translate", "url=http://x/plain&system=http://x/a&code=2", nil},
		{"ConceptMap/$translate", "url=http://x/plain&system=http://x/a&code=9", nil},
		{"ConceptMap/$translate", "url=http://x/lost&system=http://x/a&code=9", outcome.MissingOf("ConceptMap", "http://x/nowhere", "")},
	}
	for _, tt := range tests {
		t.Run(tt.operation+"?"+tt.query, func(t *testing.T) {
			answer := func(h *Handler) (*httptest.ResponseRecorder, error) {
				operation := map[string]func(http.ResponseWriter, *http.Request) error{
					"CodeSystem/$validate-code": h.ValidateCodeInSystem, "ValueSet/$validate-code": h.ValidateCode, "ConceptMap/$translate": h.Translate,
				}[tt.operation]
				w := httptest.NewRecorder()
				return w, operation(w, httptest.NewRequest("GET", "/"+tt.operation+"?"+tt.query, nil))
			}
			want, err := answer(h)
			if err != nil {
				t.Fatal(err)
			}
			got, err := answer(others)
			if e, ok := errors.AsType[*outcome.Error](err); ok {
				if !errors.Is(err, outcome.ErrIncomplete) || !reflect.DeepEqual(e.Missing, tt.missing) || got.Body.Len() > 0 {
					t.Fatalf("got %v, missing %v, wrote %s", err, e.Missing, got.Body)
				}
				err = writeProvisional(got, e)
			} else if tt.missing != nil {
				t.Errorf("others are not asked: %s", got.Body)
			}
			if err != nil || got.Code != http.StatusOK || got.Body.String() != want.Body.String() || !reflect.DeepEqual(got.Header(), want.Header()) {
				t.Errorf("got %v, %d %s; alone %s", err, got.Code, got.Body, want.Body)
			}
		})
	}
}

// writeProvisional writes the answer of an error, as whoever asked others in vain does.
func writeProvisional(w http.ResponseWriter, e *outcome.Error) error {
	w.Header().Set("Content-Type", e.Provisional.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(e.Provisional.Body)))
	_, err := w.Write(e.Provisional.Body)
	return err
}

// Source is asked once for what others are asked for then, and a batch is answered as far as it can be.
func TestOthersAfterSource(t *testing.T) {
	source := &shelf{}
	h := &Handler{Library: libraryOf(t, gone), Fetched: &terminology.Fetched{Source: source}, Others: true}
	err := h.ValidateCodeInSystem(httptest.NewRecorder(), httptest.NewRequest("GET", "/CodeSystem/$validate-code?code=a&url="+url.QueryEscape("http://x/cs"), nil))
	if e := (*outcome.Error)(nil); !errors.As(err, &e) || e.Provisional == nil {
		t.Errorf("got %v", err)
	}
	source.wantAsked(t, "CodeSystem http://x/cs")
	w := httptest.NewRecorder()
	batch := `{"resourceType":"Parameters","parameter":[{"name":"validation","resource":{"resourceType":"Parameters","parameter":[
		{"name":"coding","valueCoding":{"system":"http://x/cs","code":"a"}}]}}]}`
	if err := h.BatchValidateCode(w, httptest.NewRequest("POST", "/ValueSet/$batch-validate-code", strings.NewReader(batch))); err != nil || !strings.Contains(w.Body.String(), "x-unknown-system") {
		t.Errorf("batch: got %v, %s", err, w.Body)
	}
}
