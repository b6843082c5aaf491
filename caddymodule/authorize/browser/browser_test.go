package browser

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// testKeys seals with one key.
type testKeys struct {
	keyring.BrowserSealer // MAC, which is not used
	key                   *keyring.Sealer
}

func (k testKeys) Seal(_ context.Context, text, binding string) (string, error) {
	return k.key.Seal(text, binding), nil
}

func (k testKeys) Unseal(_ context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	return k.key.Unseal(sealed, binding, maxAge)
}

func requestWithID(id string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: IDPrefix + "a", Value: id})
	return r
}

// A text can be unsealed only in the browser that it was sealed for, and only with its purpose. A browser that chooses its id
// cannot change the text. Recover requires the purpose but not the browser.
func TestSealedText(t *testing.T) {
	t.Parallel()
	key, err := keyring.NewSealer([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	s, errExpired := &Sealer{Keys: testKeys{key: key}}, errors.New("expired")
	for _, tt := range []struct{ sealedBy, openedBy, purpose, want string }{
		{"x", "x", "login", "text"}, {"x y", "x y", "login", "text"},
		{"x", "y", "login", ""}, {"x", "", "login", ""}, {"x", "x", "factor", ""}, {"x", "x", "logi", ""},
		{"x y", "x", "login", ""}, {"x text", "x", "login", ""}, {idPrefix("x"), "x", "login", ""}, {idPrefix("x") + "text", "x", "login", ""},
	} {
		sealed, err := s.Seal(httptest.NewRecorder(), requestWithID(tt.sealedBy), "login", "text")
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Unseal(requestWithID(tt.openedBy), tt.purpose, sealed, time.Hour, errExpired)
		if got != tt.want || errors.Is(err, errExpired) != (tt.want == "") {
			t.Errorf("sealed by %q, opened by %q for %s: %q, %v", tt.sealedBy, tt.openedBy, tt.purpose, got, err)
		}
		if got := s.Recover(t.Context(), tt.purpose, sealed); (got == "text") != (tt.purpose == "login") {
			t.Errorf("recovered %q for %s", got, tt.purpose)
		}
	}
}

// Only a limited number of browser ids is read from a request with many cookies.
func TestBrowserIDsAreBounded(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := range 100 {
		r.AddCookie(&http.Cookie{Name: IDPrefix + strconv.Itoa(i), Value: strconv.Itoa(i)})
	}
	if n := len(browserIDs(r)); n != maxBrowserIDs {
		t.Errorf("%d ids are looked at", n)
	}
}
