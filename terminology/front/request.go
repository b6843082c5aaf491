package front

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// request is a request for an operation, read once. Producers may use it after the client's own request has ended.
type request struct {
	front    *Front
	local    operation // answers it from here
	next     NextHandler
	path     string // below the FHIR base: ValueSet/$expand
	personal bool   // the answer is for this client alone
	known    sighting
	number   uint64          // among the sightings; 0: none
	read     bool            // body is set
	body     []byte          // of a POST
	subject  *remote.Subject // nil until it is needed
}

// serveOperation answers a request for an operation. One that came before goes through the cache, any other is answered
// here if possible. Servers are only asked through the cache, so that they are asked once.
func (f *Front) serveOperation(w http.ResponseWriter, r *http.Request, next NextHandler, local operation) error {
	path := strings.TrimPrefix(r.URL.Path, f.options.Base+"/")
	q := &request{front: f, local: local, next: next, personal: isPersonal(r), path: path}
	if f.state.cache == nil || q.personal {
		return q.serveUnstored(w, r)
	}
	s := f.currentSchemes()
	if r.Method != http.MethodPost {
		q.number = f.sightings.number(r, s.seed)
		q.known = f.sightings.look(q.number)
	}
	if q.known != unseen {
		return q.serveStored(w, r, s)
	}
	here := q.serveHere(w, r)
	if here.missing == nil && !isFetchFailure(here.err) {
		return f.finish(Here, here.err)
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

// readBody reads the body of a POST, which may make the request personal. The local operation, which has read it before,
// has put it back.
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

func (q *request) rewind(r *http.Request) {
	if q.read {
		r.Body = io.NopCloser(bytes.NewReader(q.body))
	}
}

func (q *request) subjectOf(r *http.Request) remote.Subject {
	if q.subject == nil {
		s := remote.SubjectOf(r.URL.RawQuery, r.Header.Get("Content-Type"), q.body)
		q.subject = &s
	}
	return *q.subject
}

// cacheID is the parameter that names definitions of earlier requests.
const cacheID = "cache-id"

// isPersonal reports whether only this client can use the answer: it depends on its earlier requests, or tries out a
// limit.
func isPersonal(r *http.Request) bool {
	return len(r.Header["X-Cache-Id"]) > 0 || len(r.Header["X-Too-Costly-Threshold"]) > 0 || hasCacheID(r.URL.RawQuery)
}

// hasCacheID reports whether a query string has the parameter cache-id, escaped or not.
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

// mentionsCacheID reports whether a body may have the parameter, perhaps hidden by needless escapes of JSON or XML.
func mentionsCacheID(body []byte) bool {
	for _, sign := range []string{cacheID, `\u00`, "&#"} {
		if bytes.Contains(body, []byte(sign)) {
			return true
		}
	}
	return hasCacheID(string(body))
}
