package bundle

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// response is Bundle.entry.response.
type response struct {
	Status       string          `json:"status"`
	Location     string          `json:"location,omitempty"`
	ETag         string          `json:"etag,omitempty"`
	LastModified string          `json:"lastModified,omitempty"`
	Outcome      json.RawMessage `json:"outcome,omitempty"`
}

// entryOf is an answer, or the error in its place, as an entry of a batch-response or transaction-response.
func entryOf(a *message.Answer, err error) message.Entry {
	if err != nil {
		return refusedEntry(refusalOf(err))
	}
	r := response{
		Status: statusLine(a.Status), Location: a.Header.Get("Location"), ETag: a.Header.Get("Etag"),
		LastModified: instant(a.Header.Get("Last-Modified")),
	}
	if len(a.Body) == 0 {
		return message.Entry{Response: r.text()}
	}
	if err := checkObject(a.Body); err != nil {
		return refusedEntry(message.Withheld(err))
	}
	if !a.Succeeded() || a.Said {
		r.Outcome = a.Body
		return message.Entry{Response: r.text()}
	}
	return message.Entry{Resource: a.Body, Response: r.text()}
}

func refusedEntry(refusal *guard.Error) message.Entry {
	r := response{Status: statusLine(refusal.Status), Outcome: outcomeOf(refusal)}
	return message.Entry{Response: r.text()}
}

func (r response) text() []byte {
	text, _ := json.Marshal(r) // strings, and an outcome that is JSON, never fail
	return text
}

// statusLine is a status as R4 wants it: it begins with the three digits.
func statusLine(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// instant is an HTTP date as FHIR's instant; empty if it is none.
func instant(date string) string {
	t, err := http.ParseTime(date)
	if err != nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// httpDate is a FHIR instant as an HTTP date; empty if it is none.
func httpDate(instant string) string {
	t, err := time.Parse(time.RFC3339, instant)
	if err != nil {
		return ""
	}
	return t.UTC().Format(http.TimeFormat)
}

// checkObject reports what would break the Bundle that the text becomes part of.
func checkObject(text []byte) error {
	c := rawjson.NewCursor(text).AllowDuplicates()
	if err := c.Object(func([]byte) error { return c.Skip() }); err != nil {
		return err
	}
	return c.End()
}

// outcomeOf is an error as an OperationOutcome, in the words that it has as the answer to a request.
func outcomeOf(refusal *guard.Error) []byte {
	return []byte(`{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":` + message.Quoted(refusal.IssueType()) +
		`,"diagnostics":` + message.Quoted(refusal.Diagnostics()) + `}]}`)
}

// refusalOf is an error as what the client is told of it.
func refusalOf(err error) *guard.Error {
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		return refusal
	}
	return &guard.Error{Status: http.StatusBadGateway, Description: "The FHIR server could not answer.", Err: err}
}
