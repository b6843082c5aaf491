package guard

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestCheckPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		target string
		ok     bool
	}{
		{"/fhir/R4", true},
		{"/fhir/R4/", true},
		{"/fhir/R4/Patient/1/_history/2?x=%2f..;", true},
		{"/fhir/R4/ValueSet/$expand", true},
		{"/fhir/R4/ValueSet/%24expand", true},
		{"/fhir/R4/Patient/a.b", true},
		{"/other/R4/x", true},
		{"/fhir/R4/../admin", false},
		{"/fhir/R4/..", false},
		{"/fhir/R4/./x", false},
		{"/fhir/R4/%2e%2e/admin", false},
		{"/fhir/R4/%252e%252e/admin", false},
		{"/fhir/R4/..;/admin", false},
		{"/fhir/R4/Patient;a=b", false},
		{"/fhir/R4/Patient//1", false},
		{"//fhir/R4/Patient", false},
		{"/fhir/R4/Patient%2F1", false},
		{"/fhir/R4%2fmetadata", false},
		{"/fhir/R4/..%5cadmin", false},
		{"/fhir/R4/Patient/%00", false},
		{"/fhir/R4/Patient/%0a", false},
		{"/fhir/R4/Patient/%ff", false},
		{"/FHIR/r4/Patient", false},
		{"/fhir/r4", false},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(http.MethodGet, "http://x"+tt.target, nil)
		err := CheckPath(r, "/fhir/R4")
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrAmbiguousPath) {
			t.Errorf("%s: %v", tt.target, err)
		}
	}
}

func TestCheckMethod(t *testing.T) {
	t.Parallel()
	for method, ok := range map[string]bool{"GET": true, "PATCH": true, "OPTIONS": true, "TRACE": false, "CONNECT": false} {
		r := httptest.NewRequest("GET", "/fhir/R4/x", nil)
		r.Method = method
		var refused *Error
		if err := CheckPath(r, "/fhir/R4"); (err == nil) != ok || errors.As(err, &refused) && refused.Status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestStripCookies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cookies []string
		want    []string
	}{
		{nil, nil},
		{[]string{"a=b"}, []string{"a=b"}},
		{[]string{"__Host-fhir-session=s; a=b"}, []string{"a=b"}},
		{[]string{"a=b; __Host-fhir-session=s", "__Host-fhir-away-x-0=y; c=d"}, []string{"a=b; c=d"}},
		{[]string{"__Host-fhir-session=s"}, nil},
		{[]string{" __Host-fhir-session=s ;;"}, nil},
	}
	for _, tt := range tests {
		h := http.Header{"Cookie": tt.cookies}
		StripCookies(h, "__Host-fhir-")
		if got := h.Values("Cookie"); len(got) != len(tt.want) || len(got) == 1 && got[0] != tt.want[0] {
			t.Errorf("%q leaves %q, want %q", tt.cookies, got, tt.want)
		}
	}
}

func TestStrip(t *testing.T) {
	t.Parallel()
	headers := NewIdentityHeaders([]string{"X-Ward", "X-Acme-*", "*-Badge"}, []string{"*"})
	for _, name := range []string{
		"Remote-User", "Remote-Groups", "Remote-Email", "Remote-Name", "X-Remote-User", "X-Remote-Extra-Scopes",
		"X-Forwarded-User", "X-Forwarded-Groups", "X-Forwarded-Email", "X-Forwarded-Preferred-Username",
		"X-Forwarded-Access-Token", "X-Auth-Request-User", "X-Authenticated-Userid", "X-User", "X-User-Id", "X-Userid",
		"X-Webauth-User", "X-Consumer-Username", "X-Fhir-User", "X-Http-Method", "X-Http-Method-Override",
		"X-Method-Override", "X-Original-Url", "X-Original-Uri", "X-Original-Method", "X-Rewrite-Url",
		"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Prefix", "X-Forwarded-Path", "X-Goog-Authenticated-User-Email", "X-Goog-Iap-Jwt-Assertion",
		"X-Ms-Client-Principal", "X-Ms-Client-Principal-Name", "X-Amzn-Oidc-Identity", "Client-Cert",
		"Client-Cert-Chain", "X-Forwarded-Client-Cert", "X-Ssl-Client-Dn",
		"X-Auth-Roles", "X-Auth-Userid", "Auth-User", "X-Token-Subject", "X-Pomerium-Jwt-Assertion", "X-Authentik-Groups",
		"X-Vouch-User", "Cf-Access-Jwt-Assertion", "Cf-Access-Authenticated-User-Email", "Tailscale-User-Login", "Oidc-Claim-Sub",
		"OIDC_CLAIM_sub", "X-Credential-Identifier", "X-Anonymous-Consumer", "X-Endpoint-Api-Userinfo", "X-Apigateway-Api-Userinfo",
		"X-Client-Cert", "Ssl-Client-Cert", "X-Arr-Clientcert", "X-Forwarded-Tls-Client-Cert-Info", "X-Amzn-Mtls-Clientcert",
		"X-Client-Dn", "X-Ssl-Cert", "X-Forwarded-Role", "X-Forwarded-Roles", "X-Forwarded-Anything", "X-Tenant-Id", "X-Tenant",
		"X-Partition-Id", "X-Patient-Id", "X-Ms-Token-Aad-Access-Token", "X-Amzn-Ava-User-Context", "X-Goog-Api-Client",
		"X-Jwt-Payload", "Sec-Istio-Auth-Userinfo", "X-Envoy-Original-Path", "Shib-Session-Id", "Sm-User", "Iv-User", "Oam-Remote-User",
		"X-Access-Token", "X-Id-Token", "X-Roles", "X-Groups", "X-Email", "X-Scopes", "X-Claim-Sub", "X-Impersonate-User",
		"Impersonate-User", "X-Medplum-On-Behalf-Of", "Su", "Epic-User-Id", "Remote-Addr",
		"X-Auth", "X-Authorization", "X-Authz", "X-Jwt", "X-Apm-User", "X-F5-Auth", "X-Citrix-User", "Aaa-User", "Okta-User", "Oag-User", "Smuser", "SMUSER",
		"Eppn", "Edupersonprincipalname", "Unscoped-Affiliation", "Uid", "Mail", "X-Amzn-Apigateway-Api-Id", "X-Amzn-Requestcontext", "X-Cognito-Identity-Id",
		"X-Zumo-Auth", "X-Azure-Fdid", "X-Hydra-Subject", "X-Ext-Authz", "X-Peer-Cert", "X-Spiffe-Id", "X-Wso2-Auth", "X-Krakend-User", "X-Acme-User-Id",
		"X-Acme-Principal", "X-Api-User-Id", "X-Hapi-User", "X-Request-Tenant-Id", "Tenant-Id", "Realm", "User", "Username", "Roles", "X-Sub", "X-Actor",
		"X-Account-Id", "X-Is-Admin", "X-Run-As", "X-Internal-Token", "X-Gateway-Auth", "X-Client-Id", "Client-Ip", "X-Azure-Clientip", "CF_Authorization",
		"X-Ward", "X-Acme-Role", "Nurse-Badge",
		"REMOTE_USER", "remote.user", "x_forwarded.user", "X_User_Id", "X_WARD", "x.acme.role", "nurse_badge",
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
	t.Parallel()
	headers := NewIdentityHeaders(nil, []string{"*"})
	for _, name := range []string{
		"Authorization", "Accept", "User-Agent", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded",
		"X-Request-Id", "X-Correlation-Id", "Remote", "If-Match", "If-None-Exist", "Prefer", "X-Ward", "X-Progress", "Cookie",
		"X-Amzn-Trace-Id", "X-B3-Traceid", "Sec-Fetch-Site", "Sec-Websocket-Key", "Content-Type", "X-Cascade", "X-Requested-With",
		"X-Ms-Azurefhir-Audit-Site", "X-Provenance", "Idempotency-Key", "Traceparent", "Baggage", "Content-Language", "X-Ms-Client-Request-Id",
		"X-Amz-User-Agent", "X-Client-Version", "X-Retry-On-Version-Conflict", "X-Meta-Snapshot-Mode", "X-Upsert-Extension-Mode", "Epic-Client-Id",
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

// Only the listed headers and the headers that the request requires are forwarded.
func TestForward(t *testing.T) {
	t.Parallel()
	headers := NewIdentityHeaders([]string{"X-Ward"}, []string{forwardFHIR, "X-Trace-*", "X-User-Agent", "X-F*", "X-Ward"})
	for name, want := range map[string]bool{
		"Accept": true, "If-None-Exist": true, "Content-Type": true, "Content-Length": true, "Upgrade": true, "Sec-Websocket-Key": true,
		"X-Trace-Id": true, "x_trace_id": true, "X-Forwarded-For": true, "Authorization": true,
		"X-User-Agent": true,                             // the full name is listed
		"X-Fhir-User":  false, "X-Forwarded-User": false, // only a listed prefix matches
		"X-Ward": false, "X-Cascade": false, "Cookie": false, "X-Anything": false, "Forwarded": false, "X-Real-Ip": false,
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{name: {"a"}}
			headers.Strip(h, false)
			if got := len(h) == 1; got != want {
				t.Errorf("it passes: %v, want %v", got, want)
			}
		})
	}
}

// By default, only headers of FHIR's REST API are forwarded, because any other header may identify a user or a tenant.
func TestForwardByDefault(t *testing.T) {
	t.Parallel()
	headers := NewIdentityHeaders(nil, nil)
	for name, want := range map[string]bool{
		"Accept": true, "Accept-Language": true, "If-Match": true, "If-None-Exist": true, "Prefer": true, "Content-Type": true, "X-Request-Id": true, "X-Security-Context": true,
		"Traceparent": true, "Authorization": true, "Access-Control-Request-Method": true,
		"X-Org": false, "X-Facility": false, "X-Session-Id": false, "X-Launch-Context": false, "X-Api-Key": false, "Cookie": false, "X-Provenance": false,
		"X-User": false, "Forwarded": false,
	} {
		h := http.Header{name: {"a"}}
		if headers.Strip(h, false); (len(h) == 1) != want {
			t.Errorf("%s passes: %v, want %v", name, !want, want)
		}
	}
}

// If forwarded headers are listed without "fhir", the headers that the guard and HTTP require are still forwarded.
func TestForwardOne(t *testing.T) {
	t.Parallel()
	h := http.Header{"Authorization": {"a"}, "Content-Type": {"a"}, "X-Progress": {"a"}, "Accept": {"a"}, "X-User": {"a"}}
	NewIdentityHeaders(nil, []string{"X-Progress"}).Strip(h, false)
	if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, []string{"Authorization", "Content-Type", "X-Progress"}) {
		t.Errorf("left are %q", got)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	headers := NewIdentityHeaders([]string{"X-Ward"}, nil)
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
		{"configured", []string{"X-Ward"}, false},
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
			wantError(t, err, http.StatusBadRequest, "invalid_request", errHopByHop)
		})
	}
}

func BenchmarkStrip(b *testing.B) {
	headers := NewIdentityHeaders([]string{"X-Ward"}, nil)
	h := http.Header{
		"Accept": {"a"}, "Accept-Encoding": {"a"}, "Accept-Language": {"a"}, "Authorization": {"a"}, "Cache-Control": {"a"},
		"Content-Type": {"a"}, "Origin": {"a"}, "Referer": {"a"}, "User-Agent": {"a"}, "X-Forwarded-For": {"a"},
	}
	b.ReportAllocs()
	for b.Loop() {
		headers.Strip(h, false)
	}
}

func TestStripUpgrade(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		upgrade   []string
		webSocket bool
		stays     bool
	}{
		{"none", nil, true, false},
		{"WebSocket", []string{"websocket"}, true, true},
		{"WebSocket, in other letters", []string{"WebSocket"}, true, true},
		{"WebSocket where no token was checked", []string{"websocket"}, false, false},
		{"HTTP/2 in cleartext", []string{"h2c"}, true, false},
		{"one of two", []string{"websocket, h2c"}, true, false},
		{"twice", []string{"websocket", "h2c"}, true, false},
		{"TLS", []string{"TLS/1.0"}, true, false},
		{"an empty one first", []string{"", "h2c"}, true, false},
		{"with a space", []string{"h2c "}, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{"Upgrade": tt.upgrade, "Http2-Settings": {"AAMAAABkAAQAAP__"}}
			StripUpgrade(h, tt.webSocket)
			if got := len(h["Upgrade"]) > 0; got != tt.stays {
				t.Errorf("left is %q", h["Upgrade"])
			}
			if _, ok := h["Http2-Settings"]; ok != tt.stays {
				t.Errorf("HTTP2-Settings left: %t", ok)
			}
		})
	}
}

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
				code, want = "invalid_request", errInvalidRequest
			}
			wantError(t, err, test.status, code, want)
			if got != "" {
				t.Errorf("a token is returned with the error: %q", got)
			}
		})
	}
}

// A token in a form body is ignored.
func TestBearerForm(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("access_token=a"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err := Bearer(r)
	wantError(t, err, http.StatusUnauthorized, "", ErrNoToken)
}

// request returns a request with the given Authorization headers.
func request(target string, authorization ...string) *http.Request {
	path, query, _ := strings.Cut(target, "?")
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query}, Header: make(http.Header)}
	if authorization != nil {
		r.Header["Authorization"] = authorization
	}
	return r
}

// FuzzBearer fuzzes headers and queries. Only the minted token may be accepted.
func FuzzBearer(f *testing.F) {
	v := testVerifier()
	v.Cache = NewTokenCache(8)
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
