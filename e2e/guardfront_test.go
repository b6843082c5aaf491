package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// serverFront is a proxy between a gateway and HAPI. It counts requests and makes HAPI behave like other FHIR servers.
type serverFront struct {
	fhirAPI
	requests atomic.Int64

	// naming changes the request so that HAPI uses another base URL in links; if nil, HAPI uses that of the X-Forwarded headers
	naming func(r *http.Request)
	// before is called before the request is sent to HAPI; it returns true if it has sent the response
	before func(w http.ResponseWriter, r *http.Request) bool
	// body returns the JSON body that replaces the response body; if nil, the body is unchanged
	body func(r *http.Request, body []byte) []byte
	// compress compresses response bodies, regardless of Accept-Encoding
	compress bool
}

// ownAddress returns a function for naming that makes HAPI use the front's address in links.
func ownAddress(base string) func(*http.Request) {
	address := strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/fhir")
	return func(r *http.Request) {
		hostWithoutTLS(r)
		r.Host = address
	}
}

// hostWithoutTLS makes HAPI use http and the Host header in links, like a server that ignores X-Forwarded-Proto.
func hostWithoutTLS(r *http.Request) {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" {
			r.Header[name] = nil // a nil value also prevents ReverseProxy from adding X-Forwarded-For
		}
	}
}

// frontOf starts a serverFront in front of the server.
func frontOf(t *testing.T, server fhirAPI) *serverFront {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(server.base, "/fhir"))
	if err != nil {
		t.Fatal(err)
	}
	f := &serverFront{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawQuery = target.Scheme, target.Host, r.In.URL.RawQuery
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				r.Out.Header[name] = r.In.Header[name]
			}
			r.Out.Header.Set("Accept-Encoding", "identity")
			if f.naming != nil {
				f.naming(r.Out)
			}
		},
		ModifyResponse: f.change,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		if f.before != nil && f.before(w, r) {
			return
		}
		if err := readBody(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	f.fhirAPI = fhirAPI{s.URL + "/fhir"}
	return f
}

// readBody reads the full body before the request is forwarded. Go's HTTP/1 server closes a request's body once the response
// begins. If a fast server responds before the transport has reached the end of the body, the transport closes the connection,
// and the response is truncated.
func readBody(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

// change applies body and compress to a response.
func (f *serverFront) change(a *http.Response) error {
	isJSON := strings.Contains(a.Header.Get("Content-Type"), "json")
	if a.Request.Method == http.MethodHead || !f.compress && (f.body == nil || !isJSON) {
		return nil
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	if f.body != nil && isJSON {
		body = f.body(a.Request, body)
	}
	if f.compress {
		var compressed bytes.Buffer
		writer := gzip.NewWriter(&compressed)
		_, _ = writer.Write(body) // cannot fail
		_ = writer.Close()
		body = compressed.Bytes()
		a.Header.Set("Content-Encoding", "gzip")
	}
	a.Body, a.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	a.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// repeatQueries replaces HAPI's next links with links that repeat the search query, as many servers do.
func (f *serverFront) repeatQueries() {
	var mu sync.Mutex
	pages := map[string]string{} // query of HAPI's next link by page number
	f.before = func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if query, ok := pages[r.URL.Query().Get("_page")]; ok {
			r.Header.Set("X-Query", r.URL.RawQuery)
			r.Header.Set("X-Path", r.URL.Path)
			r.URL.Path, r.URL.RawQuery = "/fhir", query
		}
		return false
	}
	f.body = func(r *http.Request, body []byte) []byte {
		var page searchPage
		if json.Unmarshal(body, &page) != nil || page.next() == "" {
			return body
		}
		next, err := url.Parse(page.next())
		if err != nil || !strings.Contains(next.RawQuery, "_getpages") {
			return body
		}
		mu.Lock()
		defer mu.Unlock()
		number := strconv.Itoa(len(pages) + 1)
		pages[number] = next.RawQuery
		path, query := r.URL.Path, r.URL.RawQuery
		if repeated := r.Header.Get("X-Query"); repeated != "" {
			path, query = r.Header.Get("X-Path"), repeated
			query = query[:strings.LastIndex(query, "&_page=")]
		}
		repeating := strings.TrimSuffix(f.base, "/fhir") + path + "?" + query + "&_page=" + number
		return bytes.Replace(body, mustJSON(page.next()), mustJSON(repeating), 1)
	}
}

// mustJSON encodes a string as HAPI does, without escaping & as \u0026.
func mustJSON(text string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // cannot fail
	return bytes.TrimSpace(b.Bytes())
}
