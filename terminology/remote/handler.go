package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Asker can be asked: a [Server], or a [Handler].
type Asker interface {
	// Ask asks. What it returns beside an answer is an [*Error].
	Ask(ctx context.Context, q Question) (*Answer, error)
}

// Handler is a FHIR server that is reached through a handler of the server around: the backend behind
// reverse_proxy. Questions to it hold nothing of the request that led to them, but the values of its context.
type Handler struct {
	// Name is what the server is called in texts for clients. Default: the FHIR server.
	Name string

	// Base is the path of its FHIR base, as /fhir/R4. Default: none.
	Base string

	// Serve is the handler. Required.
	Serve func(http.ResponseWriter, *http.Request) error

	// Timeout is how long a question may take. Default: 10 s.
	Timeout time.Duration

	// MaxAnswer is how large an answer may be, in bytes. Default: 16 MiB.
	MaxAnswer int64

	// Backoff is when the server may be asked again that wants to be left alone. Default: it is asked at any time.
	Backoff *Backoff
}

// nowhere takes what nobody is to be given.
type nowhere http.Header

func (n nowhere) Header() http.Header         { return http.Header(n) }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Write(b []byte) (int, error) { return 0, errNotHeld }

// Ask asks the server.
func (h *Handler) Ask(ctx context.Context, q Question) (*Answer, error) {
	name := cmp.Or(h.Name, nextName)
	timeout, limit := h.Timeout, h.MaxAnswer
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	if limit == 0 {
		limit = DefaultMaxAnswer
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := h.request(ctx, q)
	if err != nil {
		return nil, fail(name, err)
	}
	if err := h.Backoff.Err(name); err != nil {
		return nil, err
	}
	r := NewRecorder(make(nowhere), limit)
	err = r.Record(func(w http.ResponseWriter) error { return h.Serve(w, request) })
	h.Backoff.Note(r.Status(), r.Header(), true)
	if err == nil || r.Passed() {
		var answer *Answer
		if answer, err = r.check(q.Path); err == nil {
			return answer, nil
		}
	}
	if ctx.Err() != nil {
		err = broken(ErrUnreachable, ctx.Err()) // whatever the handler made of it
	}
	return nil, fail(name, err)
}

// request makes the request for a question.
func (h *Handler) request(ctx context.Context, q Question) (*http.Request, error) {
	if err := checkPath(q.Path); err != nil {
		return nil, err
	}
	u := url.URL{Path: strings.TrimSuffix(h.Base, "/") + "/" + q.Path, RawQuery: q.Query}
	r, err := http.NewRequestWithContext(ctx, q.method(), u.String(), bytes.NewReader(q.Body))
	if err != nil {
		return nil, errors.Join(ErrQuestion, err)
	}
	r.RequestURI = u.RequestURI()
	setQuestion(r, q)
	r.Header.Set("Accept-Encoding", "identity")
	return r, nil
}
