package authorizetest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Equal checks a value. Notes say which.
func Equal[T comparable](t testing.TB, got, want T, notes ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%sgot %v, want %v", noted(notes), got, want)
	}
}

// WantStatus checks the status of an answer.
func WantStatus(t testing.TB, r *http.Response, want int, notes ...any) {
	t.Helper()
	if r.StatusCode != want {
		t.Errorf("%sstatus %d, want %d; to %q: %s", noted(notes), r.StatusCode, want, r.Header.Get("Location"), Body(t, r))
	}
}

// WantCode checks that a browser is sent to a client with a code.
func WantCode(t testing.TB, u *url.URL, notes ...any) {
	t.Helper()
	if u.Query().Get("code") == "" {
		t.Errorf("%sno code: %s", noted(notes), u)
	}
}

// WantError checks that a browser is sent to a client with an error, and without a code.
func WantError(t testing.TB, u *url.URL, want string, notes ...any) {
	t.Helper()
	if u.Query().Get("error") != want || u.Query().Has("code") {
		t.Errorf("%serror %q is wanted: %s", noted(notes), want, u)
	}
}

// WantText checks that a page has some texts.
func WantText(t testing.TB, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %s: %s", text, page)
		}
	}
}

func noted(notes []any) string {
	if len(notes) == 0 {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintln(notes...)) + ": "
}

// NoError ends the test if there is an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
