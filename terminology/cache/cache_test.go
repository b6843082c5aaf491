package cache

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
)

var errDown = errors.New("down")

// TestLifetime follows a response from creation until it can no longer be served stale.
func TestLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin("one")
		call := o.call()
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Minute, StaleIfError: time.Hour})
		expect(t, serve(t, c, get(expandURL), call), "one", "fwd=miss; fwd-status=200; stored")
		time.Sleep(20 * time.Second)
		w := serve(t, c, get(expandURL), call)
		expect(t, w, "one", "hit; ttl=40")
		if age := w.Header().Get("Age"); age != "20" {
			t.Errorf("Age = %s, want 20", age)
		}
		checkCalls(t, o, 1)

		o.answer = responds(http.StatusOK, "two")
		time.Sleep(50 * time.Second)
		expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=-10")
		synctest.Wait()
		checkCalls(t, o, 2)
		expect(t, serve(t, c, get(expandURL), call), "two", "hit; ttl=60")

		o.answer = fails(errDown)
		time.Sleep(3 * time.Minute)
		expect(t, serve(t, c, get(expandURL), call), "two", "fwd=stale; ttl=-120; detail=stale-if-error")
		checkCalls(t, o, 3)
		expect(t, serve(t, c, get(expandURL), call), "two", "hit; ttl=-120") // not retried yet, because the last attempt failed moments ago
		checkCalls(t, o, 3)
		time.Sleep(11 * time.Second)
		serve(t, c, get(expandURL), call)
		checkCalls(t, o, 4)

		time.Sleep(time.Hour)
		if err := c.Serve(httptest.NewRecorder(), get(expandURL), call); !errors.Is(err, errDown) {
			t.Errorf("after the end: %v, want the failure", err)
		}
	})
}

// TestBackgroundFailure checks that background revalidation does not call a failing origin for each request.
func TestBackgroundFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin("one")
		call := o.call()
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Hour})
		serve(t, c, get(expandURL), call)
		o.answer = responds(http.StatusBadGateway, "{}")
		time.Sleep(2 * time.Minute)
		for range 10 {
			expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=-60")
			synctest.Wait()
		}
		checkCalls(t, o, 2)
		o.answer = responds(http.StatusOK, "two")
		time.Sleep(11 * time.Second)
		serve(t, c, get(expandURL), call)
		synctest.Wait()
		expect(t, serve(t, c, get(expandURL), call), "two", "hit; ttl=60")
	})
}

// TestRefusedInBackground checks that the stale response is no longer served once background revalidation returns 403.
func TestRefusedInBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin("one")
		call := o.call()
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Hour, StaleIfError: time.Hour})
		serve(t, c, get(expandURL), call)
		o.answer = responds(http.StatusForbidden, "no")
		time.Sleep(2 * time.Minute)
		serve(t, c, get(expandURL), call)
		synctest.Wait()
		expect(t, serve(t, c, get(expandURL), call), "no", "fwd=miss; fwd-status=403")
	})
}

func TestStoredResponses(t *testing.T) {
	user := &Scheme{}
	alice := Principal{Issuer: "https://as.example", User: "alice"}
	for name, test := range map[string]struct {
		status  int
		scheme  *Scheme
		headers []string
		lasts   time.Duration // 0 if the response is not stored
	}{
		"silent":                         {200, plain, nil, time.Minute},
		"max-age":                        {200, plain, []string{"Cache-Control: max-age=30"}, 30 * time.Second},
		"s-maxage before max-age":        {200, plain, []string{"Cache-Control: max-age=30, s-maxage=20"}, 20 * time.Second},
		"longer than ttl":                {200, plain, []string{"Cache-Control: max-age=300000"}, time.Minute},
		"with age":                       {200, plain, []string{"Cache-Control: max-age=30", "Age: 12"}, 18 * time.Second},
		"with an old date":               {200, plain, []string{"Cache-Control: max-age=30", "Date: Fri, 31 Dec 1999 23:59:50 GMT"}, 20 * time.Second},
		"older than max-age":             {200, plain, []string{"Cache-Control: max-age=30", "Age: 31"}, 0},
		"unreadable max-age":             {200, plain, []string{"Cache-Control: max-age=soon"}, 0},
		"Expires":                        {200, plain, []string{"Expires: Sat, 01 Jan 2000 00:00:25 GMT"}, 25 * time.Second},
		"Expires and Date":               {200, plain, []string{"Expires: Sat, 01 Jan 2000 00:00:45 GMT", "Date: Sat, 01 Jan 2000 00:00:05 GMT"}, 40 * time.Second},
		"Expires 0":                      {200, plain, []string{"Expires: 0"}, 0},
		"max-age before Expires":         {200, plain, []string{"Expires: 0", "Cache-Control: max-age=30"}, 30 * time.Second},
		"no-store":                       {200, plain, []string{"Cache-Control: no-store, max-age=30"}, 0},
		"No-Store":                       {200, plain, []string{"Cache-Control: No-Store"}, 0},
		"no-cache":                       {200, plain, []string{"Cache-Control: no-cache"}, 0},
		"private, for all":               {200, plain, []string{"Cache-Control: private"}, 0},
		"private, for a user":            {200, user, []string{"Cache-Control: private"}, time.Minute},
		"private with field, for all":    {200, plain, []string{`Cache-Control: private="X-A"`}, 0},
		"Set-Cookie":                     {200, user, []string{"Set-Cookie: a=b"}, 0},
		"Vary *":                         {200, user, []string{"Vary: Accept, *"}, 0},
		"Vary Origin":                    {200, plain, []string{"Vary: Origin, Access-Control-Request-Method"}, time.Minute},
		"Vary Authorization, for all":    {200, plain, []string{"Vary: Accept, authorization"}, 0},
		"Vary Authorization, for a user": {200, user, []string{"Vary: Authorization"}, time.Minute},
		"unknown value set":              {404, plain, nil, 10 * time.Second},
		"too costly":                     {422, plain, []string{"Cache-Control: max-age=30"}, 10 * time.Second},
		"bad request":                    {400, plain, nil, 0},
		"forbidden":                      {403, user, nil, 0},
		"partial":                        {206, plain, nil, 0},
		"redirect":                       {301, plain, nil, 0},
		"failure":                        {503, plain, []string{"Cache-Control: max-age=30"}, time.Second},
		"too many requests":              {429, plain, nil, time.Second},
		"failure with Retry-After":       {503, plain, []string{"Retry-After: 30"}, 30 * time.Second},
		"failure, for one":               {503, plain, []string{"Retry-After: 30", "Set-Cookie: a=b"}, 0},
		"failure, private":               {503, plain, []string{"Retry-After: 30", "Cache-Control: private"}, 0},
		"other format":                   {200, plain, []string{"Content-Type: application/fhir+xml"}, 0},
		"no FHIR":                        {200, plain, []string{"Content-Type: text/html"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &origin{answer: responds(test.status, "body", test.headers...)}
				call := &Call{Scheme: test.scheme, Principal: alice, Produce: o.produce}
				c := New(Options{TTL: time.Minute})
				serve(t, c, get(expandURL), call)
				if test.lasts > 0 {
					time.Sleep(test.lasts - time.Nanosecond)
					w := serve(t, c, get(expandURL), call)
					checkCalls(t, o, 1)
					if w.Code != test.status || w.Body.String() != "body" {
						t.Errorf("kept as %d %q", w.Code, w.Body)
					}
					time.Sleep(time.Nanosecond)
				}
				serve(t, c, get(expandURL), call)
				checkCalls(t, o, 2)
			})
		})
	}
}

// TestNegative checks that a response marked as Negative is stored as briefly as a 404.
func TestNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: func(*http.Request) (*Response, error) {
			a := jsonAnswer(http.StatusOK, "body")
			a.Negative = true
			return a, nil
		}}
		call := o.call()
		c := New(Options{TTL: time.Minute, NegativeTTL: 5 * time.Second, StaleWhileRevalidate: time.Hour})
		serve(t, c, get(expandURL), call)
		time.Sleep(5*time.Second - time.Nanosecond)
		serve(t, c, get(expandURL), call)
		checkCalls(t, o, 1)
		time.Sleep(time.Nanosecond)
		o.answer = responds(http.StatusOK, "better")
		if w := serve(t, c, get(expandURL), call); w.Body.String() != "better" {
			t.Errorf("got %s", w.Body)
		}
	})
}

// TestStaleBounds checks that a stale response is not served longer than its Cache-Control directives allow.
func TestStaleBounds(t *testing.T) {
	for name, test := range map[string]struct {
		headers      []string
		swr, sie     time.Duration
		swrOK, sieOK bool
	}{
		"both":            {nil, time.Hour, time.Hour, true, true},
		"neither":         {nil, 0, 0, false, false},
		"only if error":   {nil, 0, time.Hour, false, true},
		"must-revalidate": {[]string{"Cache-Control: must-revalidate"}, time.Hour, time.Hour, false, false},
		"its own windows": {[]string{"Cache-Control: max-age=60, stale-while-revalidate=10, stale-if-error=600"}, time.Hour, time.Hour, false, true},
		"no-cache":        {[]string{"Cache-Control: no-cache", `ETag: "a"`}, time.Hour, time.Hour, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOrigin("one", test.headers...)
				call := o.call()
				c := New(Options{TTL: time.Minute, StaleWhileRevalidate: test.swr, StaleIfError: test.sie})
				serve(t, c, get(expandURL), call)
				time.Sleep(2 * time.Minute)
				o.answer = fails(errDown)
				w := httptest.NewRecorder()
				err := c.Serve(w, get(expandURL), call)
				synctest.Wait()
				if ok := err == nil && w.Header().Get("Cache-Status") == "caddy-fhir; hit; ttl=-60"; ok != test.swrOK {
					t.Errorf("given while revalidating: %v, %v", ok, w.Header())
				}
				if ok := err == nil; ok != (test.sieOK || test.swrOK) {
					t.Errorf("given although there was an error: %v", ok)
				}
			})
		})
	}
}

func TestRevalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin("one", `ETag: "v1"`, "Last-Modified: Fri, 31 Dec 1999 00:00:00 GMT", "Content-Location: /fhir/R4/ValueSet/1")
		call := o.call()
		c := New(Options{TTL: time.Minute})
		tag := serve(t, c, get(expandURL), call).Header().Get("Etag")
		var sent http.Header
		o.answer = func(r *http.Request) (*Response, error) {
			sent = r.Header
			return &Response{Status: http.StatusNotModified, Header: http.Header{"Etag": {`"v2"`}, "Cache-Control": {"max-age=20"}}}, nil
		}
		time.Sleep(90 * time.Second)
		w := serve(t, c, get(expandURL), call)
		expect(t, w, "one", "fwd=stale; fwd-status=304; stored")
		if sent.Get("If-None-Match") != `"v1"` || sent.Get("If-Modified-Since") == "" {
			t.Errorf("request headers %v", sent)
		}
		if w.Header().Get("Etag") != tag || w.Header().Get("Content-Location") != "/fhir/R4/ValueSet/1" {
			t.Errorf("header = %v", w.Header())
		}
		expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=20")
		time.Sleep(20 * time.Second)
		expect(t, serve(t, c, get(expandURL), call), "one", "fwd=stale; fwd-status=304; stored")
		if sent.Get("If-None-Match") != `"v2"` {
			t.Errorf("request headers %v, want the newer tag", sent)
		}
		if n := c.Stats().Entries; n != 1 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestUnrequestedNotModified(t *testing.T) {
	o := &origin{answer: func(*http.Request) (*Response, error) { return &Response{Status: http.StatusNotModified}, nil }}
	err := New(Options{}).Serve(httptest.NewRecorder(), get(expandURL), o.call())
	if !errors.Is(err, errUnexpected304) {
		t.Errorf("err = %v, want errUnasked", err)
	}
}

func TestTruncatedResponse(t *testing.T) {
	for _, header := range []string{"Content-Length: 5", "Content-Encoding: br"} {
		o := newOrigin("body", header)
		c := New(Options{})
		if err := c.Serve(httptest.NewRecorder(), get(expandURL), o.call()); !errors.Is(err, errIncompleteBody) {
			t.Errorf("%s: err = %v, want errNotWhole", header, err)
		}
		if c.Stats().Entries != 0 {
			t.Errorf("%s: it was kept", header)
		}
	}
}

func TestRequestDirectives(t *testing.T) {
	for name, test := range map[string]struct {
		wish, status string
		calls        int64
		err          error
	}{
		"nothing":           {"", "hit; ttl=3590", 1, nil},
		"no-cache":          {"no-cache", "fwd=request; fwd-status=200; stored", 2, nil},
		"max-age, too old":  {"max-age=5", "fwd=request; fwd-status=200; stored", 2, nil},
		"max-age, young":    {"max-age=15", "hit; ttl=3590", 1, nil},
		"no-store":          {"no-store", "fwd=bypass", 2, nil},
		"only-if-cached":    {"only-if-cached", "hit; ttl=3590", 1, nil},
		"only, but younger": {"only-if-cached, max-age=5", "", 1, ErrNotCached},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOrigin("one")
				call := o.call()
				c := New(Options{})
				serve(t, c, get(expandURL), call)
				time.Sleep(10 * time.Second)
				w := httptest.NewRecorder()
				err := c.Serve(w, get(expandURL, "Cache-Control: "+test.wish), call)
				checkCalls(t, o, test.calls)
				if !errors.Is(err, test.err) {
					t.Fatalf("%v, want %v", err, test.err)
				}
				if test.err == nil {
					expect(t, w, "one", test.status)
				}
			})
		})
	}
	err := New(Options{}).Serve(httptest.NewRecorder(), get(expandURL, "Cache-Control: only-if-cached"), &Call{Scheme: plain, Produce: nil})
	if !errors.Is(err, ErrNotCached) {
		t.Errorf("only-if-cached of nothing: %v", err)
	}
}

// TestAge checks that a response with Age but no lifetime starts at this age (RFC 9111 §5.1) and is stored as long as other
// responses.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin("one", "Age: 7200")
		c := New(Options{TTL: time.Minute})
		call := o.call()
		serve(t, c, get(expandURL), call)
		time.Sleep(10 * time.Second)
		w := serve(t, c, get(expandURL), call)
		if w.Header().Get("Age") != "7210" {
			t.Errorf("Age: %s", w.Header().Get("Age"))
		}
		expect(t, w, "one", "hit; ttl=50")
		time.Sleep(time.Minute)
		serve(t, c, get(expandURL), call)
		checkCalls(t, o, 2)
	})
}

// TestEntityTag checks that the producer's entity tag survives validation, and that coded forms add a suffix.
func TestEntityTag(t *testing.T) {
	o := &origin{answer: func(r *http.Request) (*Response, error) {
		if r.Header.Get("If-None-Match") == `"made"` {
			return &Response{Status: http.StatusNotModified, Header: make(http.Header)}, nil
		}
		a := jsonAnswer(http.StatusOK, strings.Repeat("one", 1000), `Etag: "made"`)
		a.EntityTag = "made"
		return a, nil
	}}
	call := o.call()
	c := New(Options{})
	check := func(how, want string, headers ...string) {
		t.Helper()
		if got := serve(t, c, get(expandURL, headers...), call).Header().Get("Etag"); got != want {
			t.Errorf("%s: %s, want %s", how, got, want)
		}
	}
	check("made", `"made"`)
	check("still good", `"made"`, "Cache-Control: no-cache")
	check("compressed", `"made-gz"`, "Accept-Encoding: gzip")
	checkCalls(t, o, 2)
}

// TestBypassSendsSameRequest checks that a bypassed request reaches the producer in the same form as other requests, and that
// HEAD returns the Content-Length of GET (RFC 9110 §8.6).
func TestBypassSendsSameRequest(t *testing.T) {
	for name, query := range map[string]string{"understood": "", "not understood": "&a;b"} {
		o := &origin{answer: func(r *http.Request) (*Response, error) {
			if r.Method != http.MethodGet || name == "understood" && (r.Header.Get("Prefer") != "" || r.Header.Get("Accept") != "application/fhir+json") {
				t.Errorf("%s: %s %v", name, r.Method, r.Header)
			}
			return jsonAnswer(http.StatusOK, "one"), nil
		}}
		r := newRequest(http.MethodHead, expandURL+query, "Cache-Control: no-store", "Prefer: respond-async")
		w := serve(t, New(Options{}), r, o.call())
		if w.Header().Get("Content-Length") != "3" || w.Body.Len() != 0 {
			t.Errorf("%s: %v, %d bytes", name, w.Header(), w.Body.Len())
		}
	}
}

// TestRelayedIsNotShared checks that no shared cache may store the response to an authorized request, regardless of
// the origin's Cache-Control (RFC 9111 §3.5).
func TestRelayedIsNotShared(t *testing.T) {
	for directives, want := range map[string]string{"": "private, no-cache", "public, s-maxage=60": "private, no-cache", "public, no-store": "private, no-store"} {
		for _, wish := range []string{"no-store", "no-cache"} {
			call := &Call{Scheme: plain, Produce: newOrigin("one", "Cache-Control: "+directives, "Set-Cookie: a=b").produce}
			for authorization, want := range map[string]string{"Bearer a": want, "": directives} {
				r := get(expandURL, "Cache-Control: "+wish)
				if authorization != "" {
					r.Header.Set("Authorization", authorization)
				}
				if got := serve(t, New(Options{}), r, call).Header().Get("Cache-Control"); got != want {
					t.Errorf("%q to %q: %q, want %q", directives, authorization, got, want)
				}
			}
		}
	}
}

// TestNotUnderstood checks that requests that cannot be parsed are passed to the producer.
func TestNotUnderstood(t *testing.T) {
	for _, query := range []string{"&filter=%zz", "&a;b", "&_format=yaml", "&_format=json&_format=xml", "&_pretty=true&_pretty=false"} {
		o := newOrigin("one")
		c := New(Options{})
		for range 2 {
			r := get(expandURL)
			r.URL.RawQuery += query
			expect(t, serve(t, c, r, o.call()), "one", "fwd=bypass; detail=request")
		}
		checkCalls(t, o, 2)
	}
	o := newOrigin("one")
	c := New(Options{})
	expect(t, serve(t, c, newRequest(http.MethodPut, expandURL), o.call()), "one", "fwd=bypass")
	if c.Stats().Entries != 0 {
		t.Errorf("PUT: %+v", c.Stats())
	}
}

// TestBypassFails checks that nothing is written if the producer fails during a bypass.
func TestBypassFails(t *testing.T) {
	w := httptest.NewRecorder()
	o := &origin{answer: fails(errDown)}
	err := New(Options{}).Serve(w, get(expandURL, "Cache-Control: no-store"), o.call())
	if !errors.Is(err, errDown) || len(w.Header()) > 0 {
		t.Errorf("%v, %v", err, w.Header())
	}
}

// TestRelayed checks that a response that is not stored is relayed unchanged, except for hop-by-hop headers.
func TestRelayed(t *testing.T) {
	o := &origin{answer: func(*http.Request) (*Response, error) {
		return jsonAnswer(http.StatusUnauthorized, "{}", "Www-Authenticate: Bearer", "Retry-After: 5", "Vary: Origin", "Connection: close", "Content-Length: 2", "Cache-Status: other; hit"), nil
	}}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w := serve(t, New(Options{}), newRequest(method, expandURL), o.call())
		h := w.Header()
		if w.Code != 401 || h.Get("Www-Authenticate") != "Bearer" || h.Get("Retry-After") != "5" || h.Get("Vary") != "Origin" || h.Get("Connection") != "" {
			t.Errorf("%s: %d, %v", method, w.Code, h)
		}
		if h.Get("Content-Length") != "2" || (w.Body.Len() == 2) != (method == http.MethodGet) || h.Get("Cache-Status") != "caddy-fhir; fwd=miss; fwd-status=401" {
			t.Errorf("%s: %d bytes, %v", method, w.Body.Len(), h)
		}
	}
}

// TestFHIRVersion checks that the producer's request contains the FHIR version that is part of the key.
func TestFHIRVersion(t *testing.T) {
	c := New(Options{})
	o := &origin{answer: func(r *http.Request) (*Response, error) { return jsonAnswer(200, r.Header.Get("Accept")), nil }}
	for _, r := range []*http.Request{
		get(expandURL, "Accept: application/fhir+json; fhirVersion=5.0"),
		get(expandURL+"&_format=application/fhir%2bjson%3bfhirVersion%3d5.0", "Accept: */*"),
	} {
		w := serve(t, c, r, o.call())
		if w.Body.String() != "application/fhir+json; fhirversion=5.0" {
			t.Errorf("producer called with Accept %q", w.Body)
		}
	}
	checkCalls(t, o, 1)
}

// TestRevalidatedResponse checks that a response confirmed by a 304 keeps its compressed forms and gets the tags of the 304.
func TestRevalidatedResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin("one", `ETag: "v1"`)
		call := o.call()
		c := New(Options{TTL: time.Minute})
		serve(t, c, get(expandURL), call)
		serve(t, c, get(expandURL, "Accept-Encoding: gzip, identity;q=0"), call)
		o.answer = func(*http.Request) (*Response, error) {
			return &Response{Status: http.StatusNotModified, Header: http.Header{}, Tags: []string{"http://vs"}}, nil
		}
		time.Sleep(119 * time.Second)
		before := c.Stats().Bytes
		serve(t, c, get(expandURL), call)
		if growth := c.Stats().Bytes - before; growth != tagOverhead+int64(len("http://vs")) {
			t.Errorf("grown by %d, not by the tag", growth)
		}
		if n := c.InvalidateTag("http://vs"); n != 1 {
			t.Errorf("%d have the new tag", n)
		}
	})
}

// TestInvalidateWhileRefreshing checks that a background refresh is repeated if an invalidation has discarded its result.
func TestInvalidateWhileRefreshing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin("one")
		call := o.call()
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Hour})
		serve(t, c, get(expandURL), call)
		o.answer = func(*http.Request) (*Response, error) {
			time.Sleep(time.Second)
			return jsonAnswer(200, "two"), nil
		}
		time.Sleep(2 * time.Minute)
		for range 3 {
			expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=-60") // the refresh is still running
		}
		synctest.Wait()
		c.InvalidateTag("http://example.org/other")
		time.Sleep(2 * time.Second)
		checkCalls(t, o, 2)
		expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=-62")
		time.Sleep(2 * time.Second)
		expect(t, serve(t, c, get(expandURL), call), "two", "hit; ttl=59")
	})
}

// TestFailuresAreShared checks that concurrent and successive requests share a failure.
func TestFailuresAreShared(t *testing.T) {
	tests := []struct {
		name   string
		answer Producer
		pause  time.Duration
		ttl    time.Duration
	}{
		{"an answer", responds(500, "failed"), time.Second, 0},
		{"an error", fails(&UnavailableError{Err: errDown}), time.Second, 0},
		{"an error with Retry-After", fails(&UnavailableError{Err: errDown, RetryAfter: 20 * time.Second}), 20 * time.Second, 0},
		{"Retry-After shorter than the TTL", responds(503, "failed", "Retry-After: 7"), 7 * time.Second, time.Hour},
		{"a year", fails(&UnavailableError{Err: errDown, RetryAfter: 8760 * time.Hour}), MaxRetryAfter, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &origin{answer: func(r *http.Request) (*Response, error) {
					time.Sleep(time.Millisecond)
					return tt.answer(r)
				}}
				c := New(Options{FailureTTL: tt.ttl})
				ask := func() {
					w := httptest.NewRecorder()
					err := c.Serve(w, get(expandURL), o.call())
					if got := fmt.Sprint(err, w.Body); got != "down" && got != "<nil> failed" && got != "down " {
						t.Errorf("got %q", got)
					}
				}
				var all sync.WaitGroup
				for range 200 {
					all.Go(ask)
				}
				all.Wait()
				checkCalls(t, o, 1)
				for range 10 {
					ask()
				}
				checkCalls(t, o, 1)
				time.Sleep(tt.pause)
				ask()
				checkCalls(t, o, 2)
			})
		})
	}
}

// TestStaleAfterFailure checks that the origin is retried after FailureTTL or Retry-After, with or without a stale response.
func TestStaleAfterFailure(t *testing.T) {
	down := fails(errDown)
	busy := responds(503, "busy", "Retry-After: 7")
	for name, test := range map[string]struct {
		answer Producer
		ttl    time.Duration
		pause  time.Duration
	}{
		"by default":       {down, 0, time.Second},
		"as it is set":     {down, 3 * time.Second, 3 * time.Second},
		"not at all":       {down, -1, 0},
		"as the server is": {busy, 0, 7 * time.Second},
	} {
		for window, options := range map[string]Options{"if there is an error": {StaleIfError: time.Hour}, "while asking": {StaleIfError: time.Hour, StaleWhileRevalidate: time.Hour}} {
			t.Run(name+", "+window, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					options.FailureTTL = test.ttl
					c, o := New(options), newOrigin("one", "Cache-Control: max-age=60")
					ask := func() {
						if w := serve(t, c, get(expandURL), o.call()); w.Body.String() != "one" {
							t.Errorf("got %s", w.Body)
						}
						synctest.Wait()
					}
					ask()
					time.Sleep(2 * time.Minute)
					o.answer = test.answer
					ask()
					checkCalls(t, o, 2)
					if test.pause > 0 {
						time.Sleep(test.pause - time.Millisecond)
						ask()
						checkCalls(t, o, 2)
						time.Sleep(time.Millisecond)
					}
					ask()
					checkCalls(t, o, 3)
				})
			})
		}
	}
}

// TestRetryAfterIsRemainingTime checks that later clients get the remaining time as Retry-After.
func TestRetryAfterIsRemainingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: responds(503, "busy", "Retry-After: 30")}
		c := New(Options{})
		call := o.call()
		serve(t, c, get(expandURL), call)
		time.Sleep(12 * time.Second)
		if got := serve(t, c, get(expandURL), call).Header().Get("Retry-After"); got != "18" {
			t.Errorf("Retry-After = %q, want 18", got)
		}
	})
}

// TestInvalidationClearsFailures checks that an invalidation also clears stored failures.
func TestInvalidationClearsFailures(t *testing.T) {
	o := &origin{answer: responds(503, "busy", "Retry-After: 30")}
	c := New(Options{})
	call := o.call()
	serve(t, c, get(expandURL), call)
	c.InvalidateTag("http://example.org/vs")
	serve(t, c, get(expandURL), call)
	checkCalls(t, o, 2)
}

// TestFailuresAreBounded checks that the number of stored failures is limited.
func TestFailuresAreBounded(t *testing.T) {
	o := &origin{answer: fails(&UnavailableError{Err: errDown})}
	c := New(Options{FailureTTL: time.Hour})
	for i := range maxFailures + 100 {
		if err := c.Serve(httptest.NewRecorder(), get(fmt.Sprint(expandURL, i)), o.call()); err == nil {
			t.Fatal("no error")
		}
	}
	if n, _ := c.store.currentGeneration().failures.byKey.Size(); n != maxFailures {
		t.Errorf("%d failures are remembered, want %d", n, maxFailures)
	}
	large := &origin{answer: responds(500, strings.Repeat("x", maxFailureBody+1))}
	for range 2 {
		serve(t, c, get(expandURL+"large"), &Call{Scheme: plain, Produce: large.produce})
	}
	checkCalls(t, large, 2)
}

// TestRetryAfter checks how values of Retry-After are parsed.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "300": MaxRetryAfter, "301": MaxRetryAfter, "2147483648": MaxRetryAfter, "99999999999999999999": MaxRetryAfter,
		"-1": 0, "1.5": 0, "soon": 0, "Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
		"Sat, 02 Jan 2126 03:04:05 GMT": MaxRetryAfter, "Friday, 02-Jan-26 03:04:35 GMT": 30 * time.Second,
	} {
		if got := ParseRetryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}

// tagged returns a producer of responses with the given tags.
func tagged(tags ...string) Producer {
	return func(*http.Request) (*Response, error) {
		a := jsonAnswer(200, "one")
		a.Tags = tags
		return a, nil
	}
}

func TestInvalidate(t *testing.T) {
	answers := map[string][]string{
		"a":        {"http://vs/a", "http://cs"},
		"a1":       {"http://vs/a|1", "http://cs|2026"},
		"a2":       {"http://vs/a|2"},
		"b":        {"http://vs/b"},
		"implicit": {"http://cs?fhir_vs=isa/x"},
		"none":     {},
		"unknown":  nil,
	}
	system := func(s string) func(*Cache) int { return func(c *Cache) int { return c.InvalidateSystem(s) } }
	tag := func(s string) func(*Cache) int { return func(c *Cache) int { return c.InvalidateTag(s) } }
	for name, test := range map[string]struct {
		invalidate func(*Cache) int
		removed    []string
	}{
		"value set":              {tag("http://vs/a"), []string{"a", "a1", "a2", "unknown"}},
		"version of a value set": {tag("http://vs/a|1"), []string{"a", "a1", "unknown"}},
		"not in use":             {tag("http://vs/c"), []string{"unknown"}},
		"prefix of a URL":        {tag("http://vs"), []string{"unknown"}},
		"code system as tag":     {tag("http://cs"), []string{"a", "a1", "unknown"}},
		"code system":            {system("http://cs"), []string{"a", "a1", "implicit", "unknown"}},
		"version of a system":    {system("http://cs|2025"), []string{"a", "implicit", "unknown"}},
		"all":                    {(*Cache).Purge, []string{"a", "a1", "a2", "b", "implicit", "none", "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{})
			for q, tags := range answers {
				serve(t, c, get("http://h/p?q="+q), &Call{Scheme: plain, Produce: tagged(tags...)})
			}
			if n := test.invalidate(c); n != len(test.removed) {
				t.Errorf("removed %d, want %d", n, len(test.removed))
			}
			for _, q := range test.removed {
				o := newOrigin("two")
				serve(t, c, get("http://h/p?q="+q), o.call())
				checkCalls(t, o, 1)
			}
			if n := c.Stats().Entries; n != int64(len(answers)) {
				t.Errorf("%d left and made again, want %d", n, len(answers))
			}
			if err := c.store.check(); err != nil {
				t.Error(err)
			}
			c.Purge()
			if s := c.store; len(s.tags) != 0 || len(s.aliases) != 0 {
				t.Errorf("left in the indexes: %v %v", s.tags, s.aliases)
			}
		})
	}
}

// TestInvalidateDuringRequest checks that a response that may be based on outdated definitions is neither stored nor sent to
// requests made after the change.
func TestInvalidateDuringRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version atomic.Int64
		o := &origin{answer: func(*http.Request) (*Response, error) {
			now := version.Load()
			time.Sleep(time.Second)
			return jsonAnswer(200, fmt.Sprint("v", now)), nil
		}}
		call := o.call()
		c := New(Options{})
		var all sync.WaitGroup
		all.Go(func() { expect(t, serve(t, c, get(expandURL), call), "v0", "fwd=miss; fwd-status=200") })
		time.Sleep(100 * time.Millisecond)
		version.Store(1)
		c.InvalidateTag("http://example.org/vs")
		all.Go(func() { expect(t, serve(t, c, get(expandURL), call), "v1", "fwd=miss; fwd-status=200; stored") })
		all.Wait()
		expect(t, serve(t, c, get(expandURL), call), "v1", "hit; ttl=3600")
	})
}

// TestInvalidationRace repeatedly changes a definition and invalidates it during concurrent requests. A request that starts
// after an invalidation must never get an older response.
func TestInvalidationRace(t *testing.T) {
	var version, announced atomic.Int64
	c := New(Options{TTL: time.Nanosecond * 1000, StaleWhileRevalidate: time.Hour}) // the short TTL also causes background refreshes
	call := &Call{Scheme: plain, Produce: func(*http.Request) (*Response, error) {
		a := jsonAnswer(200, fmt.Sprint(version.Load()))
		a.Tags = []string{"http://vs"}
		return a, nil
	}}
	var all sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				least := announced.Load()
				w := httptest.NewRecorder()
				if err := c.Serve(w, get(fmt.Sprint(expandURL, "&filter=", rand.IntN(3))), call); err != nil {
					t.Error(err)
					return
				}
				var got int64
				if _, err := fmt.Sscan(w.Body.String(), &got); err != nil || got < least {
					t.Errorf("requested after version %d was announced, got %q", least, w.Body)
					return
				}
			}
		})
	}
	for v := range int64(2000) {
		version.Store(v)
		c.InvalidateTag("http://vs")
		announced.Store(v)
	}
	close(done)
	all.Wait()
}

// combination contains everything that a response may depend on. Each combination has a different response.
type combination struct {
	varyBy                                        VaryBy
	user, client, token, format, language, filter string
	body                                          string
}

// wants returns the expected response. It contains only the parts of the combination that the response may depend on.
func (x combination) wants() string {
	who := "all"
	switch {
	case x.varyBy == VaryByNone:
	case x.user != "" && x.varyBy == VaryByUser, x.user != "" && x.client == "":
		who = "user " + x.user
	case x.client != "":
		who = "client " + x.client
	case x.token != "":
		who = "token " + x.token
	}
	return fmt.Sprintf("%s|%s|%s|%s|%s|%s", who, x.format, x.language, x.filter, x.body, padding)
}

// padding makes responses large enough to compress.
var padding = strings.Repeat("padding ", 200)

// request returns the request for a combination, in one of several equivalent notations chosen at random.
func (x combination) request(random *rand.Rand) *http.Request {
	method := http.MethodGet
	if x.body != "" {
		method = http.MethodPost
	} else if random.IntN(5) == 0 {
		method = http.MethodHead
	}
	parameters := []string{"filter=" + x.filter, "url=http://vs"}
	r := newRequest(method, "http://h/fhir/ValueSet/$expand")
	if x.format == "xml" && random.IntN(2) == 0 || x.format == "json" && random.IntN(3) == 0 {
		parameters = append(parameters, "_format="+x.format)
		r.Header.Set("Accept", "application/fhir+json")
	} else {
		r.Header.Set("Accept", "application/fhir+"+x.format)
	}
	random.Shuffle(len(parameters), func(i, j int) { parameters[i], parameters[j] = parameters[j], parameters[i] })
	r.URL.RawQuery = strings.Join(parameters, "&")
	if x.language != "" {
		r.Header.Set("Accept-Language", x.language)
	}
	if x.token != "" {
		r.Header.Set("Authorization", x.token)
	}
	r.Header.Set("Accept-Encoding", []string{"", "gzip", "zstd", "gzip, zstd;q=0.5", "identity", "*;q=0, gzip"}[random.IntN(6)])
	r.Header.Set("X-Forwarded-For", fmt.Sprint(random.Int()))
	return r
}

// TestResponsesMatchRequests runs many concurrent requests and invalidations. Each response must match its request exactly.
func TestResponsesMatchRequests(t *testing.T) {
	c := New(Options{MaxSize: 300 << 10, TTL: 20 * time.Millisecond, StaleWhileRevalidate: time.Minute, StaleIfError: time.Minute})
	pick := func(random *rand.Rand, of ...string) string { return of[random.IntN(len(of))] }
	one := func(random *rand.Rand) error {
		x := combination{
			varyBy: VaryBy(random.IntN(3)), user: pick(random, "", "a", "b", "ab"), client: pick(random, "", "a", "b"), token: pick(random, "", "a", "b"),
			format: pick(random, "json", "xml"), language: pick(random, "", "de", "de,en;q=0.5"), filter: pick(random, "a", "b", "a%26b"),
		}
		if random.IntN(4) == 0 {
			x.body = pick(random, "a", "b")
		}
		r := x.request(random)
		call := &Call{Scheme: &Scheme{VaryBy: x.varyBy}, Principal: Principal{User: x.user, Client: x.client}, Body: []byte(x.body)}
		private := x.varyBy != VaryByNone && random.IntN(10) == 0
		call.Produce = func(r *http.Request) (*Response, error) {
			// The producer must not use any part of this request that is missing from the key.
			_, format, _ := strings.Cut(r.Header.Get("Accept"), "+")
			y := x
			y.format, y.language, y.filter = format, r.Header.Get("Accept-Language"), strings.ReplaceAll(r.URL.Query().Get("filter"), "&", "%26")
			if rand.IntN(20) == 0 {
				return nil, errDown
			}
			a := jsonAnswer(200, y.wants(), "Content-Type: application/fhir+"+format)
			if private {
				a.Header.Set("Cache-Control", "no-store")
			}
			a.Tags = []string{x.filter}
			return a, nil
		}
		w := httptest.NewRecorder()
		if err := c.Serve(w, r, call); err != nil {
			return nil
		}
		if !strings.HasSuffix(w.Header().Get("Content-Type"), x.format) {
			return fmt.Errorf("%+v has Content-Type %s", x, w.Header().Get("Content-Type"))
		}
		if w.Header().Get("Content-Length") == "" {
			return fmt.Errorf("%+v: %v", x, w.Header())
		}
		if r.Method == http.MethodHead {
			return nil
		}
		if got := decode(t, w.Header().Get("Content-Encoding"), w.Body.Bytes()); got != x.wants() {
			return fmt.Errorf("%+v got %.60q from %s", x, got, w.Header().Get("Cache-Status"))
		}
		return nil
	}
	var all sync.WaitGroup
	var invalidated atomic.Int64
	for seed := range uint64(8) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, 7))
			for i := range 3000 {
				if err := one(random); err != nil {
					t.Error(err)
					return
				}
				if i%200 == 0 {
					invalidated.Add(int64(c.InvalidateTag("a")))
				}
			}
		})
	}
	all.Wait()
	stats := c.Stats()
	t.Logf("%+v", stats)
	if stats.Hits == 0 || stats.Misses == 0 || c.store.evicted+c.store.rejected == 0 || invalidated.Load() == 0 {
		t.Errorf("not everything happened: %+v", stats)
	}
	if err := c.store.check(); err != nil {
		t.Error(err)
	}
}

// origin is a producer that counts calls.
type origin struct {
	calls  atomic.Int64
	answer Producer
}

func (o *origin) produce(r *http.Request) (*Response, error) {
	o.calls.Add(1)
	return o.answer(r)
}

// call returns a call of the producer that may be shared by all users.
func (o *origin) call() *Call { return &Call{Scheme: plain, Produce: o.produce} }

// newOrigin returns an origin that always responds with body. Headers have the form "Name: value".
func newOrigin(body string, headers ...string) *origin {
	return &origin{answer: responds(http.StatusOK, body, headers...)}
}

// responds returns a producer of a fixed response. Headers have the form "Name: value".
func responds(status int, body string, headers ...string) Producer {
	return func(*http.Request) (*Response, error) { return jsonAnswer(status, body, headers...), nil }
}

// fails returns a producer that always returns err.
func fails(err error) Producer {
	return func(*http.Request) (*Response, error) { return nil, err }
}

// jsonAnswer returns a JSON response. Headers have the form "Name: value".
func jsonAnswer(status int, body string, headers ...string) *Response {
	header := http.Header{"Content-Type": {"application/fhir+json"}}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	return &Response{Status: status, Header: header, Body: []byte(body), Tags: []string{}}
}

const expandURL = "http://fhir.example.org/fhir/R4/ValueSet/$expand?url=http://example.org/vs"

// get returns a GET request. Headers have the form "Name: value".
func get(url string, headers ...string) *http.Request {
	return newRequest(http.MethodGet, url, headers...)
}

// newRequest returns a request without a body. Headers have the form "Name: value".
func newRequest(method, url string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, url, nil)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// serve sends a request through a cache and fails the test on errors.
func serve(t *testing.T, c *Cache, r *http.Request, call *Call) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	if err := c.Serve(w, r, call); err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return w
}

// expect checks the body and the Cache-Status of a response.
func expect(t *testing.T, w *httptest.ResponseRecorder, body, status string) {
	t.Helper()
	if got, _ := io.ReadAll(w.Body); string(got) != body {
		t.Errorf("body = %.60q, want %.60q", got, body)
	}
	if got := w.Header().Get("Cache-Status"); got != cacheName+"; "+status {
		t.Errorf("Cache-Status = %q, want %q", got, cacheName+"; "+status)
	}
}

// checkCalls checks how often an origin was called.
func checkCalls(t *testing.T, o *origin, want int64) {
	t.Helper()
	if got := o.calls.Load(); got != want {
		t.Errorf("the producer was called %d times, want %d", got, want)
	}
}

// plain is the scheme of responses shared by all users.
var plain = &Scheme{VaryBy: VaryByNone}

// check returns an error if the data structures of a store are inconsistent.
func (s *store) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed, aliases := 0, 0
	for i := range s.segments {
		var bytes int64
		for element := s.segments[i].Front(); element != nil; element = element.Next() {
			e := element.Value.(*entry)
			listed++
			aliases += len(e.position.aliases)
			size := e.cost()
			for _, alias := range e.position.aliases {
				size += int64(len(alias)) + aliasOverhead
				if s.aliases[alias] != e {
					return fmt.Errorf("alias %q finds another entry", alias)
				}
			}
			if size != e.position.size || s.entries[e.key.sum] != e || e.position.segment != i {
				return fmt.Errorf("entry %v: size %d, kept as %d", e.key, size, e.position.size)
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
