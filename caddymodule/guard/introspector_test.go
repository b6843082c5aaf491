package guard

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const testEndpoint = "https://idp.example/introspect"

// transport answers requests in the process, so that no socket is in the
// bubble of a test.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answering is a transport with one answer.
func answering(body string) transport {
	return func(*http.Request) (*http.Response, error) { return answer(body), nil }
}

// answer is a response of that JSON.
func answer(body string) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json;charset=UTF-8"}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

// testIntrospector asks by a transport, and remembers.
func testIntrospector(rt transport) *Introspector {
	return &Introspector{
		Endpoint: testEndpoint, ClientID: "guard", ClientSecret: "secret",
		AnyAudience: true, Transport: rt, Memory: NewMemory(100),
	}
}

// counted counts the requests to a transport.
func counted(rt transport) (transport, *atomic.Int64) {
	count := new(atomic.Int64)
	return func(r *http.Request) (*http.Response, error) {
		count.Add(1)
		return rt(r)
	}, count
}

// in formats a time of the bubble as a claim.
func in(d time.Duration) int64 { return time.Now().Add(d).Unix() }

// An active token is asked about again after a minute, or after its end.
func TestIntrospectorLifetimes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		expires  time.Duration
		lifetime time.Duration // as set
		want     time.Duration // how long it is remembered
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
					body = fmt.Sprintf(`{"active":true,"sub":"bob","exp":%d}`, in(test.expires))
				}
				rt, count := counted(answering(body))
				i := testIntrospector(rt)
				i.Remember = test.lifetime
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

// The time under way counts: what has been active is not so from its arrival.
func TestIntrospectorSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, count := counted(func(*http.Request) (*http.Response, error) {
			time.Sleep(9 * time.Second)
			return answer(`{"active":true,"sub":"bob"}`), nil
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

// A refused token makes one request in ten seconds, however often it comes.
func TestIntrospectorRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, body string
		want       error
	}{
		{"inactive", `{"active":false}`, errInactive},
		{"wrong audience", `{"active":true,"sub":"bob","aud":"other"}`, errAudience},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, count := counted(answering(test.body))
				i := testIntrospector(rt)
				i.Audience, i.AnyAudience = testAudience, false
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

// Refused tokens have a memory of their own: a flood of them drives no active
// one out.
func TestIntrospectorFlood(t *testing.T) {
	t.Parallel()
	rt, count := counted(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if strings.Contains(string(body), "token=valid") {
			return answer(`{"active":true,"sub":"bob"}`), err
		}
		return answer(`{"active":false}`), err
	})
	i := testIntrospector(rt)
	i.Memory = NewMemory(2)
	if _, err := i.Verify(t.Context(), "valid"); err != nil {
		t.Fatal(err)
	}
	for n := range 3 * refusalsSize {
		wantRefused(t, i, fmt.Sprint(n), errInactive)
	}
	before := count.Load()
	if _, err := i.Verify(t.Context(), "valid"); err != nil || count.Load() != before {
		t.Errorf("%d more requests, %v", count.Load()-before, err)
	}
	if n, _ := i.refusals.tokens.Held(); n > refusalsSize {
		t.Errorf("%d are remembered", n)
	}
}

// GO-2022-0406: what is remembered as active is checked like any answer, by
// the claims and by the clock.
func TestIntrospectorChecksRemembered(t *testing.T) {
	t.Parallel()
	now := time.Now()
	i := testIntrospector(answering(fmt.Sprintf(`{"active":true,"sub":"bob","exp":%d}`, now.Add(40*time.Second).Unix())))
	i.Now = func() time.Time { return now }
	if _, err := i.Verify(t.Context(), "opaque"); err != nil {
		t.Fatal(err)
	}
	if _, ok := i.recall(i.remembranceID("opaque")); !ok {
		t.Fatal("not remembered")
	}
	now = now.Add(40*time.Second + defaultLeeway)
	wantRefused(t, i, "opaque", ErrExpired)
}

// Another policy does not take the answer over, though it shares the memory.
func TestIntrospectorPolicies(t *testing.T) {
	t.Parallel()
	memory := NewMemory(100)
	ask := func(change func(*Introspector)) error {
		i := testIntrospector(answering(`{"active":true,"sub":"bob","iss":"https://idp.example","aud":"a"}`))
		i.Memory = memory
		if change != nil {
			change(i)
		} else if _, err := i.Verify(t.Context(), "opaque"); err != nil {
			t.Fatal(err)
		}
		_, ok := i.recall(i.remembranceID("opaque"))
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
		{"audience", func(i *Introspector) { i.Audience, i.AnyAudience = "b", false }, errAudience},
		{"audience by name", func(i *Introspector) { i.Audience = "a" }, nil},
		{"issuer", func(i *Introspector) { i.Issuer = "https://other.example" }, errIssuer},
		{"endpoint", func(i *Introspector) {
			i.Endpoint, i.Transport = "https://other.example", answering(`{"active":false}`)
		}, errInactive},
		{"client", func(i *Introspector) { i.ClientID, i.Transport = "other", answering(`{"active":false}`) }, errInactive},
		{"leeway", func(i *Introspector) { i.Leeway = time.Second }, nil},
		{"lifetime", func(i *Introspector) { i.Remember = time.Second }, nil},
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
	i := testIntrospector(answering(`{"active":true,"sub":"bob"}`))
	i.AnyAudience = false
	_, err := i.Verify(t.Context(), "opaque")
	wantError(t, err, http.StatusServiceUnavailable, "", ErrUnavailable)
	for _, token := range []string{"", strings.Repeat("a", maxTokenSize+1)} {
		wantRefused(t, testIntrospector(answering(`{"active":true,"sub":"bob"}`)), token, errMalformed)
	}
}

// The request is RFC 7662's, the credentials encoded as RFC 6749 §2.3.1 says.
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
		return answer(`{"active":true,"sub":"bob"}`), err
	})
	i.ClientID, i.ClientSecret = "gu ard:1", "s%c&ret"
	if _, err := i.Verify(t.Context(), "a+b/c=="); err != nil {
		t.Error(err)
	}
}
