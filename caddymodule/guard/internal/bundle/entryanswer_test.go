package bundle

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// An answer that is no object would break the Bundle that it becomes part of.
func TestEntryOf(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"resourceType":"Patient"}`: `{"status":"200 OK"}`,
		``:                           `{"status":"200 OK"}`,
		`{"resourceType":"Patient"`:  string(entryOf(nil, message.Withheld(message.ErrTooLong)).Response),
		`{},"resource":{}`:           string(entryOf(nil, message.Withheld(message.ErrTooLong)).Response),
		`[]`:                         string(entryOf(nil, message.Withheld(message.ErrTooLong)).Response),
	} {
		if e := entryOf(message.NewAnswer(http.StatusOK, []byte(body)), nil); string(e.Response) != want {
			t.Errorf("%s: %s", body, e.Response)
		}
	}
	a := message.NewAnswer(http.StatusOK, nil)
	a.Header.Set("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
	if e := entryOf(a, nil); string(e.Response) != `{"status":"200 OK","lastModified":"1994-11-06T08:49:37Z"}` {
		t.Errorf("instant: %s", e.Response)
	}
}

// A transaction-response is matched with what was sent by its places alone, so none may be missing.
func TestAnswersOf(t *testing.T) {
	t.Parallel()
	a := message.NewAnswer(http.StatusOK, []byte(`{"resourceType":"Bundle","type":"transaction-response","entry":[{"response":{"status":"200"}}]}`))
	for want, ok := range map[int]bool{0: false, 1: true, 2: false} {
		if _, err := answersOf(a, want); (err == nil) != ok {
			t.Errorf("%d: %v", want, err)
		}
	}
}
