package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// entries answers the entries of a bundle as requests of their own.
type entries interface {
	// Answer answers an entry.
	Answer(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error)
	// Collect is Answer for a write that is not sent yet.
	Collect(ctx context.Context, c message.Call, i interaction.Interaction, to write.Collector) (*message.Answer, error)
	// CheckSearch refuses a search that would be refused, and asks for nothing that it finds.
	CheckSearch(ctx context.Context, c message.Call, i interaction.Interaction) error
	// PassesSingle reports whether an entry about one resource needs no judging.
	PassesSingle(c message.Call, i interaction.Interaction) bool
	// Decided reports the decision about an entry after it was answered.
	Decided(i interaction.Interaction, err error)
}

// Bundles are batches and transactions.
type Bundles struct {
	Server     *fhirserver.Server // asks the FHIR server
	Judge      *judge.Judge       // judges what it answers
	At         message.Addresses  // names what it holds as clients know it
	Entries    entries            // answers an entry
	MaxEntries int                // of one bundle
	Limit      int64              // of all answers
}

// entryAnswer answers one entry, unless the answers before it are as long as an answer may be.
func (x *Bundles) entryAnswer(ctx context.Context, e *submitted, size int64) (*message.Answer, error) {
	if size > x.Limit {
		return nil, message.TooCostly("The answers to the entries before are longer than %d bytes: ask for less at once.", x.Limit)
	}
	c, i, err := e.call()
	if err != nil {
		x.Entries.Decided(i, err)
		return nil, err
	}
	x.begin()
	before := x.Server.Held()
	a, err := x.Entries.Answer(ctx, c, i)
	x.Server.Keep(before, a)
	x.Entries.Decided(i, err)
	if err == nil && c.Method == http.MethodGet && a.Status == http.StatusOK && message.IsNotModified(c.Header, a.Header.Get("Etag")) {
		a = &message.Answer{Status: http.StatusNotModified, Header: http.Header{"Etag": a.Header["Etag"]}} // as of [message.Answer.Write]
	}
	return a, err
}

// begin begins an entry. What was learned for the one before may have been changed by it.
func (x *Bundles) begin() {
	x.Server.Begin()
	x.Judge.Forget()
}

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
		return refusedEntry(err)
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

// refusedEntry is an error as an entry: an OperationOutcome, in the words that it has as the answer to a request.
func refusedEntry(err error) message.Entry {
	refusal, ok := errors.AsType[*guard.Error](err)
	if !ok {
		refusal = &guard.Error{Status: http.StatusBadGateway, Description: "The FHIR server could not answer.", Err: err}
	}
	outcome := `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":` + message.Quoted(refusal.IssueType()) +
		`,"diagnostics":` + message.Quoted(refusal.Diagnostics()) + `}]}`
	r := response{Status: statusLine(refusal.Status), Outcome: []byte(outcome)}
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

// requestOf is a call as Bundle.entry.request.
func requestOf(c message.Call) []byte {
	var out bytes.Buffer
	target := c.Path
	if c.Query != "" {
		target += "?" + c.Query
	}
	out.WriteString(`{"method":` + message.Quoted(c.Method) + `,"url":` + message.Quoted(target))
	for _, member := range []string{"ifMatch", "ifNoneMatch", "ifModifiedSince", "ifNoneExist"} {
		if value := c.Header.Get(conditions[member]); value != "" {
			out.WriteString(`,"` + member + `":` + message.Quoted(value))
		}
	}
	out.WriteString("}")
	return out.Bytes()
}
