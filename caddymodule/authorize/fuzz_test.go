package authorize_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// FuzzAuthorize sends any query. Whatever it is, the browser is sent to a
// registered redirect URI, to the sign-in page, or nowhere.
func FuzzAuthorize(f *testing.F) {
	f.Add(request(nil).Encode())
	f.Add(request(pkce()).Encode())
	f.Add("client_id=app&redirect_uri=" + url.QueryEscape(callback) + "&response_type=token&scope=user/*.cruds&state=%7B%7D")
	f.Add("client_id=app&redirect_uri=%00&&;=%zz")
	server := newServer(f, nil)
	allowed := []string{"/oauth2/login?request=", callback + "?", "http://localhost:3000/callback?"}
	f.Fuzz(func(t *testing.T, query string) {
		r := postRequest("/oauth2/authorize", nil)
		r.Method, r.URL.RawQuery = http.MethodGet, query
		response := newBrowser(t, server).send(r)
		location := response.Header.Get("Location")
		sent := slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(location, prefix) })
		switch {
		case response.StatusCode == http.StatusFound && sent && !strings.ContainsAny(location, "\r\n#"):
		case response.StatusCode == http.StatusBadRequest && location == "":
		default:
			t.Errorf("status %d, Location %q", response.StatusCode, location)
		}
	})
}

// FuzzToken sends any form. Whatever it is, the answer is JSON, and an error.
func FuzzToken(f *testing.F) {
	f.Add(codeForm("x", nil).Encode(), "Basic Y29uZmlkZW50aWFsOng=")
	f.Add("grant_type=client_credentials&client_id=service&client_secret=x", "")
	f.Add("%zz;&grant_type", "Bearer x")
	server := newServer(f, nil)
	f.Fuzz(func(t *testing.T, form, authorization string) {
		r := postRequest("/oauth2/token", nil)
		r.Body = io.NopCloser(strings.NewReader(form))
		if authorization != "" {
			r.Header["Authorization"] = []string{authorization}
		}
		response := newBrowser(t, server).send(r)
		if got := decode[tokenAnswer](t, response); got.Error == "" || response.StatusCode < 400 || response.StatusCode >= 500 {
			t.Errorf("status %d, %+v", response.StatusCode, got)
		}
	})
}
