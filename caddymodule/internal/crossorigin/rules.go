// Package crossorigin says which scripts may call a FHIR API and read its answers (CORS).
package crossorigin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/rs/cors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// Words of a cors option that are no origins.
const (
	corsAll = "*"
	Clients = "clients"
)

var errNoClients = errors.New("cors clients requires the fhir global option, which defines the clients")

// Rules says which scripts may call a FHIR API and read its answers (Fetch §3.2). Credentials mode is never allowed:
// it is for cookies, not for bearer tokens. A nil one leaves CORS to the next handler.
type Rules struct {
	api      *cors.Cors
	metadata *cors.Cors // for what tells apps how to get a token: open to all
}

// clientOrigins are the origins of the fhir app's clients.
type clientOrigins interface {
	// AllowsOrigin reports whether a client has a redirect URI there.
	AllowsOrigin(origin string) bool
}

// New makes the rules of a cors option; nil if it is empty. The origins of clients are nil without the app.
func New(words []string, of clientOrigins) (*Rules, error) {
	if len(words) == 0 {
		return nil, nil
	}
	options := cors.Options{
		AllowedMethods: []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"},
		AllowedHeaders: []string{"*"}, MaxAge: httporigin.PreflightMaxAge,
		ExposedHeaders: []string{"WWW-Authenticate", "ETag", "Location", "Content-Location", "Last-Modified", "Age", "Cache-Status", "Retry-After", "RateLimit", "RateLimit-Policy"},
	}
	all := cors.New(options)
	if slices.Contains(words, corsAll) {
		return &Rules{all, all}, nil
	}
	clients := slices.Contains(words, Clients)
	if of == nil {
		if err := CheckClients(words); err != nil {
			return nil, err
		}
	}
	for _, word := range words {
		if err := Check(word); err != nil {
			return nil, err
		}
	}
	options.AllowOriginFunc = func(origin string) bool {
		isOrigin := origin != "" && origin != Clients // it is asked without one, too
		return isOrigin && (slices.Contains(words, origin) || clients && of.AllowsOrigin(origin))
	}
	return &Rules{cors.New(options), all}, nil
}

// CheckClients refuses the word clients if there is no app to define them.
func CheckClients(words []string) error {
	if slices.Contains(words, Clients) {
		return errNoClients
	}
	return nil
}

// Check checks a word of a cors option. An origin that no browser sends is an error, as it would never match.
func Check(word string) error {
	if word == corsAll || word == Clients {
		return nil
	}
	u, err := url.Parse(word)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Host != strings.ToLower(u.Host) || strings.Contains(u.Host, "*") || word != u.Scheme+"://"+u.Host ||
		u.Port() == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		return fmt.Errorf("%q is neither %s nor %s nor an origin such as https://app.example.org: in lower case, with nothing after host and port, and without a port that is the usual one", word, Clients, corsAll)
	}
	return nil
}

// Answer sets the CORS headers, and reports whether the request was a preflight, which it has answered then. The returned
// writer drops the CORS headers of later handlers.
func (c *Rules) Answer(w http.ResponseWriter, r *http.Request, metadata bool) (http.ResponseWriter, bool) {
	if c == nil {
		return w, false
	}
	rules := c.api
	if metadata {
		rules = c.metadata
	}
	rules.HandlerFunc(w, r)
	switch {
	case httporigin.IsPreflight(r):
		return w, true
	case r.Header.Get("Origin") == "":
		return w, false
	}
	return newCORSWriter(w), false
}

// corsWriter replaces a backend's CORS headers by ours, since browsers reject two values of one.
type corsWriter struct {
	caddyhttp.ResponseWriterWrapper
	allowed, exposed []string
	wrote            bool
}

const (
	headerAllowOrigin = "Access-Control-Allow-Origin"
	headerExpose      = "Access-Control-Expose-Headers"
)

func newCORSWriter(w http.ResponseWriter) *corsWriter {
	return &corsWriter{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		allowed:               w.Header()[headerAllowOrigin], exposed: w.Header()[headerExpose],
	}
}

func (w *corsWriter) WriteHeader(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status) // more follow
		return
	}
	w.wrote = true
	h := w.Header()
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
		}
	}
	if w.allowed != nil {
		h[headerAllowOrigin], h[headerExpose] = w.allowed, w.exposed
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *corsWriter) Write(body []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(body)
}

func (w *corsWriter) ReadFrom(body io.Reader) (int64, error) {
	w.begin()
	return w.ResponseWriterWrapper.ReadFrom(body)
}

func (w *corsWriter) begin() {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
}

var (
	_ http.ResponseWriter = (*corsWriter)(nil)
	_ io.ReaderFrom       = (*corsWriter)(nil)
)
