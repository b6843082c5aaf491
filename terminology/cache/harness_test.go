package cache

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
)

// origin is a producer that counts, and what a test makes it do.
type origin struct {
	calls  atomic.Int64
	answer func(r *http.Request) (*Answer, error)
}

// produce implements Producer.
func (o *origin) produce(r *http.Request) (*Answer, error) {
	o.calls.Add(1)
	return o.answer(r)
}

// says is a producer of one body, with headers given as "Name: value".
func says(body string, headers ...string) *origin {
	return &origin{answer: func(*http.Request) (*Answer, error) { return answerOf(http.StatusOK, body, headers...), nil }}
}

// answerOf makes an answer in JSON.
func answerOf(status int, body string, headers ...string) *Answer {
	header := http.Header{"Content-Type": {"application/fhir+json"}}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	return &Answer{Status: status, Header: header, Body: []byte(body), Tags: []string{}}
}

const expandURL = "http://fhir.example.org/fhir/R4/ValueSet/$expand?url=http://example.org/vs"

// get makes a GET with headers given as "Name: value".
func get(url string, headers ...string) *http.Request { return with(http.MethodGet, url, headers...) }

// with makes a request.
func with(method, url string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, url, nil)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// serve asks a cache.
func serve(t *testing.T, c *Cache, r *http.Request, call *Call) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	if err := c.Serve(w, r, call); err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return w
}

// expect checks body and Cache-Status of an answer.
func expect(t *testing.T, w *httptest.ResponseRecorder, body, status string) {
	t.Helper()
	if got, _ := io.ReadAll(w.Body); string(got) != body {
		t.Errorf("body = %.60q, want %.60q", got, body)
	}
	if got := w.Header().Get("Cache-Status"); got != cacheName+"; "+status {
		t.Errorf("Cache-Status = %q, want %q", got, cacheName+"; "+status)
	}
}

// asked checks how often an origin was asked.
func asked(t *testing.T, o *origin, want int64) {
	t.Helper()
	if got := o.calls.Load(); got != want {
		t.Errorf("the producer was asked %d times, want %d", got, want)
	}
}

// plain is a scheme for what everybody may see.
var plain = &Scheme{VaryBy: VaryByNone}

// check checks that a store's parts agree with each other.
func (s *store) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed, aliases := 0, 0
	for i := range s.segments {
		var bytes int64
		for element := s.segments[i].Front(); element != nil; element = element.Next() {
			e := element.Value.(*entry)
			listed++
			aliases += len(e.place.aliases)
			size := e.cost()
			for _, alias := range e.place.aliases {
				size += int64(len(alias)) + aliasOverhead
				if s.aliases[alias] != e {
					return fmt.Errorf("alias %q finds another entry", alias)
				}
			}
			if size != e.place.size || s.entries[e.key.sum] != e || e.place.segment != i {
				return fmt.Errorf("entry %v: size %d, kept as %d", e.key, size, e.place.size)
			}
			bytes += size
		}
		if bytes != s.segments[i].bytes {
			return fmt.Errorf("segment %d: %d bytes, kept as %d", i, bytes, s.segments[i].bytes)
		}
	}
	if listed != len(s.entries) || aliases != len(s.aliases) {
		return fmt.Errorf("%d entries, %d listed; %d aliases, %d listed", len(s.entries), listed, len(s.aliases), aliases)
	}
	if s.bytes() > s.max {
		return fmt.Errorf("%d bytes, more than %d", s.bytes(), s.max)
	}
	return nil
}
