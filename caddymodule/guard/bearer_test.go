package guard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestBearer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, header, want string }{
		{"usual", "Bearer abc.def.ghi", "abc.def.ghi"},
		{"lower case", "bearer abc", "abc"},
		{"upper case", "BEARER abc", "abc"},
		{"several spaces", "Bearer   abc", "abc"},
		{"space behind", "Bearer abc ", "abc"},
		{"every character", "Bearer aZ09-._~+/==", "aZ09-._~+/=="},
		{"as long as may be", "Bearer " + strings.Repeat("a", maxTokenSize), strings.Repeat("a", maxTokenSize)},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Bearer(request("/fhir/R4/Patient?name=access_token", test.header))
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestBearerRefused(t *testing.T) {
	t.Parallel()
	none := []string(nil)
	one := func(s string) []string { return []string{s} }
	for _, test := range []struct {
		name    string
		url     string
		headers []string
		status  int
	}{
		{"no header", "/", none, 401},
		{"another scheme", "/", one("Basic YTpi"), 401},
		{"scheme that begins so", "/", one("Bearerx abc"), 401},
		{"token without a scheme", "/", one("abc.def.ghi"), 401},
		{"empty header", "/", one(""), 401},
		{"two headers", "/", []string{"Bearer a", "Bearer b"}, 400},
		{"two headers, one Basic", "/", []string{"Basic YTpi", "Bearer b"}, 400},
		{"two equal headers", "/", []string{"Bearer a", "Bearer a"}, 400},
		{"no token", "/", one("Bearer"), 400},
		{"empty token", "/", one("Bearer  "), 400},
		{"padding alone", "/", one("Bearer =="), 400},
		{"padding within", "/", one("Bearer a=b"), 400},
		{"two tokens", "/", one("Bearer a b"), 400},
		{"two credentials", "/", one("Bearer a, Bearer b"), 400},
		{"token in quotes", "/", one(`Bearer "a"`), 400},
		{"tab before the token", "/", one("Bearer \ta"), 400},
		{"not ASCII", "/", one("Bearer ä"), 400},
		{"control character", "/", one("Bearer a\x00b"), 400},
		{"too long", "/", one("Bearer " + strings.Repeat("a", maxTokenSize+1)), 400},
		{"in the query", "/?access_token=a", none, 400},
		{"in the query too", "/?access_token=a", one("Bearer a"), 400},
		{"in the query, empty", "/?access_token", one("Bearer a"), 400},
		{"in the query, encoded", "/?access%5ftoken=a", one("Bearer a"), 400},
		{"in the query, in another case", "/?Access_Token=a", one("Bearer a"), 400},
		{"in the query, later", "/?name=a&access_token=a", one("Bearer a"), 400},
		{"in the query, after a semicolon", "/?name=a;access_token=a", one("Bearer a"), 400},
		{"in the query, after a bad escape", "/?%zz=a&access_token=a", one("Bearer a"), 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Bearer(request(test.url, test.headers...))
			code, want := "", ErrNoToken
			if test.status == 400 {
				code, want = "invalid_request", errRequest
			}
			wantError(t, err, test.status, code, want)
			if got != "" {
				t.Errorf("a token is returned with the error: %q", got)
			}
		})
	}
}

// A form's body is not read, whatever it says.
func TestBearerForm(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("access_token=a"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err := Bearer(r)
	wantError(t, err, http.StatusUnauthorized, "", ErrNoToken)
}

// request makes a request with these Authorization headers.
func request(target string, authorization ...string) *http.Request {
	path, query, _ := strings.Cut(target, "?")
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query}, Header: make(http.Header)}
	if authorization != nil {
		r.Header["Authorization"] = authorization
	}
	return r
}

// FuzzBearer throws headers and queries at the whole way to a Token. Only the
// one token that was minted may come through.
func FuzzBearer(f *testing.F) {
	v := testVerifier()
	v.Memory = NewMemory(8)
	token := mint{}.token(f)
	f.Add("Bearer "+token, "")
	f.Add("bearer "+token, "name=a")
	f.Add("Bearer "+token+"A", "access_token=a")
	f.Add("Bearer "+token[:len(token)-1], "access%5ftoken")
	f.Add("Bearer "+lastBitsChanged(token), ";")
	f.Add("Basic YTpi", "%")
	f.Add("Bearer eyJhbGciOiJub25lIn0.e30.", "")
	f.Fuzz(func(t *testing.T, header, query string) {
		raw, err := Bearer(request("/?"+query, header))
		if err == nil {
			_, err = v.Verify(t.Context(), raw)
		}
		if err == nil {
			if raw != token || !strings.Contains(header, token) {
				t.Errorf("header %q passed", header)
			}
			return
		}
		refusal, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("error is a %T", err)
		}
		if refusal.Status != http.StatusBadRequest && refusal.Status != http.StatusUnauthorized {
			t.Errorf("status is %d", refusal.Status)
		}
		if challenge := refusal.Challenge(testAudience); !strings.HasPrefix(challenge, `Bearer realm="`+testAudience+`"`) {
			t.Errorf("challenge is %q", challenge)
		}
	})
}
