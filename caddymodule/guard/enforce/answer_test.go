package enforce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// bodyOf is an answer's body.
func bodyOf(t *testing.T, response *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAnswerHeaders checks that an answer that was judged has no headers of another body, and none that name the server.
func TestAnswerHeaders(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.server.Answers = map[string]http.HandlerFunc{"Observation/a1": func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Digest": "x", "Trailer": "X", "Keep-Alive": "x", "Content-Range": "bytes 0-1/9", "Refresh": "1",
			"Content-Location": "http://backend.internal:8080/secret", "X-Request-Id": "1",
		} {
			w.Header().Set(name, value)
		}
		answering(`{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}`)(w, r)
	}}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		got := g.send(patientA, httptest.NewRequest(method, "/fhir/R4/Observation/a1", nil))
		for _, name := range []string{"Digest", "Trailer", "Keep-Alive", "Content-Range", "Refresh", "Content-Location"} {
			if got.Header.Get(name) != "" {
				t.Errorf("%s: %s: %s", method, name, got.Header.Get(name))
			}
		}
		if text := bodyOf(t, got); got.Header.Get("X-Request-Id") != "1" || (text == "") != (method == http.MethodHead) {
			t.Errorf("%s: %v, %q", method, got.Header, text)
		}
	}
}

// TestSearchAnswer is over answers to a search that say more than they should, or fail.
func TestSearchAnswer(t *testing.T) {
	t.Parallel()
	const own = `{"resource":{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"},"performer":[{"reference":"Practitioner/alice"}]},"search":{"mode":"match","score":0.7}}`
	bundle := func(entries ...string) string {
		return `{"resourceType":"Bundle","type":"searchset","entry":[` + strings.Join(entries, ",") + `]}`
	}
	for _, tt := range []struct {
		name, answer string
		header       int
		status       int
		not          string
	}{
		{"a score", bundle(own), 200, 200, "score"},
		{"another type", bundle(own, `{"resource":{"resourceType":"Condition","id":"a1","subject":{"reference":"Patient/a"}}}`), 200, 200, "Condition"},
		{"another patient's", bundle(own, strings.NewReplacer("a1", "b1", "Patient/a", "Patient/b").Replace(own)), 200, 200, "b1"},
		{"what was not to be included", bundle(own, `{"resource":{"resourceType":"Practitioner","id":"alice"},"search":{"mode":"include"}}`), 200, 200, `"id":"alice"`},
		{"words of the server", bundle(own, `{"resource":{"resourceType":"OperationOutcome","text":"secret"},"search":{"mode":"outcome"}}`), 200, 200, "secret"},
		{"a refusal", `{"resourceType":"OperationOutcome","text":"secret"}`, 400, 400, "secret"},
		{"no Bundle", `{"resourceType":"Observation","id":"b1"}`, 200, 502, "b1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.server.Answers = map[string]http.HandlerFunc{"Observation": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/fhir+json")
				w.WriteHeader(tt.header)
				_, _ = io.WriteString(w, tt.answer)
			}}
			response := g.get(patientA, "Observation?status=final")
			text := bodyOf(t, response)
			if tt.status == http.StatusOK && !strings.Contains(text, `"search":{"mode":"match"}`) {
				t.Errorf("no match: %s", text)
			}
			if response.StatusCode != tt.status || strings.Contains(text, tt.not) {
				t.Errorf("status %d: %s", response.StatusCode, text)
			}
		})
	}
}

// TestPageLinkIsOnlyRead checks that a link to a page is followed by GET alone, and leads nowhere once the searches that
// it continues are others.
func TestPageLinkIsOnlyRead(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	link := nextIn([]byte(bodyOf(t, g.get(patientA, "Observation?_count=1"))))
	path := strings.TrimPrefix(link, "https://gateway.example")
	if got := g.send(patientA, httptest.NewRequest(http.MethodPost, path, nil)); got.StatusCode != http.StatusNotFound {
		t.Errorf("by POST: status %d", got.StatusCode)
	}
	g.CompartmentSearch = true
	if got := g.get(patientA, link); got.StatusCode != http.StatusNotFound {
		t.Errorf("after a change: status %d", got.StatusCode)
	}
}
