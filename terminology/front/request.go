package front

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// request is a request for an operation, read once, and who may answer it. An answer to it may still be made
// when the client's own request is over.
type request struct {
	front    *Front
	local    operation // answers from here
	next     NextHandler
	path     string // of the operation below the FHIR base: ValueSet/$expand
	personal bool
	known    sighting
	number   uint64 // that sightings know it by; 0: none
	read     bool   // a POST's body was
	body     []byte // of a POST
	subject  *remote.Subject
}

// newRequest reads what a request asks for, but for its body.
func (f *Front) newRequest(r *http.Request, next NextHandler, local operation) *request {
	return &request{front: f, local: local, next: next, personal: isPersonal(r), path: strings.TrimPrefix(r.URL.Path, f.Base+"/")}
}

// serveOperation answers a request for an operation: with a stored response what was asked before, and else
// from here, if it can be. Others are asked by way of the cache alone, so that they are asked once.
func (f *Front) serveOperation(w http.ResponseWriter, r *http.Request, next NextHandler, local operation) error {
	q := f.newRequest(r, next, local)
	if f.State.cache == nil || q.personal {
		return q.serveUnstored(w, r)
	}
	s := f.currentSchemes()
	if r.Method != http.MethodPost {
		q.number = f.sightings.of(r, s.seed)
		q.known = f.sightings.look(q.number)
	}
	if q.known != unseen {
		return q.serveStored(w, r, s)
	}
	here := q.serveHere(w, r)
	if here.missing == nil && !isFetchFailure(here.err) {
		return f.told(Here, here.err)
	}
	switch err := q.readBody(r); {
	case err != nil:
		return f.fail(err)
	case q.personal:
		return q.passOn(w, r, here.failure())
	case here.missing != nil && q.upstream(r, here.missing) == nil:
		q.known = seenNext
	}
	return q.serveStored(w, r, s)
}

// readBody reads the body of a POST, which was read here before and put back: whether the request is
// personal may be said there.
func (q *request) readBody(r *http.Request) (err error) {
	if r.Method != http.MethodPost {
		return nil
	}
	if q.body, err = io.ReadAll(r.Body); err != nil {
		return err
	}
	q.read = true
	q.personal = q.personal || mentionsCacheID(q.body)
	q.rewind(r)
	return nil
}

// rewind lets the body be read again.
func (q *request) rewind(r *http.Request) {
	if q.read {
		r.Body = io.NopCloser(bytes.NewReader(q.body))
	}
}

// subjectOf returns what decides who is asked.
func (q *request) subjectOf(r *http.Request) remote.Subject {
	if q.subject == nil {
		s := remote.SubjectOf(r.URL.RawQuery, r.Header.Get("Content-Type"), q.body)
		q.subject = &s
	}
	return *q.subject
}

// cacheID is the parameter under which definitions are remembered that requests
// bring along.
const cacheID = "cache-id"

// isPersonal reports whether a request depends on others that its client made
// before, or tries out limits: its answer is nothing to keep.
func isPersonal(r *http.Request) bool {
	return len(r.Header["X-Cache-Id"]) > 0 || len(r.Header["X-Too-Costly-Threshold"]) > 0 || hasCacheID(r.URL.RawQuery)
}

// hasCacheID reports whether a query string has the parameter, however its name is
// escaped.
func hasCacheID(query string) bool {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, _, _ := strings.Cut(pair, "=")
		if strings.Contains(name, "%") {
			name, _ = url.QueryUnescape(name)
		}
		if name == cacheID {
			return true
		}
	}
	return false
}

// mentionsCacheID reports whether a body may have the parameter. Who escapes letters
// that need no escape in JSON or XML is taken to have it.
func mentionsCacheID(body []byte) bool {
	for _, sign := range []string{cacheID, `\u00`, "&#"} {
		if bytes.Contains(body, []byte(sign)) {
			return true
		}
	}
	return hasCacheID(string(body))
}
