package guard

import (
	"maps"
	"net/http"
	"slices"
	"testing"
)

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

// Where headers are named that go on, no others do, but for those without which the
// request would be another.
func TestForward(t *testing.T) {
	t.Parallel()
	headers := NewIdentityHeaders([]string{"X-Ward"}, []string{forwardFHIR, "X-Trace-*", "X-User-Agent", "X-F*", "X-Ward"})
	for name, want := range map[string]bool{
		"Accept": true, "If-None-Exist": true, "Content-Type": true, "Content-Length": true, "Upgrade": true, "Sec-Websocket-Key": true,
		"X-Trace-Id": true, "x_trace_id": true, "X-Forwarded-For": true, "Authorization": true,
		"X-User-Agent": true,                             // named in full
		"X-Fhir-User":  false, "X-Forwarded-User": false, // named by a beginning alone
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

// By default, what FHIR does not know does not pass: any header may tell a FHIR server who asks, or
// for whom.
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

// Without the word fhir, what the guard and HTTP need is still there.
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
