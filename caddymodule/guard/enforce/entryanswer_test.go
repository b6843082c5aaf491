package enforce

import (
	"net/http"
	"testing"
)

// An answer that is no object would break the Bundle that it becomes part of.
func TestEntryOf(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"resourceType":"Patient"}`: `{"status":"200 OK"}`,
		``:                           `{"status":"200 OK"}`,
		`{"resourceType":"Patient"`:  string(entryOf(nil, withheld(errTooLong)).response),
		`{},"resource":{}`:           string(entryOf(nil, withheld(errTooLong)).response),
		`[]`:                         string(entryOf(nil, withheld(errTooLong)).response),
	} {
		if e := entryOf(newAnswer(http.StatusOK, []byte(body)), nil); string(e.response) != want {
			t.Errorf("%s: %s", body, e.response)
		}
	}
	a := newAnswer(http.StatusOK, nil)
	a.header.Set("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
	if e := entryOf(a, nil); string(e.response) != `{"status":"200 OK","lastModified":"1994-11-06T08:49:37Z"}` {
		t.Errorf("instant: %s", e.response)
	}
}

// A transaction-response is matched with what was sent by its places alone, so none may be missing.
func TestAnswersOf(t *testing.T) {
	t.Parallel()
	a := newAnswer(http.StatusOK, []byte(`{"resourceType":"Bundle","type":"transaction-response","entry":[{"response":{"status":"200"}}]}`))
	for want, ok := range map[int]bool{0: false, 1: true, 2: false} {
		if _, err := answersOf(a, want); (err == nil) != ok {
			t.Errorf("%d: %v", want, err)
		}
	}
}
