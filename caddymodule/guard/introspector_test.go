package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

const testEndpoint = "https://idp.example/introspect"

// transport answers requests in process, because a synctest bubble must not contain sockets.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// respondWith returns a transport that always returns the same response.
func respondWith(body string) transport {
	return func(*http.Request) (*http.Response, error) { return jsonResponse(body), nil }
}

// jsonResponse returns a response with a JSON body.
func jsonResponse(body string) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json;charset=UTF-8"}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

// testIntrospector returns an introspector with a transport and a token cache.
func testIntrospector(rt transport) *Introspector {
	return &Introspector{
		Endpoint: testEndpoint, ClientID: "guard", ClientSecret: "secret",
		AcceptsAnyAudience: true, Transport: rt, Cache: NewTokenCache(100),
	}
}

// countRequests wraps a transport to count its requests.
func countRequests(rt transport) (transport, *atomic.Int64) {
	count := new(atomic.Int64)
	return func(r *http.Request) (*http.Response, error) {
		count.Add(1)
		return rt(r)
	}, count
}

// claimTime returns a time relative to the bubble's clock, as a claim.
func claimTime(d time.Duration) int64 { return time.Now().Add(d).Unix() }

// An active token is introspected again after a minute or when it expires.
func TestIntrospectorLifetimes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		expires  time.Duration
		lifetime time.Duration // configured CacheLifetime
		want     time.Duration // expected time in the cache
	}{
		{"default", time.Hour, 0, time.Minute},
		{"no exp", 0, 0, time.Minute},
		{"set", time.Hour, 5 * time.Minute, 5 * time.Minute},
		{"exp before", 20 * time.Second, 0, 20 * time.Second},
		{"exp within the leeway", -10 * time.Second, 0, 0},
		{"none", time.Hour, -1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := `{"active":true,"sub":"bob"}`
				if test.expires != 0 {
					body = fmt.Sprintf(`{"active":true,"sub":"bob","exp":%d}`, claimTime(test.expires))
				}
				rt, count := countRequests(respondWith(body))
				i := testIntrospector(rt)
				i.CacheLifetime = test.lifetime
				wantRequests := func(want int64) {
					t.Helper()
					if _, err := i.Verify(t.Context(), "opaque"); err != nil {
						t.Fatal(err)
					}
					if n := count.Load(); n != want {
						t.Errorf("%d requests, want %d", n, want)
					}
				}
				wantRequests(1)
				if test.want > 0 {
					time.Sleep(test.want - time.Second)
					wantRequests(1)
					time.Sleep(2 * time.Second)
				}
				wantRequests(2)
			})
		})
	}
}

// The lifetime of a cache entry for an active token begins when the request is sent, not when the response arrives.
func TestIntrospectorSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, count := countRequests(func(*http.Request) (*http.Response, error) {
			time.Sleep(9 * time.Second)
			return jsonResponse(`{"active":true,"sub":"bob"}`), nil
		})
		i := testIntrospector(rt)
		for range 2 {
			if _, err := i.Verify(t.Context(), "opaque"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(52 * time.Second)
		}
		if count.Load() != 2 {
			t.Errorf("%d requests", count.Load())
		}
	})
}

// Even if a rejected token is sent repeatedly, it causes at most one request in ten seconds.
func TestIntrospectorRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, body string
		want       error
	}{
		{"inactive", `{"active":false}`, errInactiveToken},
		{"wrong audience", `{"active":true,"sub":"bob","aud":"other"}`, errUnexpectedAudience},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, count := countRequests(respondWith(test.body))
				i := testIntrospector(rt)
				i.Audience, i.AcceptsAnyAudience = testAudience, false
				for range 100 {
					wantRefused(t, i, "opaque", test.want)
				}
				time.Sleep(9 * time.Second)
				wantRefused(t, i, "opaque", test.want)
				if count.Load() != 1 {
					t.Errorf("%d requests", count.Load())
				}
				time.Sleep(2 * time.Second)
				wantRefused(t, i, "opaque", test.want)
				wantRefused(t, i, "opaquE", test.want)
				if count.Load() != 3 {
					t.Errorf("%d requests", count.Load())
				}
			})
		})
	}
}

// Rejected tokens have a separate cache, so that a flood of them evicts no active token.
func TestIntrospectorFlood(t *testing.T) {
	t.Parallel()
	rt, count := countRequests(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if strings.Contains(string(body), "token=valid") {
			return jsonResponse(`{"active":true,"sub":"bob"}`), err
		}
		return jsonResponse(`{"active":false}`), err
	})
	i := testIntrospector(rt)
	i.Cache = NewTokenCache(2)
	if _, err := i.Verify(t.Context(), "valid"); err != nil {
		t.Fatal(err)
	}
	for n := range 3 * rejectionCacheSize {
		wantRefused(t, i, fmt.Sprint(n), errInactiveToken)
	}
	before := count.Load()
	if _, err := i.Verify(t.Context(), "valid"); err != nil || count.Load() != before {
		t.Errorf("%d more requests, %v", count.Load()-before, err)
	}
	if n, _ := i.rejections.tokens.Size(); n > rejectionCacheSize {
		t.Errorf("%d are remembered", n)
	}
}

// Cached responses are checked like new ones, by their claims and the clock (GO-2022-0406).
func TestIntrospectorChecksRemembered(t *testing.T) {
	t.Parallel()
	now := time.Now()
	i := testIntrospector(respondWith(fmt.Sprintf(`{"active":true,"sub":"bob","exp":%d}`, now.Add(40*time.Second).Unix())))
	i.Now = func() time.Time { return now }
	if _, err := i.Verify(t.Context(), "opaque"); err != nil {
		t.Fatal(err)
	}
	if _, ok := i.loadCached(i.cacheKey("opaque")); !ok {
		t.Fatal("not remembered")
	}
	now = now.Add(40*time.Second + defaultLeeway)
	wantRefused(t, i, "opaque", ErrExpired)
}

// A cached response is not used under another policy that shares the cache.
func TestIntrospectorPolicies(t *testing.T) {
	t.Parallel()
	memory := NewTokenCache(100)
	ask := func(change func(*Introspector)) error {
		i := testIntrospector(respondWith(`{"active":true,"sub":"bob","iss":"https://idp.example","aud":"a"}`))
		i.Cache = memory
		if change != nil {
			change(i)
		} else if _, err := i.Verify(t.Context(), "opaque"); err != nil {
			t.Fatal(err)
		}
		_, ok := i.loadCached(i.cacheKey("opaque"))
		_, err := i.Verify(t.Context(), "opaque")
		if ok && change != nil {
			t.Error("the answer is taken over")
		}
		return err
	}
	if err := ask(nil); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*Introspector)
		want   error
	}{
		{"audience", func(i *Introspector) { i.Audience, i.AcceptsAnyAudience = "b", false }, errUnexpectedAudience},
		{"audience by name", func(i *Introspector) { i.Audience = "a" }, nil},
		{"issuer", func(i *Introspector) { i.Issuer = "https://other.example" }, errUnexpectedIssuer},
		{"endpoint", func(i *Introspector) {
			i.Endpoint, i.Transport = "https://other.example", respondWith(`{"active":false}`)
		}, errInactiveToken},
		{"client", func(i *Introspector) { i.ClientID, i.Transport = "other", respondWith(`{"active":false}`) }, errInactiveToken},
		{"leeway", func(i *Introspector) { i.Leeway = time.Second }, nil},
		{"lifetime", func(i *Introspector) { i.CacheLifetime = time.Second }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := ask(test.change); !errors.Is(err, test.want) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestIntrospectorIncomplete(t *testing.T) {
	t.Parallel()
	i := testIntrospector(respondWith(`{"active":true,"sub":"bob"}`))
	i.AcceptsAnyAudience = false
	_, err := i.Verify(t.Context(), "opaque")
	wantError(t, err, http.StatusServiceUnavailable, "", ErrUnavailable)
	for _, token := range []string{"", strings.Repeat("a", maxTokenSize+1)} {
		wantRefused(t, testIntrospector(respondWith(`{"active":true,"sub":"bob"}`)), token, errMalformedToken)
	}
}

// The request conforms to RFC 7662, with credentials encoded as in RFC 6749 §2.3.1.
func TestIntrospectorRequest(t *testing.T) {
	t.Parallel()
	i := testIntrospector(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		form, err := url.ParseQuery(string(body))
		want := url.Values{"token": {"a+b/c=="}, "token_type_hint": {"access_token"}}
		if id, secret, _ := r.BasicAuth(); id != "gu+ard%3A1" || secret != "s%25c%26ret" {
			t.Errorf("credentials are %q and %q", id, secret)
		}
		if key, ok := r.Header["Idempotency-Key"]; !ok || len(key) != 0 {
			t.Error("net/http may not try again")
		}
		if r.Method != http.MethodPost || r.URL.String() != testEndpoint ||
			r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" ||
			r.Header.Get("Accept") != "application/json" || form.Encode() != want.Encode() {
			t.Errorf("request is %s %s %v %s", r.Method, r.URL, r.Header, body)
		}
		return jsonResponse(`{"active":true,"sub":"bob"}`), err
	})
	i.ClientID, i.ClientSecret = "gu ard:1", "s%c&ret"
	if _, err := i.Verify(t.Context(), "a+b/c=="); err != nil {
		t.Error(err)
	}
}

// Concurrent requests with a token share one introspection. A client that disconnects does not affect the others.
func TestIntrospectorFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, count := countRequests(func(r *http.Request) (*http.Response, error) {
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(5 * time.Second):
				return jsonResponse(`{"active":true,"sub":"bob"}`), nil
			}
		})
		i := testIntrospector(rt)
		leaving, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			_, err := i.Verify(leaving, "opaque")
			wantError(t, err, http.StatusServiceUnavailable, "", context.Canceled)
		})
		synctest.Wait()
		for range 50 {
			group.Go(func() {
				if _, err := i.Verify(t.Context(), "opaque"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		leave()
		group.Wait()
		if count.Load() != 1 {
			t.Errorf("%d requests", count.Load())
		}
	})
}

// An introspection that begins just after another one for the same token has completed uses the cached response.
func TestIntrospectorFlightEnded(t *testing.T) {
	t.Parallel()
	rt, count := countRequests(respondWith(`{"active":false}`))
	i := testIntrospector(rt)
	wantRefused(t, i, "opaque", errInactiveToken)
	if _, err := i.introspectShared(t.Context(), i.cacheKey("opaque"), "opaque"); err != nil || count.Load() != 1 {
		t.Errorf("%d requests, %v", count.Load(), err)
	}
}

// Concurrent requests are limited. A token that waits too long, or arrives at a full queue, is rejected with 503.
func TestIntrospectorConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var under, peak atomic.Int64
		i := testIntrospector(func(r *http.Request) (*http.Response, error) {
			peak.Store(max(peak.Load(), under.Add(1)))
			defer under.Add(-1)
			time.Sleep(3 * time.Second)
			return jsonResponse(`{"active":true,"sub":"bob"}`), nil
		})
		i.concurrency, i.Network = 2, networkOf
		var group sync.WaitGroup
		var passed, waited, crowded atomic.Int64
		for n := range fairqueue.MaxQueued + 50 {
			group.Go(func() {
				switch _, err := i.Verify(contextFromNetwork(t, fmt.Sprint(n)), fmt.Sprint(n)); {
				case err == nil:
					passed.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					waited.Add(1)
				case errors.Is(err, ErrUnavailable):
					crowded.Add(1)
				}
			})
		}
		group.Wait()
		// Two requests at a time, started at 0 s and 3 s. At 6 s, half of the timeout has passed.
		if peak.Load() != 2 || passed.Load() != 4 || waited.Load() != fairqueue.MaxQueued-4 || crowded.Load() != 50 {
			t.Errorf("%d at once, %d passed, %d waited, %d came too late",
				peak.Load(), passed.Load(), waited.Load(), crowded.Load())
		}
		if got := i.queue.Len(); got != 0 {
			t.Errorf("%d wait for ever", got)
		}
	})
}

type networkKey struct{}

// contextFromNetwork returns a context for a request from a network.
func contextFromNetwork(t *testing.T, network string) context.Context {
	return context.WithValue(t.Context(), networkKey{}, network)
}

func networkOf(ctx context.Context) string { return ctx.Value(networkKey{}).(string) }

// Many forged tokens from one network do not delay tokens from other networks and do not fill the queue.
func TestIntrospectorShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := testIntrospector(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return jsonResponse(`{"active":true,"sub":"bob"}`), nil
		})
		i.Network = networkOf
		var group sync.WaitGroup
		var crowded atomic.Int64
		for n := range 2 * fairqueue.MaxQueued {
			group.Go(func() {
				if _, err := i.Verify(contextFromNetwork(t, "flood"), fmt.Sprint("made up ", n)); errors.Is(err, fairqueue.ErrFull) {
					crowded.Add(1)
				}
			})
		}
		synctest.Wait()
		if got := crowded.Load(); got != 2*fairqueue.MaxQueued-fairqueue.MaxQueued/2 {
			t.Errorf("%d of the flood are refused", got)
		}
		start := time.Now()
		for n := range defaultConcurrency / 2 {
			group.Go(func() {
				if _, err := i.Verify(contextFromNetwork(t, fmt.Sprint(n)), fmt.Sprint("good ", n)); err != nil || time.Since(start) != time.Second {
					t.Errorf("another network's: %v after %v", err, time.Since(start))
				}
			})
		}
		group.Wait()
	})
}

// Failures are cached neither as active nor as rejected.
func TestIntrospectorRecovers(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	failure := broken
	i := testIntrospector(func(*http.Request) (*http.Response, error) {
		if failure != nil {
			return nil, failure
		}
		return jsonResponse(`{"active":true,"sub":"bob"}`), nil
	})
	now := time.Now()
	i.Now = func() time.Time { return now }
	_, err := i.Verify(t.Context(), "opaque")
	wantError(t, err, http.StatusServiceUnavailable, "", broken)
	failure, now = nil, now.Add(backOffDuration)
	if _, err := i.Verify(t.Context(), "opaque"); err != nil {
		t.Error(err)
	}
	failure = broken
	if _, err := i.Verify(t.Context(), "opaque"); err != nil {
		t.Errorf("remembered as active, but %v", err)
	}
}

func TestIntrospectorTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct{ set, want time.Duration }{{0, defaultTimeout}, {time.Second, time.Second}} {
			i := testIntrospector(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			i.timeout = test.set
			start := time.Now()
			_, err := i.Verify(t.Context(), "opaque")
			wantError(t, err, http.StatusServiceUnavailable, "", context.DeadlineExceeded)
			if took := time.Since(start); took != test.want {
				t.Errorf("took %v, want %v", took, test.want)
			}
		}
	})
}

func TestIntrospection(t *testing.T) {
	t.Parallel()
	const hour = 1793538000 // testTime plus one hour
	for _, test := range []struct {
		name, body string
		want       Token
		err        error
	}{
		{"active", `{"active":true,"sub":"bob","client_id":"app","scope":"openid patient/*.rs","aud":["a","api"],
			"iss":"https://idp.example","exp":1793538000,"iat":1793534400,"jti":"j","token_type":"Bearer","patient":"7"}`,
			Token{Subject: "bob", ClientID: "app", Scope: "openid patient/*.rs", ID: "j", Patient: "7"}, nil},
		{"scopes in a list", `{"active":true,"sub":"bob","scope":["a","b"],"aud":"api","iss":"https://idp.example"}`,
			Token{Subject: "bob", Scope: "a b"}, nil},
		{"a client's", `{"active":true,"client_id":"app","token_type":"access_token","aud":"api","iss":"https://idp.example"}`,
			Token{Subject: "app", ClientID: "app"}, nil},
		{"iat without exp", `{"active":true,"sub":"bob","iat":1793534400,"aud":"api","iss":"https://idp.example"}`,
			Token{Subject: "bob"}, nil},
		{"Hydra's", `{"active":true,"sub":"bob","token_use":"access_token","aud":"api","iss":"https://idp.example"}`,
			Token{Subject: "bob"}, nil},
		{"no subject", `{"active":true,"aud":"api","iss":"https://idp.example"}`, Token{}, errMissingClaim},
		{"inactive", `{"active":false}`, Token{}, errInactiveToken},
		{"inactive with claims", `{"active":false,"sub":"bob","aud":"api","iss":"https://idp.example"}`, Token{}, errInactiveToken},
		{"inactive with odd claims", `{"active":false,"exp":"never"}`, Token{}, errInactiveToken},
		{"expired", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","exp":1793534370}`, Token{}, ErrExpired},
		{"not yet valid", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","nbf":1793534431}`, Token{}, errNotYetValid},
		{"of the future", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","iat":1793534431}`, Token{}, errInvalidIssuedAt},
		{"another aud", `{"active":true,"sub":"bob","aud":"other","iss":"https://idp.example"}`, Token{}, errUnexpectedAudience},
		{"no aud", `{"active":true,"sub":"bob","iss":"https://idp.example"}`, Token{}, errUnexpectedAudience},
		{"another iss", `{"active":true,"sub":"bob","aud":"api","iss":"https://fhir.example.org"}`, Token{}, errUnexpectedIssuer},
		{"no iss", `{"active":true,"sub":"bob","aud":"api"}`, Token{}, errUnexpectedIssuer},
		{"two clients", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","client_id":"a","azp":"b"}`, Token{}, errMalformedToken},
		{"Keycloak's refresh token", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","typ":"Refresh"}`, Token{}, errTokenType},
		{"Hydra's refresh token", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","token_use":"refresh_token"}`, Token{}, errTokenType},
		{"Duende's refresh token", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","token_type":"refresh_token"}`, Token{}, errTokenType},
		{"DPoP", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","token_type":"DPoP"}`, Token{}, errTokenType},
		{"bound", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","cnf":{"jkt":"x"}}`, Token{}, errSenderConstrained},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := testIntrospector(respondWith(test.body))
			i.Issuer, i.Audience, i.AcceptsAnyAudience = "https://idp.example", "api", false
			i.Now = func() time.Time { return testTime }
			for range 2 { // first introspected, then cached
				if test.err != nil {
					wantRefused(t, i, "opaque", test.err)
					continue
				}
				got, err := i.Verify(t.Context(), "opaque")
				if err != nil {
					t.Fatal(err)
				}
				if !got.Expires.IsZero() && got.Expires.Unix() != hour {
					t.Errorf("expires %v", got.Expires)
				}
				test.want.Issuer, test.want.IssuedAt, test.want.Expires, test.want.Memo = i.Issuer, got.IssuedAt, got.Expires, got.Memo
				if !reflect.DeepEqual(*got, test.want) {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
			}
		})
	}
}

// If no issuer is configured, the issuer of the tokens is the server's endpoint.
func TestIntrospectionIssuer(t *testing.T) {
	t.Parallel()
	i := testIntrospector(respondWith(`{"active":true,"sub":"alice","iss":"` + testIssuer + `"}`))
	got, err := i.Verify(t.Context(), "opaque")
	if err != nil || got.Issuer != testEndpoint {
		t.Errorf("got %+v, %v", got, err)
	}
}

// An unintelligible response rejects the token with 503 and is not cached.
func TestIntrospectionFailures(t *testing.T) {
	t.Parallel()
	const active = `{"active":true,"sub":"bob"}`
	write := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, body)
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, active)
		}
	}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
	}{
		{"active a text", write("application/json", `{"active":"true","sub":"bob"}`)},
		{"active a number", write("application/json", `{"active":1,"sub":"bob"}`)},
		{"active null", write("application/json", `{"active":null,"sub":"bob"}`)},
		{"Active", write("application/json", `{"Active":true,"sub":"bob"}`)},
		{"active in two cases", write("application/json", `{"active":true,"Active":false,"sub":"bob"}`)},
		{"active twice", write("application/json", `{"active":false,"active":true,"sub":"bob"}`)},
		{"no active", write("application/json", `{"sub":"bob"}`)},
		{"a list", write("application/json", `[`+active+`]`)},
		{"exp a text", write("application/json", `{"active":true,"sub":"bob","exp":"never"}`)},
		{"half of it", write("application/json", active[:20])},
		{"nothing", write("application/json", ``)},
		{"more behind it", write("application/json", active+active)},
		{"HTML", write("text/html", active)},
		{"a signed response", write("application/token-introspection+jwt", active)},
		{"no content type", write("", active)},
		{"huge", write("application/json", `{"active":true,"sub":"bob","x":"`+strings.Repeat("x", maxIntrospectionSize)+`"}`)},
		{"huge by spaces", write("application/json", active+strings.Repeat(" ", maxIntrospectionSize))},
		{"201", status(http.StatusCreated)},
		{"400", status(http.StatusBadRequest)},
		{"401", status(http.StatusUnauthorized)},
		{"429", status(http.StatusTooManyRequests)},
		{"500", status(http.StatusInternalServerError)},
		{"redirect without a place", status(http.StatusFound)},
		{"reset", func(w http.ResponseWriter, _ *http.Request) { reset(w, "") }},
		{"reset in the middle", func(w http.ResponseWriter, _ *http.Request) {
			reset(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"+active)
		}},
		{"hanging", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"hanging in the middle", func(w http.ResponseWriter, r *http.Request) {
			write("application/json", active)(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			i, requests := newServedIntrospector(t, test.handler)
			if strings.HasPrefix(test.name, "hanging") {
				i.timeout = 200 * time.Millisecond
			}
			now := time.Now()
			i.Now = func() time.Time { return now }
			for range 2 {
				got, err := i.Verify(t.Context(), "opaque")
				now = now.Add(backOffDuration)
				wantError(t, err, http.StatusServiceUnavailable, "", ErrUnavailable)
				if got != nil {
					t.Errorf("got %+v", got)
				}
			}
			if n := requests.Load(); n != 2 {
				t.Errorf("%d requests: a failure is remembered, or repeated", n)
			}
		})
	}
}

// Redirects are not followed.
func TestIntrospectionRedirect(t *testing.T) {
	t.Parallel()
	for _, code := range []int{301, 302, 303, 307, 308} {
		i, requests := newServedIntrospector(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/other" {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"active":true,"sub":"bob"}`)
				return
			}
			http.Redirect(w, r, "/other", code)
		})
		_, err := i.Verify(t.Context(), "opaque")
		wantError(t, err, http.StatusServiceUnavailable, "", ErrUnavailable)
		if n := requests.Load(); n != 1 {
			t.Errorf("%d: %d requests", code, n)
		}
	}
}

// Introspection works over HTTP, with a response of the maximum size.
func TestIntrospectionServed(t *testing.T) {
	t.Parallel()
	body := `{"active":true,"sub":"bob"}`
	body += strings.Repeat(" ", maxIntrospectionSize-len(body))
	i, _ := newServedIntrospector(t, func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		_, keyed := r.Header["Idempotency-Key"]
		if keyed || r.PostFormValue("token") != "opaque" || id != "guard" || secret != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	})
	if got, err := i.Verify(t.Context(), "opaque"); err != nil || got.Subject != "bob" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Errors are intended for logs and contain neither the token nor the client secret.
func TestIntrospectionErrorsRevealNothing(t *testing.T) {
	t.Parallel()
	i := testIntrospector(func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("broken %s", r.Method) })
	_, err := i.Verify(t.Context(), "opaque-token")
	if err == nil || strings.Contains(err.Error(), "opaque-token") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error is %v", err)
	}
	var refusal *Error
	if errors.As(err, &refusal) && strings.Contains(refusal.Description, "broken") {
		t.Errorf("description for the client: %q", refusal.Description)
	}
}

// newServedIntrospector returns an introspector and its server, which counts requests.
func newServedIntrospector(t *testing.T, handler http.HandlerFunc) (i *Introspector, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_ = r.ParseForm() // lets a blocked handler notice that the client disconnected
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	i = testIntrospector(nil)
	i.Endpoint, i.Transport = server.URL, server.Client().Transport
	return i, requests
}

// reset sends some bytes and resets the connection.
func reset(w http.ResponseWriter, bytes string) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(connection, bytes)
	_ = connection.(*net.TCPConn).SetLinger(0)
	_ = connection.Close()
}

func FuzzIntrospection(f *testing.F) {
	f.Add([]byte(`{"active":true,"sub":"bob","exp":4102444800,"scope":["a"]}`))
	f.Add([]byte(`{"active":false}`))
	f.Add([]byte(`{"active":"true"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		i := testIntrospector(nil)
		i.Issuer, i.Audience, i.AcceptsAnyAudience = "https://idp.example", "api", false
		response, err := parseIntrospection(body, nil, new(ClaimMapping))
		if err != nil {
			return
		}
		token, err := i.checkResponse(response)
		if err == nil && (!response.isActive || token.Issuer != i.Issuer || token.Subject == "") {
			t.Fatalf("%s passes as %+v", body, token)
		}
	})
}

// Signed responses are accepted only if the issuer signed them as introspection responses for this client (RFC 9701 §5).
func TestSignedIntrospection(t *testing.T) {
	t.Parallel()
	issuer := provider{issuer: "https://idp.example", audience: "guard"}
	typed := func(typ string) mint {
		return mint{alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"typ": typ, "kid": "rs"}}
	}
	good := typed("token-introspection+jwt")
	for _, tt := range []struct {
		name    string
		mint    mint
		changes map[string]any
		active  bool
	}{
		{"active", good, nil, true},
		{"inactive", good, map[string]any{"token_introspection": map[string]any{"active": false}}, false},
		{"an access token", typed("at+jwt"), nil, false},
		{"any JWT", typed("JWT"), nil, false},
		{"another key", mint{key: secondKey(), header: map[jose.HeaderKey]any{"typ": "token-introspection+jwt", "kid": "rs"}}, nil, false},
		{"another issuer", good, map[string]any{"iss": "https://other.example"}, false},
		{"for another audience", good, map[string]any{"aud": "other"}, false},
		{"without iat", good, map[string]any{"iat": nil}, false},
		{"without the response", good, map[string]any{"token_introspection": nil, "active": true, "sub": "bob"}, false},
		{"over", good, map[string]any{"exp": testTime.Add(-time.Hour).Unix()}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			claims := map[string]any{"token_introspection": map[string]any{"active": true, "sub": "bob", "iss": issuer.issuer}}
			body := tt.mint.sign(t, issuer.payload(t, claims, tt.changes))
			var accept string
			i := testIntrospector(func(r *http.Request) (*http.Response, error) {
				accept = r.Header.Get("Accept")
				response := jsonResponse(body)
				response.Header.Set("Content-Type", "application/token-introspection+jwt")
				return response, nil
			})
			i.Issuer, i.Keys, i.Now = issuer.issuer, providerKeys(), func() time.Time { return testTime }
			token, err := i.Verify(t.Context(), "opaque")
			if (err == nil) != tt.active || tt.active && token.Subject != "bob" {
				t.Errorf("%+v, %v", token, err)
			}
			if accept != "application/token-introspection+jwt, application/json;q=0.5" {
				t.Errorf("Accept %q", accept)
			}
			i.Keys = nil
			if _, err := i.Verify(t.Context(), "without keys"); err == nil {
				t.Error("accepted without keys")
			}
		})
	}
}

// With IntrospectsJWTs, JWTs of the introspected issuer are introspected unless cached, but not those of other issuers.
func TestIntrospectAll(t *testing.T) {
	t.Parallel()
	keycloak, okta := providerNamed(t, "Keycloak"), providerNamed(t, "Okta")
	ours, theirs, foreign := mint{}.token(t), keycloak.token(t, keycloak.access, nil), okta.token(t, okta.access, nil)
	synctest.Test(t, func(t *testing.T) {
		rt, requests := countRequests(respondWith(`{"active":true,"sub":"bob","iss":"` + keycloak.issuer + `"}`))
		i := testIntrospector(rt)
		i.IntrospectsJWTs, i.CacheLifetime, i.Issuer = true, 10*time.Second, keycloak.issuer
		g, err := New(testVerifier(), []*TrustedVerifier{keycloak.trusted(), okta.trusted()}, i)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []int64{1, 1, 2} {
			if got, err := g.Verify(t.Context(), theirs); err != nil || got.Subject != "bob" || requests.Load() != want {
				t.Errorf("%+v, %v, %d requests, want %d", got, err, requests.Load(), want)
			}
			time.Sleep(6 * time.Second)
		}
		if got, err := g.Verify(t.Context(), ours); err != nil || got.Issuer != testIssuer || requests.Load() != 2 {
			t.Errorf("ours: %+v, %v, %d requests", got, err, requests.Load())
		}
		if got, err := g.Verify(t.Context(), foreign); err != nil || got.Issuer != okta.issuer || requests.Load() != 2 {
			t.Errorf("another trusted issuer's: %+v, %v, %d requests", got, err, requests.Load())
		}
		i.Transport = respondWith(`{"active":false}`)
		time.Sleep(11 * time.Second)
		if _, err := g.Verify(t.Context(), theirs); err == nil {
			t.Error("a revoked one passes")
		}
	})
}

// If the endpoint does not respond, one token at a time probes it and all others are rejected immediately. When it responds
// again, tokens are introspected again.
func TestIntrospectorBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		i := testIntrospector(func(r *http.Request) (*http.Response, error) {
			if !hangs {
				return jsonResponse(`{"active":true,"sub":"bob"}`), nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		i.concurrency, i.timeout = 2, 10*time.Second
		var group sync.WaitGroup
		start := time.Now()
		verify := func(token string, after time.Duration, retryAfter string) {
			t.Helper()
			group.Go(func() {
				_, err := i.Verify(t.Context(), token)
				if refusal, ok := errors.AsType[*Error](err); !ok {
					t.Errorf("%s: %v", token, err)
				} else if refusal.Status != http.StatusServiceUnavailable ||
					refusal.RetryAfter() != retryAfter || time.Since(start) != after*time.Second {
					t.Errorf("%s: %v, Retry-After %q, after %v", token, err, refusal.RetryAfter(), time.Since(start))
				}
			})
			synctest.Wait()
		}
		verify("asked about", 10, "")
		verify("waits too long", 5, "")
		time.Sleep(7 * time.Second)
		verify("waits when it fails", 10, "2")
		time.Sleep(4 * time.Second)
		verify("comes at 11", 11, "1")
		time.Sleep(2 * time.Second)
		verify("tries again at 13", 23, "")
		verify("comes while that one tries", 13, "1")
		group.Wait()
		hangs = false
		verify("comes before it is tried again", 23, "2")
		time.Sleep(2 * time.Second)
		for n := range 3 {
			if _, err := i.Verify(t.Context(), fmt.Sprint(n)); err != nil {
				t.Error(err)
			}
		}
	})
}

// A missing response starts a back-off. An unintelligible one does not, because a forged token could cause it.
func TestIntrospectorBackOffByFailure(t *testing.T) {
	t.Parallel()
	status := func(code int) transport {
		return func(*http.Request) (*http.Response, error) {
			response := jsonResponse(`{"active":true,"sub":"bob"}`)
			response.StatusCode = code
			return response, nil
		}
	}
	for _, test := range []struct {
		name  string
		rt    transport
		alone bool
	}{
		{"no connection", func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, true},
		{"429", status(http.StatusTooManyRequests), true},
		{"502", status(http.StatusBadGateway), true},
		{"503", status(http.StatusServiceUnavailable), true},
		{"504", status(http.StatusGatewayTimeout), true},
		{"400", status(http.StatusBadRequest), false},
		{"401", status(http.StatusUnauthorized), false},
		{"500", status(http.StatusInternalServerError), false},
		{"no JSON", respondWith(`{`), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt, count := countRequests(test.rt)
			i := testIntrospector(rt)
			for n := range 2 {
				_, err := i.Verify(t.Context(), fmt.Sprint(n))
				wantError(t, err, http.StatusServiceUnavailable, "", ErrUnavailable)
			}
			if alone := count.Load() == 1; alone != test.alone {
				t.Errorf("%d requests", count.Load())
			}
		})
	}
}
