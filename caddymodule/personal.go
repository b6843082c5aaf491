package caddymodule

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

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

// principalOf tells those apart whom fhir_bearer let in, or is empty where there is no guard.
func principalOf(ctx context.Context) string {
	who := principal(ctx, true)
	if who == (cache.Principal{}) {
		return ""
	}
	return fmt.Sprintf("%q %q %q", who.Issuer, who.User, who.Client)
}
