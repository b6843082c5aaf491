package cache

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("down")

// TestLifetime follows one answer from its making to its end.
func TestLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := says("one")
		call := &Call{Scheme: plain, Produce: o.produce}
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Minute, StaleIfError: time.Hour})
		expect(t, serve(t, c, get(expandURL), call), "one", "fwd=miss; fwd-status=200; stored")
		time.Sleep(20 * time.Second)
		w := serve(t, c, get(expandURL), call)
		expect(t, w, "one", "hit; ttl=40")
		if age := w.Header().Get("Age"); age != "20" {
			t.Errorf("Age = %s, want 20", age)
		}
		asked(t, o, 1)

		o.answer = says("two").answer
		time.Sleep(50 * time.Second)
		expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=-10")
		synctest.Wait()
		asked(t, o, 2)
		expect(t, serve(t, c, get(expandURL), call), "two", "hit; ttl=60")

		o.answer = func(*http.Request) (*Answer, error) { return nil, errDown }
		time.Sleep(3 * time.Minute)
		expect(t, serve(t, c, get(expandURL), call), "two", "fwd=stale; ttl=-120; detail=stale-if-error")
		asked(t, o, 3)
		expect(t, serve(t, c, get(expandURL), call), "two", "hit; ttl=-120") // it has just failed
		asked(t, o, 3)
		time.Sleep(11 * time.Second)
		serve(t, c, get(expandURL), call)
		asked(t, o, 4)

		time.Sleep(time.Hour)
		if err := c.Serve(httptest.NewRecorder(), get(expandURL), call); !errors.Is(err, errDown) {
			t.Errorf("after the end: %v, want the failure", err)
		}
	})
}

// TestBackgroundFailure makes sure that a server in trouble is not asked at each request.
func TestBackgroundFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := says("one")
		call := &Call{Scheme: plain, Produce: o.produce}
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Hour})
		serve(t, c, get(expandURL), call)
		o.answer = func(*http.Request) (*Answer, error) { return answerOf(http.StatusBadGateway, "{}"), nil }
		time.Sleep(2 * time.Minute)
		for range 10 {
			expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=-60")
			synctest.Wait()
		}
		asked(t, o, 2)
		o.answer = says("two").answer
		time.Sleep(11 * time.Second)
		serve(t, c, get(expandURL), call)
		synctest.Wait()
		expect(t, serve(t, c, get(expandURL), call), "two", "hit; ttl=60")
	})
}

// TestRefusedInBackground makes sure that an answer does not outlive what it rests on.
func TestRefusedInBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := says("one")
		call := &Call{Scheme: plain, Produce: o.produce}
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Hour, StaleIfError: time.Hour})
		serve(t, c, get(expandURL), call)
		o.answer = func(*http.Request) (*Answer, error) { return answerOf(http.StatusForbidden, "no"), nil }
		time.Sleep(2 * time.Minute)
		serve(t, c, get(expandURL), call)
		synctest.Wait()
		expect(t, serve(t, c, get(expandURL), call), "no", "fwd=miss; fwd-status=403")
	})
}

func TestWhatIsKept(t *testing.T) {
	user := &Scheme{}
	alice := Principal{Issuer: "https://as.example", User: "alice"}
	for name, test := range map[string]struct {
		status  int
		scheme  *Scheme
		headers []string
		lasts   time.Duration // 0: not at all
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
				o := &origin{answer: func(*http.Request) (*Answer, error) { return answerOf(test.status, "body", test.headers...), nil }}
				call := &Call{Scheme: test.scheme, Principal: alice, Produce: o.produce}
				c := New(Options{TTL: time.Minute})
				serve(t, c, get(expandURL), call)
				if test.lasts > 0 {
					time.Sleep(test.lasts - time.Nanosecond)
					w := serve(t, c, get(expandURL), call)
					asked(t, o, 1)
					if w.Code != test.status || w.Body.String() != "body" {
						t.Errorf("kept as %d %q", w.Code, w.Body)
					}
					time.Sleep(time.Nanosecond)
				}
				serve(t, c, get(expandURL), call)
				asked(t, o, 2)
			})
		})
	}
}

// TestNegative makes sure that an answer for lack of a better one is kept as shortly as one that there is none.
func TestNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: func(*http.Request) (*Answer, error) {
			a := answerOf(http.StatusOK, "body")
			a.Negative = true
			return a, nil
		}}
		call := &Call{Scheme: plain, Produce: o.produce}
		c := New(Options{TTL: time.Minute, NegativeTTL: 5 * time.Second, StaleWhileRevalidate: time.Hour})
		serve(t, c, get(expandURL), call)
		time.Sleep(5*time.Second - time.Nanosecond)
		serve(t, c, get(expandURL), call)
		asked(t, o, 1)
		time.Sleep(time.Nanosecond)
		o.answer = func(*http.Request) (*Answer, error) { return answerOf(http.StatusOK, "better"), nil }
		if w := serve(t, c, get(expandURL), call); w.Body.String() != "better" {
			t.Errorf("got %s", w.Body)
		}
	})
}

// TestStaleBounds makes sure that an answer is no longer used than it allows itself.
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
				o := says("one", test.headers...)
				call := &Call{Scheme: plain, Produce: o.produce}
				c := New(Options{TTL: time.Minute, StaleWhileRevalidate: test.swr, StaleIfError: test.sie})
				serve(t, c, get(expandURL), call)
				time.Sleep(2 * time.Minute)
				o.answer = func(*http.Request) (*Answer, error) { return nil, errDown }
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
		o := says("one", `ETag: "v1"`, "Last-Modified: Fri, 31 Dec 1999 00:00:00 GMT", "Content-Location: /fhir/R4/ValueSet/1")
		call := &Call{Scheme: plain, Produce: o.produce}
		c := New(Options{TTL: time.Minute})
		tag := serve(t, c, get(expandURL), call).Header().Get("Etag")
		var sent http.Header
		o.answer = func(r *http.Request) (*Answer, error) {
			sent = r.Header
			return &Answer{Status: http.StatusNotModified, Header: http.Header{"Etag": {`"v2"`}, "Cache-Control": {"max-age=20"}}}, nil
		}
		time.Sleep(90 * time.Second)
		w := serve(t, c, get(expandURL), call)
		expect(t, w, "one", "fwd=stale; fwd-status=304; stored")
		if sent.Get("If-None-Match") != `"v1"` || sent.Get("If-Modified-Since") == "" {
			t.Errorf("asked with %v", sent)
		}
		if w.Header().Get("Etag") != tag || w.Header().Get("Content-Location") != "/fhir/R4/ValueSet/1" {
			t.Errorf("header = %v", w.Header())
		}
		expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=20")
		time.Sleep(20 * time.Second)
		expect(t, serve(t, c, get(expandURL), call), "one", "fwd=stale; fwd-status=304; stored")
		if sent.Get("If-None-Match") != `"v2"` {
			t.Errorf("asked with %v, want the newer tag", sent)
		}
		if n := c.Stats().Entries; n != 1 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestUnaskedNotModified(t *testing.T) {
	o := &origin{answer: func(*http.Request) (*Answer, error) { return &Answer{Status: http.StatusNotModified}, nil }}
	err := New(Options{}).Serve(httptest.NewRecorder(), get(expandURL), &Call{Scheme: plain, Produce: o.produce})
	if !errors.Is(err, errUnasked) {
		t.Errorf("err = %v, want errUnasked", err)
	}
}

func TestCutOffAnswer(t *testing.T) {
	for _, header := range []string{"Content-Length: 5", "Content-Encoding: br"} {
		o := says("body", header)
		c := New(Options{})
		if err := c.Serve(httptest.NewRecorder(), get(expandURL), &Call{Scheme: plain, Produce: o.produce}); !errors.Is(err, errNotWhole) {
			t.Errorf("%s: err = %v, want errNotWhole", header, err)
		}
		if c.Stats().Entries != 0 {
			t.Errorf("%s: it was kept", header)
		}
	}
}

func TestWishes(t *testing.T) {
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
		"only, but younger": {"only-if-cached, max-age=5", "", 1, ErrNotKept},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := says("one")
				call := &Call{Scheme: plain, Produce: o.produce}
				c := New(Options{})
				serve(t, c, get(expandURL), call)
				time.Sleep(10 * time.Second)
				w := httptest.NewRecorder()
				err := c.Serve(w, get(expandURL, "Cache-Control: "+test.wish), call)
				asked(t, o, test.calls)
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
	if !errors.Is(err, ErrNotKept) {
		t.Errorf("only-if-cached of nothing: %v", err)
	}
}

// TestAge makes sure that an answer which says how old it is, and not how long it is good, is as old as that (RFC 9111
// §5.1), and kept for as long as others.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := says("one", "Age: 7200")
		c := New(Options{TTL: time.Minute})
		call := &Call{Scheme: plain, Produce: o.produce}
		serve(t, c, get(expandURL), call)
		time.Sleep(10 * time.Second)
		w := serve(t, c, get(expandURL), call)
		if w.Header().Get("Age") != "7210" {
			t.Errorf("Age: %s", w.Header().Get("Age"))
		}
		expect(t, w, "one", "hit; ttl=50")
		time.Sleep(time.Minute)
		serve(t, c, get(expandURL), call)
		asked(t, o, 2)
	})
}

// TestEntityTag makes sure that a producer's own name for its bytes is kept, with each coding's suffix, when it says that
// they are still the same, and over a restart.
func TestEntityTag(t *testing.T) {
	o := &origin{answer: func(r *http.Request) (*Answer, error) {
		if r.Header.Get("If-None-Match") == `"made"` {
			return &Answer{Status: http.StatusNotModified, Header: make(http.Header)}, nil
		}
		a := answerOf(http.StatusOK, strings.Repeat("one", 1000), `Etag: "made"`)
		a.EntityTag = "made"
		return a, nil
	}}
	call := &Call{Scheme: plain, Produce: o.produce}
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
	asked(t, o, 2)
}

// TestBypassAsksTheSame makes sure that a request which is answered past the cache is put to the producer as others are,
// and that HEAD tells how long the body of GET would be (RFC 9110 §8.6).
func TestBypassAsksTheSame(t *testing.T) {
	for name, query := range map[string]string{"understood": "", "not understood": "&a;b"} {
		o := &origin{answer: func(r *http.Request) (*Answer, error) {
			if r.Method != http.MethodGet || name == "understood" && (r.Header.Get("Prefer") != "" || r.Header.Get("Accept") != "application/fhir+json") {
				t.Errorf("%s: %s %v", name, r.Method, r.Header)
			}
			return answerOf(http.StatusOK, "one"), nil
		}}
		r := with(http.MethodHead, expandURL+query, "Cache-Control: no-store", "Prefer: respond-async")
		w := serve(t, New(Options{}), r, &Call{Scheme: plain, Produce: o.produce})
		if w.Header().Get("Content-Length") != "3" || w.Body.Len() != 0 {
			t.Errorf("%s: %v, %d bytes", name, w.Header(), w.Body.Len())
		}
	}
}

// TestRelayedToOne makes sure that no shared cache keeps what an authorised request got, whatever its origin says of
// it (RFC 9111 §3.5).
func TestRelayedToOne(t *testing.T) {
	for said, want := range map[string]string{"": "private, no-cache", "public, s-maxage=60": "private, no-cache", "public, no-store": "private, no-store"} {
		for _, wish := range []string{"no-store", "no-cache"} {
			call := &Call{Scheme: plain, Produce: says("one", "Cache-Control: "+said, "Set-Cookie: a=b").produce}
			for authorization, want := range map[string]string{"Bearer a": want, "": said} {
				r := get(expandURL, "Cache-Control: "+wish)
				if authorization != "" {
					r.Header.Set("Authorization", authorization)
				}
				if got := serve(t, New(Options{}), r, call).Header().Get("Cache-Control"); got != want {
					t.Errorf("%q to %q: %q, want %q", said, authorization, got, want)
				}
			}
		}
	}
}

// TestNotUnderstood leaves it to the producer to say what is wrong with a request.
func TestNotUnderstood(t *testing.T) {
	for _, query := range []string{"&filter=%zz", "&a;b", "&_format=yaml", "&_format=json&_format=xml", "&_pretty=true&_pretty=false"} {
		o := says("one")
		c := New(Options{})
		for range 2 {
			r := get(expandURL)
			r.URL.RawQuery += query
			expect(t, serve(t, c, r, &Call{Scheme: plain, Produce: o.produce}), "one", "fwd=bypass; detail=request")
		}
		asked(t, o, 2)
	}
	o := says("one")
	c := New(Options{})
	expect(t, serve(t, c, with(http.MethodPut, expandURL), &Call{Scheme: plain, Produce: o.produce}), "one", "fwd=bypass")
	if c.Stats().Entries != 0 {
		t.Errorf("PUT: %+v", c.Stats())
	}
}

// TestBypassFails makes sure that nothing is written then.
func TestBypassFails(t *testing.T) {
	w := httptest.NewRecorder()
	o := &origin{answer: func(*http.Request) (*Answer, error) { return nil, errDown }}
	err := New(Options{}).Serve(w, get(expandURL, "Cache-Control: no-store"), &Call{Scheme: plain, Produce: o.produce})
	if !errors.Is(err, errDown) || len(w.Header()) > 0 {
		t.Errorf("%v, %v", err, w.Header())
	}
}

// TestRelayed makes sure that an answer that is not kept reaches who asked as it is, but for what is about
// another connection.
func TestRelayed(t *testing.T) {
	o := &origin{answer: func(*http.Request) (*Answer, error) {
		return answerOf(http.StatusUnauthorized, "{}", "Www-Authenticate: Bearer", "Retry-After: 5", "Vary: Origin", "Connection: close", "Content-Length: 2", "Cache-Status: other; hit"), nil
	}}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w := serve(t, New(Options{}), with(method, expandURL), &Call{Scheme: plain, Produce: o.produce})
		h := w.Header()
		if w.Code != 401 || h.Get("Www-Authenticate") != "Bearer" || h.Get("Retry-After") != "5" || h.Get("Vary") != "Origin" || h.Get("Connection") != "" {
			t.Errorf("%s: %d, %v", method, w.Code, h)
		}
		if h.Get("Content-Length") != "2" || (w.Body.Len() == 2) != (method == http.MethodGet) || h.Get("Cache-Status") != "caddy-fhir; fwd=miss; fwd-status=401" {
			t.Errorf("%s: %d bytes, %v", method, w.Body.Len(), h)
		}
	}
}

// TestFHIRVersion makes sure that the producer is asked for the version that the key holds.
func TestFHIRVersion(t *testing.T) {
	c := New(Options{})
	o := &origin{answer: func(r *http.Request) (*Answer, error) { return answerOf(200, r.Header.Get("Accept")), nil }}
	for _, r := range []*http.Request{
		get(expandURL, "Accept: application/fhir+json; fhirVersion=5.0"),
		get(expandURL+"&_format=application/fhir%2bjson%3bfhirVersion%3d5.0", "Accept: */*"),
	} {
		w := serve(t, c, r, &Call{Scheme: plain, Produce: o.produce})
		if w.Body.String() != "application/fhir+json; fhirversion=5.0" {
			t.Errorf("asked for %q", w.Body)
		}
	}
	asked(t, o, 1)
}

// TestRevalidatedAnswer makes sure that a confirmed answer keeps its compressed forms, and gets its new tags.
func TestRevalidatedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := says("one", `ETag: "v1"`)
		call := &Call{Scheme: plain, Produce: o.produce}
		c := New(Options{TTL: time.Minute})
		serve(t, c, get(expandURL), call)
		serve(t, c, get(expandURL, "Accept-Encoding: gzip, identity;q=0"), call)
		o.answer = func(*http.Request) (*Answer, error) {
			return &Answer{Status: http.StatusNotModified, Header: http.Header{}, Tags: []string{"http://vs"}}, nil
		}
		time.Sleep(119 * time.Second)
		before := c.Stats().Bytes
		serve(t, c, get(expandURL), call)
		if grown := c.Stats().Bytes - before; grown != tagOverhead+int64(len("http://vs")) {
			t.Errorf("grown by %d, not by the tag", grown)
		}
		if n := c.InvalidateTag("http://vs"); n != 1 {
			t.Errorf("%d have the new tag", n)
		}
	})
}

// TestInvalidateWhileRefreshing makes sure that a stale answer whose refresh came to nothing is refreshed again.
func TestInvalidateWhileRefreshing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := says("one")
		call := &Call{Scheme: plain, Produce: o.produce}
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Hour})
		serve(t, c, get(expandURL), call)
		o.answer = func(*http.Request) (*Answer, error) {
			time.Sleep(time.Second)
			return answerOf(200, "two"), nil
		}
		time.Sleep(2 * time.Minute)
		for range 3 {
			expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=-60") // while it is being refreshed
		}
		synctest.Wait()
		c.InvalidateTag("http://example.org/other")
		time.Sleep(2 * time.Second)
		asked(t, o, 2)
		expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=-62")
		time.Sleep(2 * time.Second)
		expect(t, serve(t, c, get(expandURL), call), "two", "hit; ttl=59")
	})
}
