package browser

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

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
