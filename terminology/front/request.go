package front

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

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

// request is a request for an operation, read once. Producers may use it after the client's own request has ended.
type request struct {
	front    *Front
	local    operation // answers it from here
	next     NextHandler
	path     string   // below the FHIR base: ValueSet/$expand
	personal bool     // the answer is for this client alone
	schemes  *schemes // of keys; nil: nothing is stored
	known    sighting
	number   uint64 // among the sightings; 0: none
	body     []byte // of a POST; nil: not read
}

// schemes make the keys of the responses that were made from one library.
type schemes struct {
	library *terminology.Library
	seed    uint64       // of the library, for sightings
	shared  cache.Scheme // of answers that are the same for all
	next    cache.Scheme // of the next handler's answers
}

func (f *Front) newRequest(r *http.Request, next NextHandler, local operation) *request {
	path := strings.TrimPrefix(r.URL.Path, f.options.Base+"/")
	q := &request{front: f, local: local, next: next, personal: isPersonal(r), path: path}
	if f.state.cache != nil && !q.personal {
		q.schemes = f.currentSchemes()
	}
	if q.schemes != nil && r.Method != http.MethodPost {
		q.number = f.sightings.number(r, q.schemes.seed)
		q.known = f.sightings.look(q.number)
	}
	return q
}

func (f *Front) currentSchemes() *schemes {
	library := f.options.Handler.Current()
	if s := f.schemes.Load(); s != nil && s.library == library {
		return s
	}
	epoch := f.options.Epoch(library)
	s := &schemes{
		library: library, seed: f.sightings.seed(epoch),
		shared: cache.Scheme{Space: "shared", Epoch: epoch, VaryBy: cache.VaryByNone},
		next:   cache.Scheme{Space: "next", Epoch: epoch, VaryBy: f.options.VaryBy, Headers: f.options.VaryHeaders},
	}
	f.schemes.Store(s)
	return s
}

// readBody reads the body of a POST, which may make the request personal, and puts it back, as the local operation has done
// before.
func (q *request) readBody(r *http.Request) (err error) {
	if r.Method != http.MethodPost {
		return nil
	}
	if q.body, err = io.ReadAll(r.Body); err != nil {
		return err
	}
	q.personal = q.personal || mentionsCacheID(q.body)
	r.Body = io.NopCloser(bytes.NewReader(q.body))
	return nil
}
