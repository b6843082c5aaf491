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

// Handler is a FHIR server behind a handler, such as reverse_proxy. Of the request that caused it, a request to it has
// only the context.
type Handler struct {
	// Base is the path of its FHIR base, as /fhir/R4. Default: none.
	Base string

	// Serve is the handler. Required.
	Serve func(http.ResponseWriter, *http.Request) error

	// Timeout bounds a request. Default: 10 s.
	Timeout time.Duration

	// MaxAnswer bounds an answer, in bytes. Default: 16 MiB.
	MaxAnswer int64

	// Backoff is the pause that the server asked for. Default: there is none.
	Backoff *Backoff
}

// Ask sends a request. Its error is an [*Error].
func (h *Handler) Ask(ctx context.Context, q Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Timeout, DefaultTimeout))
	defer cancel()
	request, err := h.request(ctx, q)
	if err != nil {
		return nil, fail(nextName, err)
	}
	if err := h.Backoff.Err(""); err != nil {
		return nil, err
	}
	r := NewRecorder(cmp.Or(h.MaxAnswer, DefaultMaxAnswer))
	err = r.Record(func(w http.ResponseWriter) error { return h.Serve(w, request) })
	h.Backoff.Note(r.Status(), r.Header(), true)
	if err == nil || r.Cut() {
		var answer *Answer
		if answer, err = r.check(q.Path); err == nil {
			return answer, nil
		}
	}
	if ctx.Err() != nil {
		err = networkError(errUnreachable, ctx.Err()) // whatever the handler made of it
	}
	return nil, fail(nextName, err)
}

func (h *Handler) request(ctx context.Context, q Request) (*http.Request, error) {
	if err := checkPath(q.Path); err != nil {
		return nil, err
	}
	u := url.URL{Path: strings.TrimSuffix(h.Base, "/") + "/" + q.Path, RawQuery: q.Query}
	r, err := http.NewRequestWithContext(ctx, q.method(), u.String(), bytes.NewReader(q.Body))
	if err != nil {
		return nil, errors.Join(errRequest, err)
	}
	r.RequestURI = u.RequestURI()
	setHeader(r, q)
	r.Header.Set("Accept-Encoding", "identity")
	return r, nil
}
