package front

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// privateNoCache is the Cache-Control of an answer that may change at any time.
var privateNoCache = []string{"private, no-cache"}

// provisionalAnswer is an answer for lack of a better one. It is stored as briefly as a 404.
func provisionalAnswer(p *terminology.Provisional) *cache.Answer {
	return &cache.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {p.ContentType}}, Body: p.Body, Negative: true}
}

// write gives the client an answer that is not stored. To an authorised request it is private, even if the server,
// which knows nothing of the guard, says otherwise (RFC 9111 §3.5).
func (f *Front) write(w http.ResponseWriter, r *http.Request, a *cache.Answer, private []string) error {
	header := w.Header()
	maps.Copy(header, a.Header)
	if f.isAuthorised(r) && !strings.Contains(header.Get("Cache-Control"), "no-store") {
		header["Cache-Control"] = private
	}
	header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(a.Status)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(a.Body); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// isAuthorised reports whether not everybody could have made the request.
func (f *Front) isAuthorised(r *http.Request) bool {
	return len(r.Header["Authorization"]) > 0 || len(r.Header["Cookie"]) > 0 || f.host.Guard.Client(r.Context()) != (cache.Principal{})
}
