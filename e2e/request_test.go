package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// httpResponse is an HTTP response with a body that has been read completely.
type httpResponse struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request and reads the response.
func send(t *testing.T, client *http.Client, r *http.Request) httpResponse {
	t.Helper()
	a, err := trySend(client, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// trySend is like send, but returns errors, because goroutines may not end the test.
func trySend(client *http.Client, r *http.Request) (httpResponse, error) {
	response, err := client.Do(r)
	if err != nil {
		return httpResponse{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return httpResponse{response.StatusCode, response.Header, body}, err
}

func newRequest(t *testing.T, method, address, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fhir sends a FHIR request with a token. If token is "", the request has no token.
func (g *gateway) fhir(t *testing.T, token, method, path, body string) httpResponse {
	t.Helper()
	r := newRequest(t, method, g.issuer+"/fhir/R4/"+path, body)
	if body != "" {
		r.Header.Set("Content-Type", "application/fhir+json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return send(t, g.client, r)
}

// expand requests an expansion. parameters are pairs of name and value.
func (g *gateway) expand(t *testing.T, token, valueSet string, parameters ...string) httpResponse {
	t.Helper()
	query := url.Values{"url": {valueSet}}
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	return g.fhir(t, token, http.MethodGet, "ValueSet/$expand?"+query.Encode(), "")
}

// is fails the test unless the response has the given status.
func (a httpResponse) is(t *testing.T, status int) httpResponse {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// decode decodes the JSON body into value.
func (a httpResponse) decode(t *testing.T, value any) {
	t.Helper()
	if err := json.Unmarshal(a.body, value); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
}

// isOutcome fails the test unless the response is an OperationOutcome with at least one error and has a FHIR media type.
func (a httpResponse) isOutcome(t *testing.T) {
	t.Helper()
	if got := a.header.Get("Content-Type"); !strings.HasPrefix(got, "application/fhir+json") {
		t.Errorf("Content-Type %q, want application/fhir+json", got)
	}
	var outcome struct {
		ResourceType string
		Issue        []struct{ Severity, Code string }
	}
	a.decode(t, &outcome)
	if outcome.ResourceType != "OperationOutcome" || len(outcome.Issue) == 0 {
		t.Fatalf("no OperationOutcome: %s", a.body)
	}
	for _, issue := range outcome.Issue {
		if issue.Severity == "" || issue.Code == "" {
			t.Errorf("issue without severity or code: %s", a.body)
		}
	}
}

// location returns the URL to which the response redirects.
func (a httpResponse) location(t *testing.T) *url.URL {
	t.Helper()
	location, err := url.Parse(a.is(t, http.StatusFound).header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	return location
}
