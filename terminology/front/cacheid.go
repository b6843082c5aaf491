package front

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
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
