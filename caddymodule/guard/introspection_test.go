package guard

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestIntrospection(t *testing.T) {
	t.Parallel()
	const hour = 1793538000 // testTime and an hour
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
		{"nobody's", `{"active":true,"aud":"api","iss":"https://idp.example"}`, Token{}, errMissingClaim},
		{"inactive", `{"active":false}`, Token{}, errInactive},
		{"inactive with claims", `{"active":false,"sub":"bob","aud":"api","iss":"https://idp.example"}`, Token{}, errInactive},
		{"inactive with odd claims", `{"active":false,"exp":"never"}`, Token{}, errInactive},
		{"expired", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","exp":1793534370}`, Token{}, ErrExpired},
		{"not yet valid", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","nbf":1793534431}`, Token{}, errNotYetValid},
		{"of the future", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","iat":1793534431}`, Token{}, errIssuedAt},
		{"another aud", `{"active":true,"sub":"bob","aud":"other","iss":"https://idp.example"}`, Token{}, errAudience},
		{"no aud", `{"active":true,"sub":"bob","iss":"https://idp.example"}`, Token{}, errAudience},
		{"another iss", `{"active":true,"sub":"bob","aud":"api","iss":"https://fhir.example.org"}`, Token{}, errIssuer},
		{"no iss", `{"active":true,"sub":"bob","aud":"api"}`, Token{}, errIssuer},
		{"two clients", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","client_id":"a","azp":"b"}`, Token{}, errMalformed},
		{"Keycloak's refresh token", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","typ":"Refresh"}`, Token{}, errType},
		{"Hydra's refresh token", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","token_use":"refresh_token"}`, Token{}, errType},
		{"Duende's refresh token", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","token_type":"refresh_token"}`, Token{}, errType},
		{"DPoP", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","token_type":"DPoP"}`, Token{}, errType},
		{"bound", `{"active":true,"sub":"bob","aud":"api","iss":"https://idp.example","cnf":{"jkt":"x"}}`, Token{}, errBound},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := testIntrospector(answering(test.body))
			i.Issuer, i.Audience, i.AnyAudience = "https://idp.example", "api", false
			i.Now = func() time.Time { return testTime }
			for range 2 { // asked, and remembered
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

// A server that may speak for any issuer speaks for none but itself.
func TestIntrospectionIssuer(t *testing.T) {
	t.Parallel()
	i := testIntrospector(answering(`{"active":true,"sub":"alice","iss":"` + testIssuer + `"}`))
	got, err := i.Verify(t.Context(), "opaque")
	if err != nil || got.Issuer != testEndpoint {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Whatever is not understood refuses the token with 503, each time anew.
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
			i, requests := served(t, test.handler)
			if strings.HasPrefix(test.name, "hanging") {
				i.timeout = 200 * time.Millisecond
			}
			now := time.Now()
			i.Now = func() time.Time { return now }
			for range 2 {
				got, err := i.Verify(t.Context(), "opaque")
				now = now.Add(backOffTime)
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

// No redirect is followed: not the token nor the trust goes elsewhere.
func TestIntrospectionRedirect(t *testing.T) {
	t.Parallel()
	for _, code := range []int{301, 302, 303, 307, 308} {
		i, requests := served(t, func(w http.ResponseWriter, r *http.Request) {
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

// A server that is real, with a response as large as may be.
func TestIntrospectionServed(t *testing.T) {
	t.Parallel()
	body := `{"active":true,"sub":"bob"}`
	body += strings.Repeat(" ", maxIntrospectionSize-len(body))
	i, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
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

// Errors are for logs, and hold neither token nor secret.
func TestIntrospectionErrorsTellNothing(t *testing.T) {
	t.Parallel()
	i := testIntrospector(func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("broken %s", r.Method) })
	_, err := i.Verify(t.Context(), "opaque-token")
	if err == nil || strings.Contains(err.Error(), "opaque-token") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error is %v", err)
	}
	var refusal *Error
	if errors.As(err, &refusal) && strings.Contains(refusal.Description, "broken") {
		t.Errorf("the client is told %q", refusal.Description)
	}
}

// served is an introspector of a server that counts its requests.
func served(t *testing.T, handler http.HandlerFunc) (i *Introspector, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_ = r.ParseForm() // so that a hanging handler learns that the client is gone
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	i = testIntrospector(nil)
	i.Endpoint, i.Transport = server.URL, server.Client().Transport
	return i, requests
}

// reset resets the connection, after some bytes.
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
		i.Issuer, i.Audience, i.AnyAudience = "https://idp.example", "api", false
		response, err := parseIntrospection(body, nil)
		if err != nil {
			return
		}
		token, err := i.judge(response)
		if err == nil && (!response.active || token.Issuer != i.Issuer || token.Subject == "") {
			t.Fatalf("%s passes as %+v", body, token)
		}
	})
}
