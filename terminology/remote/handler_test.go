package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// bundle returns a Bundle with search results.
func bundle(resources ...string) string {
	var entries []string
	for _, r := range resources {
		entries = append(entries, `{"resource":`+r+`,"search":{"mode":"match"}}`)
	}
	entries = append(entries, `{"resource":{"resourceType":"OperationOutcome"},"search":{"mode":"outcome"}}`)
	return `{"resourceType":"Bundle","type":"searchset","entry":[` + strings.Join(entries, ",") + `]}`
}

const stored = `{"resourceType":"ValueSet","id":"a","url":"http://x/vs","version":"2","status":"active"}`

func TestDefinitions(t *testing.T) {
	canonical := func(c string) outcome.MissingDefinition {
		return outcome.MissingDefinition{ResourceType: "ValueSet", Canonical: c}
	}
	tests := []struct {
		name   string
		m      outcome.MissingDefinition
		answer http.HandlerFunc
		path   string
		query  url.Values // query parameters except _count
		want   int
		is     error
	}{
		{"url", canonical("http://x/vs"), reply(200, fhirJSON, bundle(stored)), "/r4/ValueSet", url.Values{"url": {"http://x/vs"}}, 1, nil},
		{"version", canonical("http://x/vs|2"), reply(200, fhirJSON, bundle(stored, stored)), "/r4/ValueSet", url.Values{"url": {"http://x/vs"}, "version": {"2"}}, 2, nil},
		{"wildcard", canonical("http://x/vs|2.x"), reply(200, fhirJSON, bundle(stored)), "/r4/ValueSet", url.Values{"url": {"http://x/vs"}}, 1, nil},
		{"what means something in a search", canonical(`http://x/a,http://x/b$`), reply(200, fhirJSON, bundle()), "/r4/ValueSet", url.Values{"url": {`http://x/a\,http://x/b\$`}}, 0, nil},
		{"what means something in a query", canonical("http://x/a&_id=1"), reply(200, fhirJSON, bundle()), "/r4/ValueSet", url.Values{"url": {"http://x/a&_id=1"}}, 0, nil},
		{"id", outcome.MissingDefinition{ResourceType: "ValueSet", ID: "a"}, reply(200, fhirJSON, stored), "/r4/ValueSet/a", url.Values{}, 1, nil},
		{"invalid id", outcome.MissingDefinition{ResourceType: "ValueSet", ID: "../metadata"}, reply(200, fhirJSON, stored), "", nil, 0, errInvalidRequest},
		{"id of nothing", outcome.MissingDefinition{ResourceType: "ValueSet", ID: "b"}, reply(404, fhirJSON, outcomeJSON), "/r4/ValueSet/b", url.Values{}, 0, nil},
		{"deleted", outcome.MissingDefinition{ResourceType: "ValueSet", ID: "b"}, reply(410, fhirJSON, outcomeJSON), "/r4/ValueSet/b", url.Values{}, 0, nil},
		{"none", canonical("http://x/vs"), reply(200, fhirJSON, `{"resourceType":"Bundle","type":"searchset","total":0}`), "/r4/ValueSet", url.Values{"url": {"http://x/vs"}}, 0, nil},
		{"search refused", canonical("http://x/vs"), reply(400, fhirJSON, outcomeJSON), "", nil, 0, errServerFailed},
		{"failing", canonical("http://x/vs"), reply(500, fhirJSON, outcomeJSON), "", nil, 0, errServerFailed},
		{"forbidden", canonical("http://x/vs"), reply(403, fhirJSON, outcomeJSON), "", nil, 0, ErrRejected},
		{"garbage", canonical("http://x/vs"), reply(200, fhirJSON, "{"), "", nil, 0, errMalformed},
		{"no search result", canonical("http://x/vs"), reply(200, fhirJSON, `{"resourceType":"Bundle","type":"collection"}`), "", nil, 0, errMalformed},
		{"summary", canonical("http://x/vs"), reply(200, fhirJSON, bundle(`{"resourceType":"ValueSet","meta":{"tag":[{"code":"SUBSETTED"}]},"url":"http://x/vs"}`)), "", nil, 0, errMalformed},
		{"another resource", outcome.MissingDefinition{ResourceType: "ValueSet", ID: "a"}, reply(200, fhirJSON, `{"resourceType":"Patient"}`), "", nil, 0, errMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var request *http.Request
			h := &Handler{Base: "/r4", Serve: func(w http.ResponseWriter, r *http.Request) error { request = r; test.answer(w, r); return nil }}
			list, err := h.Definitions(t.Context(), test.m)
			if len(list) != test.want || !errors.Is(err, test.is) {
				t.Fatalf("got %d, %v", len(list), err)
			}
			if test.path == "" {
				return
			}
			query := request.URL.Query()
			query.Del("_count")
			if request.URL.Path != test.path || query.Encode() != test.query.Encode() {
				t.Errorf("request for %s", request.URL)
			}
		})
	}
}

// TestExpandFromBackend checks that the gateway expands value sets of a backend that cannot expand them itself.
func TestExpandFromBackend(t *testing.T) {
	there := map[string]string{
		"ValueSet http://x/vs":   `{"resourceType":"ValueSet","url":"http://x/vs","status":"active","compose":{"include":[{"valueSet":["http://x/part"]},{"system":"http://x/cs","concept":[{"code":"c"}]}]}}`,
		"ValueSet http://x/part": `{"resourceType":"ValueSet","url":"http://x/part","status":"active","compose":{"include":[{"system":"http://x/cs","filter":[{"property":"concept","op":"is-a","value":"a"}]}]}}`,
		"CodeSystem http://x/cs": `{"resourceType":"CodeSystem","url":"http://x/cs","status":"active","content":"complete","concept":[{"code":"a","concept":[{"code":"b"}]},{"code":"c"},{"code":"d"}]}`,
	}
	requests, down := 0, false
	backend := &Handler{Base: "/fhir", Serve: func(w http.ResponseWriter, r *http.Request) error {
		if requests++; down {
			return errors.New("dial tcp 10.0.0.7:8080: connection refused")
		}
		if r.Header.Get("Authorization") != "" {
			t.Error("request with the user's credentials")
		}
		kind, ok := strings.CutPrefix(r.URL.Path, "/fhir/")
		if resource := there[kind+" "+r.FormValue("url")]; ok && resource != "" {
			reply(200, fhirJSON, bundle(resource))(w, r)
		} else {
			reply(200, fhirJSON, bundle())(w, r)
		}
		return nil
	}}
	l := terminologytest.Core(t)
	h := &api.Handler{Library: l, FetchedDefinitions: &terminology.FetchedDefinitions{Source: backend}}
	expand := func(url string) (string, error) {
		r := httptest.NewRequest("GET", "/fhir/ValueSet/$expand?url="+url, nil)
		r.Header.Set("Authorization", "Bearer of-the-user")
		w := httptest.NewRecorder()
		err := h.Expand(w, r)
		return w.Body.String(), err
	}
	for range 3 {
		body, err := expand("http://x/vs")
		if err != nil || !strings.Contains(body, `"total":3`) {
			t.Fatalf("got %v, %s", err, body)
		}
	}
	if requests != 3 {
		t.Errorf("%d requests", requests)
	}
	if _, err := expand("http://x/none"); !errors.Is(err, outcome.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	down = true
	_, err := expand("http://x/other")
	var failed *outcome.Error
	if !errors.As(err, &failed) || failed.Status != 502 || strings.Contains(failed.Diagnostics(), "10.0.0.7") || !errors.Is(err, errUnreachable) {
		t.Errorf("got %v", err)
	}
	if _, err := expand("http://x/vs"); err != nil {
		t.Errorf("the fetched definition is lost: %v", err)
	}
}

func TestHandlerFailures(t *testing.T) {
	tests := []struct {
		name   string
		serve  func(http.ResponseWriter, *http.Request) error
		is     error
		status int
	}{
		{"fails", func(http.ResponseWriter, *http.Request) error { return errors.New("refused") }, errUnreachable, 502},
		{"nothing behind", func(http.ResponseWriter, *http.Request) error { return nil }, errUnreachable, 502},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) error { <-r.Context().Done(); return r.Context().Err() }, errTimeout, 504},
		{"hangs in the body", func(w http.ResponseWriter, r *http.Request) error {
			_, _ = io.WriteString(w, "{")
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}, errTimeout, 504},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "{")
			panic(http.ErrAbortHandler)
		}, errTruncated, 502},
		{"too large", func(w http.ResponseWriter, r *http.Request) error {
			reply(200, fhirJSON, bundle(strings.Repeat("x", 2000)))(w, r)
			return nil
		}, errTooLarge, 502},
		{"500", func(w http.ResponseWriter, r *http.Request) error {
			reply(500, fhirJSON, outcomeJSON)(w, r)
			return nil
		}, errServerFailed, 502},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &Handler{Serve: test.serve, MaxResponseSize: 1000, Timeout: time.Second}
				a, err := h.Do(t.Context(), Request{Path: "ValueSet", Query: "url=x"})
				wantFailure(t, a, err, test.is, test.status)
			})
		})
	}
}

func TestHandlerRequest(t *testing.T) {
	type key struct{}
	h := &Handler{Base: "/fhir/R4", Serve: func(w http.ResponseWriter, r *http.Request) error {
		body, _ := io.ReadAll(r.Body)
		got := fmt.Sprint(r.Method, r.URL, r.RequestURI, r.Context().Value(key{}), r.Header.Get("Accept"), string(body))
		if want := "POST/fhir/R4/CodeSystem/$lookup?a=b/fhir/R4/CodeSystem/$lookup?a=b1" + fhirJSON + "{}"; strings.ReplaceAll(got, " ", "") != want {
			t.Errorf("got %s", got)
		}
		reply(200, fhirJSON, parametersJSON)(w, r)
		return nil
	}}
	ctx := context.WithValue(t.Context(), key{}, 1)
	if a, err := h.Do(ctx, Request{Method: "POST", Path: "CodeSystem/$lookup", Query: "a=b", Body: []byte("{}")}); err != nil || string(a.Body) != parametersJSON {
		t.Errorf("got %v, %v", a, err)
	}
	a, err := h.Do(ctx, Request{Path: "../x"})
	wantFailure(t, a, err, errInvalidRequest, 400)
}
