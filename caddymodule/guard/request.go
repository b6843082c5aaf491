package guard

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// CheckPath rejects a request with a path that the FHIR server could interpret differently, because the access decision must
// apply to the path that is served (caddy #4407, CVE-2024-1132). The [*Error] has status 400 and [ErrAmbiguousPath]. No FHIR
// path (R4 §3.1.0.1) needs:
//
//   - dot segments and empty segments, which some servers remove;
//   - slashes, backslashes, percent signs and control characters, encoded or not, which some servers decode twice;
//   - semicolons, after which Java servers expect parameters;
//   - invalid UTF-8;
//   - the FHIR base in different case, which is another path on a case-sensitive server.
//
// TRACE and CONNECT are rejected with 405: TRACE would return headers that the gateway added, and CONNECT is for proxies.
func CheckPath(r *http.Request, base string) error {
	if r.Method == http.MethodTrace || r.Method == http.MethodConnect {
		return &Error{Status: http.StatusMethodNotAllowed, Description: "This method is not supported.", Err: fmt.Errorf("%w: %s", ErrAmbiguousPath, r.Method)}
	}
	path := r.URL.Path
	switch {
	case !utf8.ValidString(path), isAmbiguous(path), hasEncodedSlash(r.URL):
		return badRequest("The path contains an ambiguous character.", ErrAmbiguousPath)
	case hasEmptyOrDots(path):
		return badRequest("The path contains an empty segment or a dot segment.", ErrAmbiguousPath)
	case len(path) >= len(base) && path[:len(base)] != base && strings.EqualFold(path[:len(base)], base):
		return badRequest("The path differs from the FHIR base in upper or lower case.", ErrAmbiguousPath)
	}
	return nil
}

// isAmbiguous reports whether a decoded path contains an ambiguous character. A percent sign was encoded, and would begin an
// escape sequence if the path were decoded again.
func isAmbiguous(path string) bool {
	for i := range len(path) {
		if c := path[i]; c < ' ' || c == 0x7f || c == '\\' || c == ';' || c == '%' {
			return true
		}
	}
	return false
}

// hasEncodedSlash reports whether the path contains %2F: some servers treat it as part of a segment, others as a separator. The
// RawPath of a URL without escapes is empty.
func hasEncodedSlash(u *url.URL) bool {
	return u.RawPath != "" && strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// hasEmptyOrDots reports whether a segment is a dot segment, or is empty but neither the first nor the last.
func hasEmptyOrDots(path string) bool {
	if path != "" && path[0] == '/' && !strings.Contains(path, "/.") {
		return strings.Contains(path, "//") // fast path: segments rarely begin with a dot
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return strings.Contains(path, "//")
}

// hopByHopTargets are other headers that backends rely on. If a client lists one of them in Connection, a proxy removes it
// (CVE-2024-45410).
var hopByHopTargets = []string{"Authorization", "Forwarded", "X-Forwarded-*", "X-Real-IP"}

// forwardFHIR stands for all headers of FHIR's REST API in the parameter forwarded of [NewIdentityHeaders].
const forwardFHIR = "fhir"

// IdentityHeaders contains the rules for request headers that clients may not send. Names are case-insensitive; _ and . are
// treated like -, because CGI and its successors map X-User and X_User to the same variable (CVE-2025-64484).
type IdentityHeaders struct {
	removed     headerNames
	defaults    headerNames
	forwarded   headerNames
	hopByHop    headerNames
	cachedRules map[string]headerRule // rules for common headers by canonical name
}

type headerRule uint8

const (
	headerForwarded headerRule = iota
	headerForwardedFromProxy
	headerRemoved
)

// NewIdentityHeaders returns rules that remove the usual identity headers and those in removed, e.g. a header in which the
// caller sends the user to the FHIR server. Only the headers in forwarded pass (default: the headers of FHIR's REST API), in
// addition to those that describe the body, the connection or the request's origin. A usual identity header passes only if
// forwarded contains its full name. An asterisk at the beginning or end of a name matches any text.
func NewIdentityHeaders(removed, forwarded []string) *IdentityHeaders {
	if len(forwarded) == 0 {
		forwarded = []string{forwardFHIR}
	}
	if i := slices.Index(forwarded, forwardFHIR); i >= 0 {
		forwarded = slices.Replace(slices.Clone(forwarded), i, i+1, fhirHeaders...)
	}
	h := &IdentityHeaders{
		removed: newHeaderNames(removed), defaults: newHeaderNames(defaultIdentityHeaders),
		forwarded:   newHeaderNames(forwarded),
		hopByHop:    newHeaderNames(slices.Concat(defaultIdentityHeaders, hopByHopTargets, removed)),
		cachedRules: map[string]headerRule{},
	}
	common := newHeaderNames(slices.Concat(forwarded, fhirHeaders, browserHeaders))
	for _, set := range []headerNames{common, addressHeaders, caddyHeaders, messageHeaders, h.defaults} {
		for name := range set.exact {
			h.cachedRules[http.CanonicalHeaderKey(name)] = h.rule([]byte(name))
		}
	}
	return h
}

// rule returns the rule for a header with this folded name.
func (i *IdentityHeaders) rule(folded []byte) headerRule {
	switch {
	case i.removed.matchesFolded(folded):
		return headerRemoved
	case caddyHeaders.matchesFolded(folded):
		return headerForwarded
	case addressHeaders.matchesFolded(folded):
		return headerForwardedFromProxy
	case messageHeaders.matchesFolded(folded), i.forwarded.hasExactly(folded):
		return headerForwarded
	case i.defaults.matchesFolded(folded), !i.forwarded.matchesFolded(folded):
		return headerRemoved
	}
	return headerForwarded
}

// Strip removes the identity headers from h, whatever their number and spelling. It also removes the headers with the client's
// address, unless a trusted proxy sent them: a client could forge the address in the FHIR server's audit events or the links in
// its responses (RFC 7239 §8.1).
func (i *IdentityHeaders) Strip(h http.Header, byTrustedProxy bool) {
	var buffer [64]byte
	for name := range h {
		rule, isCached := i.cachedRules[name]
		if !isCached {
			rule = i.rule(appendFolded(buffer[:0], name))
		}
		if rule == headerRemoved || rule == headerForwardedFromProxy && !byTrustedProxy {
			delete(h, name)
		}
	}
}

// Check rejects a request with a Connection header that lists an identity header, Authorization, or another header that
// backends rely on: the next proxy would remove it. The [*Error] has status 400.
func (i *IdentityHeaders) Check(r *http.Request) error {
	for _, value := range r.Header["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			if i.hopByHop.has(strings.Trim(option, " \t")) {
				return badRequest("The Connection header lists a header that must not be removed.",
					fmt.Errorf("%w: Connection header", errHopByHop))
			}
		}
	}
	return nil
}

// headerNames is a set of header names and patterns.
type headerNames struct {
	exact                       map[string]struct{}
	prefixes, suffixes, anyPart []string
}

// newHeaderNames returns a set of names. An asterisk at the beginning or end of a name matches any text.
func newHeaderNames(names []string) headerNames {
	set := headerNames{exact: make(map[string]struct{}, len(names))}
	for _, name := range names {
		folded, isSuffix := strings.CutPrefix(string(appendFolded(nil, name)), "*")
		part, isPrefix := strings.CutSuffix(folded, "*")
		switch {
		case isSuffix && isPrefix:
			set.anyPart = append(set.anyPart, part)
		case isSuffix:
			set.suffixes = append(set.suffixes, folded)
		case isPrefix:
			set.prefixes = append(set.prefixes, part)
		default:
			set.exact[folded] = struct{}{}
		}
	}
	return set
}

// CheckHeaderPattern returns an error unless a text is a header name (RFC 9110 §5.1), optionally with an asterisk at its
// beginning or end. Any other pattern would not match any header.
func CheckHeaderPattern(text string) error {
	name := strings.TrimSuffix(strings.TrimPrefix(text, "*"), "*")
	if text == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}*`, r) }) {
		return fmt.Errorf("invalid header name %q: only the first or last character may be *", text)
	}
	return nil
}

// has reports whether the set matches a name in any spelling.
func (n headerNames) has(name string) bool {
	var buffer [64]byte
	return n.matchesFolded(appendFolded(buffer[:0], name))
}

// hasExactly reports whether the set contains the full folded name.
func (n headerNames) hasExactly(folded []byte) bool {
	_, ok := n.exact[string(folded)]
	return ok
}

// matchesFolded reports whether the set contains a folded name or a pattern that matches it.
func (n headerNames) matchesFolded(folded []byte) bool {
	if n.hasExactly(folded) {
		return true
	}
	for _, prefix := range n.prefixes {
		if len(folded) >= len(prefix) && string(folded[:len(prefix)]) == prefix {
			return true
		}
	}
	for _, suffix := range n.suffixes {
		if len(folded) >= len(suffix) && string(folded[len(folded)-len(suffix):]) == suffix {
			return true
		}
	}
	for _, part := range n.anyPart {
		if bytes.Contains(folded, []byte(part)) {
			return true
		}
	}
	return false
}

// appendFolded appends a name in lower case, with _ and . replaced by -.
func appendFolded(dst []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '_' || c == '.':
			c = '-'
		}
		dst = append(dst, c)
	}
	return dst
}

// defaultIdentityHeaders are the request headers in which proxies send the user or the original request to backends. Clients
// could forge them.
var defaultIdentityHeaders = []string{
	// Authelia; successors of CGI's REMOTE_USER; Kubernetes front proxies.
	"Remote-*", "X-Remote-*", "Impersonate-*",
	// oauth2-proxy, alone and behind nginx; Traefik and its guides; all forwarding headers of proxies, except those with
	// addresses, which [IdentityHeaders.Strip] handles.
	"X-Forwarded-*", "X-Auth-Request-*", "Gap-*",
	// Keycloak's gatekeepers, LemonLDAP::NG, caddy-security.
	"X-Auth*", "Auth-*", "X-Token-*",
	// Pomerium, authentik, Vouch, Ory Oathkeeper, Teleport, Tyk.
	"X-Pomerium-*", "X-Authentik-*", "X-Vouch-*", "X-Oathkeeper-*", "X-Hydra-*", "X-Kratos-*", "X-Ory-*", "X-Teleport-*", "Teleport-*", "X-Tyk-*",
	// Cloudflare Access, Tailscale.
	"Cf-Access-*", "Tailscale-*",
	// Apache: mod_auth_openidc, mod_auth_mellon, Shibboleth, CAS.
	"OIDC-*", "X-OIDC-*", "Mellon-*", "Shib-*", "X-Shib-*", "X-SAML-*", "CAS-*",
	// Shibboleth's attributes, from its attribute-map.xml.
	"EPPN", "EduPerson*", "Affiliation", "Unscoped-Affiliation", "Primary-Affiliation", "Entitlement", "Persistent-ID", "Targeted-ID",
	"Pairwise-ID", "Subject-ID", "UID", "Mail", "MemberOf", "Assurance",
	// SiteMinder, Oracle Access Manager, IBM WebSEAL.
	"SM-*", "SMUser", "OAM-*", "IV-*",
	// Kong, APISIX, Apigee; Istio and Envoy.
	"X-Authenticated-*", "X-Consumer-*", "X-Anonymous-Consumer", "X-Credential-*", "X-Access-Token", "X-ID-Token",
	"X-Refresh-Token", "X-Apigee-*", "X-JWT*", "Sec-Istio-*", "X-Istio-*", "X-Envoy-*", "X-Ext-Authz*",
	// Google, Azure and Amazon, for the services that they host.
	"X-Goog-*", "X-Endpoint-API-*", "X-Apigateway-*", "X-Appengine-*", "X-Serverless-Authorization",
	"X-MS-Client-Principal*", "X-MS-Token-*", "X-Amzn-OIDC-*", "X-Amzn-MTLS-*", "X-Amzn-Ava-*",
	"X-Amzn-Apigateway-*", "X-Amzn-Request-Context", "X-Amzn-RequestContext", "X-Amzn-Lambda-Context", "X-Amz-Cognito-*", "X-Cognito-*",
	"X-MS-Auth-*", "X-Zumo-*", "X-ARR-*", "X-Azure-FDID",
	// F5 BIG-IP APM, Citrix NetScaler, Okta Access Gateway, WSO2, API Umbrella.
	"X-F5-*", "F5-*", "X-APM-*", "X-LogonName", "X-Citrix-*", "Citrix-*", "NSC-*", "X-NSC-*", "AAA-*", "X-NetScaler-*",
	"X-Okta-*", "Okta-*", "OAG-*", "X-OAG-*", "X-WSO2-*", "X-Api-User*", "X-Api-Roles", "X-Api-Umbrella-*",
	// Client certificates: Envoy; RFC 9440 §4, which requires removing them; guides for nginx, HAProxy and Traefik; Azure.
	"*Client-Cert*", "*ClientCert*", "X-Client-DN*", "X-Client-Verif*", "SSL-*", "X-SSL-*", "X-TLS-*",
	"X-Cert*", "X-Peer-Cert*", "X-Mtls-*", "Mtls-*", "*-Spiffe-ID", "X-Client-S-DN", "X-Client-CN",
	// Grafana's auth proxy, and custom proxies.
	"X-WebAuth-*", "X-User*", "X-Role*", "X-Group*", "X-Email*", "X-Scope*", "X-Permission*", "X-Subject*",
	"X-Principal*", "X-Identity*", "X-Claim*", "X-Impersonat*", "X-OAuth*", "X-OpenID*", "X-Proxy-User*", "*On-Behalf-Of",
	"*-User", "*-UserID", "*-User-ID", "*-Username", "*-User-Name", "*-User-Email", "*-User-Groups", "*-User-Roles", "*-Groups", "*-Role", "*-Roles",
	"*-Subject", "*-Principal", "*-Claims", "*-Identity", "*-Authorization", "User", "UserID", "User-ID", "Username", "User-Name", "User-Email", "Groups",
	"Role", "Roles", "Permissions", "X-Sub", "X-UID", "X-Login*", "X-Actor*", "X-Account*", "X-Admin*", "X-Is-Admin", "X-Superuser", "X-Sudo",
	"Sudo", "X-Run-As", "RunAs", "X-Act-As", "X-Assume-*", "X-Delegat*", "X-Caller*", "X-Requester*", "X-Internal-*", "X-Service-Account*",
	"X-Gateway-*", "X-Client-ID",
	// FHIR servers and gateways: tenant (HAPI, Smile CDR, IBM), and impersonated user (Aidbox, Epic, Google's consent).
	"X-FHIR-*", "X-HAPI-*", "X-Smile-*", "X-Tenant*", "*-Tenant-ID", "Tenant", "Tenant-ID", "X-Partition*", "Partition", "X-Realm", "Realm", "X-Patient*", "X-Practitioner*", "X-Organization*", "SU",
	"Epic-User-*", "Epic-MyChartUser-*", "X-Consent-Scope",
	// Method overrides: the guard would check a GET, but the server would process a DELETE.
	"X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override", "X-Original-Method",
	// Path overrides: the guard would check one path, but the server would process another (CVE-2026-40575).
	"X-Original-URL", "X-Original-URI", "X-Rewrite-URL",
}

// addressHeaders are the headers in which proxies send the client's address and the address that the client requested.
var addressHeaders = newHeaderNames([]string{
	"Forwarded", "X-Real-IP", "X-Client-IP", "X-Cluster-Client-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP", "Client-IP", "X-Azure-ClientIP", "X-Azure-SocketIP",
	"X-Forwarded", "X-Forwarded-By", "X-Forwarded-Port", "X-Forwarded-Scheme", "X-Forwarded-Server", "X-Forwarded-Ssl",
	"X-Original-Forwarded-For", "X-Original-Host",
})

// caddyHeaders are the address headers that Caddy sets itself.
var caddyHeaders = newHeaderNames([]string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"})

// messageHeaders describe the body and the connection. A request without them could have a different meaning. Authorization is
// removed separately.
var messageHeaders = newHeaderNames([]string{
	"Authorization", "Connection", "Upgrade", "Sec-WebSocket-*", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Expect", "TE",
})

// fhirHeaders are the request headers of FHIR's REST API (FHIR R4 §3.1.0.1), of CORS and of tracing. X-Provenance is excluded
// because it makes the server write a resource without a check of its scopes.
var fhirHeaders = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "If-Match",
	"If-Modified-Since", "If-None-Exist", "If-None-Match", "Origin", "Prefer", "Range", "User-Agent",
	"X-Request-Id", "X-Correlation-Id", "X-Security-Context", "Traceparent", "Tracestate",
	"Access-Control-Request-Headers", "Access-Control-Request-Method",
}

// browserHeaders are other headers that browsers commonly send.
var browserHeaders = []string{
	"Cookie", "DNT", "Pragma", "Priority", "Referer", "Sec-CH-UA", "Sec-CH-UA-Mobile", "Sec-CH-UA-Platform", "Sec-Fetch-Dest",
	"Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-GPC", "Via",
}

// StripBody removes the body of a request that does not need one. A server that does not read the body from a persistent
// connection would interpret it as the next request, which no guard has checked (request smuggling).
func StripBody(r *http.Request) {
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = http.NoBody, 0, nil, nil
	r.Header.Del("Content-Length")
}

// StripCredentials removes the credentials of a request that needs none: the backend could accept them unverified.
func StripCredentials(h http.Header) {
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
		h.Del(name)
	}
}

// StripTrailers removes the trailers: they arrive after [IdentityHeaders.Strip], and some servers merge them into the headers
// (RFC 9110 §6.5.1). Filtering the announced names would not suffice, because HTTP/1.1 clients can send unannounced trailers.
// FHIR does not use trailers.
func StripTrailers(r *http.Request) { r.Trailer = nil }

// StripCookies removes the cookies with names that begin with prefix, which are those of the gateway's own sign-in: a backend
// that gets them could impersonate the user.
func StripCookies(h http.Header, prefix string) {
	lines := h["Cookie"]
	if len(lines) == 0 {
		return
	}
	var remaining []string
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			if pair = strings.TrimSpace(pair); pair != "" && !strings.HasPrefix(pair, prefix) {
				remaining = append(remaining, pair)
			}
		}
	}
	h.Del("Cookie")
	if len(remaining) > 0 {
		h.Set("Cookie", strings.Join(remaining, "; "))
	}
}

// StripUpgrade removes the request to switch protocols, which a server may ignore (RFC 9110 §7.8). Data after the switch
// bypasses the guard; with cleartext HTTP/2 (h2c), that includes complete requests. WebSocket, which FHIR subscriptions use and
// which carries no requests, may stay if a token was verified.
func StripUpgrade(h http.Header, webSocket bool) {
	protocols := h["Upgrade"] // canonical form of net/http; Header.Get would have to canonicalize the name
	if webSocket && len(protocols) == 1 && strings.EqualFold(protocols[0], "websocket") {
		return
	}
	delete(h, "Upgrade")
	delete(h, "Http2-Settings")
}

// maxTokenSize is the maximum size of a token in bytes.
const maxTokenSize = 8 << 10

// Bearer returns the bearer token from the Authorization header (RFC 6750 §2.1); tokens elsewhere are not accepted. Errors are
// of type [*Error]:
//
//   - 401 and [ErrNoToken] if the header is missing or has a different scheme;
//   - 400 if there are several headers, if the header is not a single token, or if the query has an access_token (§2.3), which
//     would appear in logs, histories and Referer headers.
func Bearer(r *http.Request) (string, error) {
	if queryHasToken(r.URL.RawQuery) {
		return "", badRequest("The access token must not be sent in the query.",
			fmt.Errorf("%w: access_token in the query string", errInvalidRequest))
	}
	credentials := r.Header["Authorization"]
	if len(credentials) == 0 {
		return "", missingToken(ErrNoToken)
	}
	if len(credentials) > 1 {
		// The next server could use the other header.
		return "", badRequest("Send the Authorization header only once.",
			fmt.Errorf("%w: %d Authorization headers", errInvalidRequest, len(credentials)))
	}
	scheme, token, _ := strings.Cut(credentials[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", missingToken(fmt.Errorf("%w: unsupported authentication scheme", ErrNoToken))
	}
	token = strings.Trim(token, " ")
	if len(token) > maxTokenSize || !isB64Token(token) {
		return "", badRequest("The Authorization header must contain exactly one bearer token.",
			fmt.Errorf("%w: not a single b64token of at most %d bytes", errInvalidRequest, maxTokenSize))
	}
	return token, nil
}

// isB64Token reports whether s is a b64token (RFC 6750 §2.1):
//
//	1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / "+" / "/" ) *"="
func isB64Token(s string) bool {
	s = strings.TrimRight(s, "=")
	var invalid byte // no branch per character, because tokens are long
	for i := range len(s) {
		invalid |= nonB64Characters[s[i]]
	}
	return s != "" && invalid == 0
}

// nonB64Characters is 1 for all characters that a b64token cannot contain before the trailing equals signs.
var nonB64Characters = func() (not [256]byte) {
	for i := range not {
		not[i] = 1
	}
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/" {
		not[c] = 0
	}
	return not
}()

// queryHasToken reports whether a query contains the access_token parameter in any spelling that a backend may accept.
func queryHasToken(query string) bool {
	for query != "" {
		end := 0
		for end < len(query) && query[end] != '&' && query[end] != ';' {
			end++
		}
		name, _, _ := strings.Cut(query[:end], "=")
		query = query[min(end+1, len(query)):]
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		if strings.EqualFold(name, "access_token") {
			return true
		}
	}
	return false
}
