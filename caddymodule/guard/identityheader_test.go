package guard

import (
	"maps"
	"net/http"
	"slices"
	"testing"
)

func TestStrip(t *testing.T) {
	headers := NewIdentityHeaders("X-Tenant", "X-Acme-*")
	for _, name := range []string{
		"Remote-User", "Remote-Groups", "Remote-Email", "Remote-Name", "X-Remote-User", "X-Remote-Extra-Scopes",
		"X-Forwarded-User", "X-Forwarded-Groups", "X-Forwarded-Email", "X-Forwarded-Preferred-Username",
		"X-Forwarded-Access-Token", "X-Auth-Request-User", "X-Authenticated-Userid", "X-User", "X-User-Id", "X-Userid",
		"X-Webauth-User", "X-Consumer-Username", "X-Fhir-User", "X-Http-Method", "X-Http-Method-Override",
		"X-Method-Override", "X-Original-Url", "X-Original-Uri", "X-Original-Method", "X-Rewrite-Url",
		"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Prefix", "X-Forwarded-Path", "X-Goog-Authenticated-User-Email", "X-Goog-Iap-Jwt-Assertion",
		"X-Ms-Client-Principal", "X-Ms-Client-Principal-Name", "X-Amzn-Oidc-Identity", "Client-Cert",
		"Client-Cert-Chain", "X-Forwarded-Client-Cert", "X-Ssl-Client-Dn",
		"X-Tenant", "X-Acme-Role",
		"REMOTE_USER", "remote.user", "x_forwarded.user", "X_User_Id", "X_TENANT", "x.acme.role",
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{name: {"admin", "root"}, "Accept": {"a", "b"}}
			headers.Strip(h, false)
			if got := slices.Collect(maps.Keys(h)); !slices.Equal(got, []string{"Accept"}) {
				t.Errorf("left are %q", got)
			}
		})
	}
}

func TestStripKeeps(t *testing.T) {
	headers := NewIdentityHeaders()
	for _, name := range []string{
		"Authorization", "Accept", "User-Agent", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded",
		"X-Request-Id", "X-Correlation-Id", "Remote", "If-Match", "Prefer", "X-Tenant", "X-Progress", "Cookie",
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{name: {"a"}}
			headers.Strip(h, true)
			if len(h) != 1 {
				t.Error("it is gone")
			}
		})
	}
}

func TestCheck(t *testing.T) {
	headers := NewIdentityHeaders("X-Tenant")
	for _, test := range []struct {
		name       string
		connection []string
		ok         bool
	}{
		{"no Connection", nil, true},
		{"usual", []string{"keep-alive"}, true},
		{"upgrade", []string{"Upgrade, HTTP2-Settings"}, true},
		{"a header of their own", []string{"close, X-Hop"}, true},
		{"identity header", []string{"X-Forwarded-User"}, false},
		{"another case", []string{"x-forwarded-USER"}, false},
		{"with underscores", []string{"X_Forwarded_User"}, false},
		{"in a list", []string{"close,\tX-Fhir-User , keep-alive"}, false},
		{"in the second one", []string{"close", "X-User-Id"}, false},
		{"configured", []string{"X-Tenant"}, false},
		{"authorization", []string{"close, authorization"}, false},
		{"forwarded", []string{"X-Forwarded-Host"}, false},
		{"client address", []string{"X-Real-IP"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &http.Request{Header: make(http.Header)}
			if test.connection != nil {
				r.Header["Connection"] = test.connection
			}
			err := headers.Check(r)
			if test.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, http.StatusBadRequest, "invalid_request", ErrHopByHop)
		})
	}
}

func BenchmarkStrip(b *testing.B) {
	headers := NewIdentityHeaders("X-Tenant")
	h := http.Header{
		"Accept": {"a"}, "Accept-Encoding": {"a"}, "Accept-Language": {"a"}, "Authorization": {"a"}, "Cache-Control": {"a"},
		"Content-Type": {"a"}, "Origin": {"a"}, "Referer": {"a"}, "User-Agent": {"a"}, "X-Forwarded-For": {"a"},
	}
	b.ReportAllocs()
	for b.Loop() {
		headers.Strip(h, false)
	}
}
