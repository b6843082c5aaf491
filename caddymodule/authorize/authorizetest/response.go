package authorizetest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Location is where a redirect (302) leads.
func Location(t testing.TB, r *http.Response) *url.URL {
	t.Helper()
	u, err := r.Location()
	if err != nil || r.StatusCode != http.StatusFound {
		t.Fatalf("status %d, Location %v: %s", r.StatusCode, err, Body(t, r))
	}
	return u
}

// Body is the body of an answer.
func Body(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Decode decodes a JSON answer.
func Decode[T any](t testing.TB, r *http.Response) (v T) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Words are the members of a list of texts, in JSON, with spaces between them.
func Words(list any) string {
	var words []string
	values, _ := list.([]any)
	for _, w := range values {
		words = append(words, w.(string))
	}
	return strings.Join(words, " ")
}
