package bundle

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// A response that is not a JSON object becomes an error, because it would break the surrounding Bundle.
func TestEntryOf(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"resourceType":"Patient"}`: `{"status":"200 OK"}`,
		``:                           `{"status":"200 OK"}`,
		`{"resourceType":"Patient"`:  string(responseEntry(nil, message.NewWithheldError(message.ErrResponseTooLong)).Response),
		`{},"resource":{}`:           string(responseEntry(nil, message.NewWithheldError(message.ErrResponseTooLong)).Response),
		`[]`:                         string(responseEntry(nil, message.NewWithheldError(message.ErrResponseTooLong)).Response),
	} {
		if e := responseEntry(message.NewResponse(http.StatusOK, []byte(body)), nil); string(e.Response) != want {
			t.Errorf("%s: %s", body, e.Response)
		}
	}
	a := message.NewResponse(http.StatusOK, nil)
	a.Header.Set("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
	if e := responseEntry(a, nil); string(e.Response) != `{"status":"200 OK","lastModified":"1994-11-06T08:49:37Z"}` {
		t.Errorf("instant: %s", e.Response)
	}
}

// A transaction-response must contain every entry, because entries are matched by position.
func TestAnswersOf(t *testing.T) {
	t.Parallel()
	a := message.NewResponse(http.StatusOK, []byte(`{"resourceType":"Bundle","type":"transaction-response","entry":[{"response":{"status":"200"}}]}`))
	for want, ok := range map[int]bool{0: false, 1: true, 2: false} {
		if _, err := responseEntries(a, want); (err == nil) != ok {
			t.Errorf("%d: %v", want, err)
		}
	}
}

// For any Bundle, the parsed entries equal those of encoding/json, and the path of an entry's call stays below the base.
func FuzzSubmission(f *testing.F) {
	for _, entry := range []string{
		`{}`, `{"request":{"method":"GET","url":"Patient/a"}}`, `{"request":{"method":"GET","url":"//x/Patient"}}`,
		`{"fullUrl":"urn:uuid:1","resource":{"resourceType":"Patient"},"request":{"method":"POST","url":"Patient","ifNoneExist":"_id=1"}}`,
		`{"request":{"method":"GET","url":"Patient%2f1?a=b#c"}}`, `{"request":{"method":"PUT","url":"\u0050atient/..","ifMatch":"W/\"1\"\r\n"}}`,
		`{"request":{"method":"GET","url":"Patient"}}],"Entry":[{}`,
		`{"request":{"method":"PATCH","url":"Patient/1"},"resource":{"resourceType":"Binary","contentType":"application/json-patch+json","data":"W10="}}`,
	} {
		f.Add(`{"resourceType":"Bundle","type":"batch","entry":[` + entry + `]}`)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSubmission([]byte(text), 10)
		if err != nil {
			return
		}
		if entries, err := entriesByJSON(text); err != nil || len(entries) != len(s.entries) {
			t.Fatalf("%d entries for json, %d here, %v", len(entries), len(s.entries), err)
		}
		for n := range s.entries {
			checkCall(t, &s.entries[n])
		}
	})
}

// entriesByJSON parses a Bundle's entries with encoding/json. It uses a map because struct fields match case-insensitively.
func entriesByJSON(text string) (entries []json.RawMessage, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil || members["entry"] == nil {
		return nil, err
	}
	return entries, json.Unmarshal(members["entry"], &entries)
}

func checkCall(t *testing.T, e *submittedEntry) {
	t.Helper()
	c, i, err := e.toCall()
	if err != nil {
		if _, ok := errors.AsType[*guard.Error](err); !ok {
			t.Fatalf("no refusal: %v", err)
		}
		return
	}
	if i.Kind == 0 || c.Method != e.method || strings.ContainsAny(c.Path, "%;\\#?\r\n ") || strings.HasPrefix(c.Path, "/") ||
		strings.Contains("/"+c.Path+"/", "/../") || strings.ContainsAny(c.Query, "#\r\n ") {
		t.Fatalf("%q became %+v", e.url, c)
	}
	if again, err := c.Interaction(); err != nil || again.Kind != i.Kind || again.Type != i.Type || again.ID != i.ID {
		t.Fatalf("%q read again: %+v, %v", e.url, again, err)
	}
	for _, values := range c.Header {
		if strings.ContainsAny(values[0], "\r\n") {
			t.Fatalf("header %q", values[0])
		}
	}
}
