package front

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
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
	number   uint64          // among the sightings; 0: none
	read     bool            // body is set
	body     []byte          // of a POST
	subject  *remote.Subject // nil until it is needed
}

// schemes make the keys of the responses that were made from one library.
type schemes struct {
	library *terminology.Library
	seed    uint64       // of the library, for sightings
	shared  cache.Scheme // of answers that are the same for all
	next    cache.Scheme // of the next handler's answers
}
