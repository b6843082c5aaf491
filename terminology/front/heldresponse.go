package front

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// heldResponse is a ResponseWriter that holds a response in memory.
type heldResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
	limit  int64
}

func newHeldResponse(limit int64) *heldResponse {
	return &heldResponse{header: make(http.Header), limit: limit}
}

// errTooLarge is the error for a response beyond the limit.
var errTooLarge = errors.New("the answer is too large to be held")

// Header implements http.ResponseWriter.
func (w *heldResponse) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *heldResponse) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter. It holds the part of b that is within the limit.
func (w *heldResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if room := w.limit - int64(w.body.Len()); int64(len(b)) > room {
		w.body.Write(b[:room])
		return 0, errTooLarge
	}
	return w.body.Write(b)
}

// answer returns the response as an answer.
func (w *heldResponse) answer() *cache.Answer {
	return &cache.Answer{Status: w.status, Header: w.header, Body: w.body.Bytes()}
}

// madeHere returns the response as an answer made here. It keeps the entity tag, so that a client that was given the
// same answer before it was stored need not fetch it again.
func (w *heldResponse) madeHere() *cache.Answer {
	a := w.answer()
	if a.Status == http.StatusOK {
		a.EntityTag, a.Tags = strings.Trim(w.header.Get("Etag"), `"`), definitionsOf(a.Body)
	}
	return a
}
