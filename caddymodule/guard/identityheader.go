package guard

import (
	"fmt"
	"net/http"
	"strings"
)

// defaultIdentityHeaders are the request headers in which proxies tell the
// servers behind them who is asking, or which request was meant. From a client
// they are forgeries. A * at the end stands for any rest.
var defaultIdentityHeaders = []string{
	// Authelia; and what CGI's REMOTE_USER became.
	"Remote-User", "Remote-Groups", "Remote-Email", "Remote-Name",
	// Front proxies as Kubernetes' API server knows them.
	"X-Remote-*",
	// oauth2-proxy, and the guides for Traefik.
	"X-Forwarded-User", "X-Forwarded-Groups", "X-Forwarded-Email",
	"X-Forwarded-Preferred-Username", "X-Forwarded-Access-Token",
	// oauth2-proxy behind nginx.
	"X-Auth-Request-*",
	// Kong; Grafana's auth proxy; hand-made ones (X-User, X-UserId, X-User-Roles).
	"X-Authenticated-*", "X-Consumer-*", "X-WebAuth-User", "X-User*",
	// What Google, Azure and Amazon set in front of what they host.
	"X-Goog-Authenticated-User-*", "X-Goog-IAP-*", "X-MS-Client-Principal*", "X-Amzn-OIDC-*",
	// Client certificates: Envoy; RFC 9440 §4, which demands it; nginx' guides.
	"X-Forwarded-Client-Cert", "Client-Cert", "Client-Cert-Chain", "X-SSL-Client-*",
	// What a FHIR gateway tells its server.
	"X-Fhir-*",
	// Decided upon as GET, carried out as DELETE.
	"X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override",
	"X-Original-Method", "X-Forwarded-Method",
	// Decided upon for one path, carried out for another (CVE-2026-40575).
	"X-Original-URL", "X-Original-URI", "X-Rewrite-URL", "X-Forwarded-Uri",
	// Of which HAPI and Spring make the addresses in their answers.
	"X-Forwarded-Prefix", "X-Forwarded-Path",
}

// addressHeaders are those in which proxies tell where a request came from and by which
// address, but for X-Forwarded-For, -Proto and -Host, which Caddy sees to.
var addressHeaders = newHeaderNames([]string{
	"Forwarded", "X-Real-IP", "X-Client-IP", "X-Cluster-Client-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP",
	"X-Forwarded", "X-Forwarded-By", "X-Forwarded-Port", "X-Forwarded-Scheme", "X-Forwarded-Server", "X-Forwarded-Ssl",
	"X-Original-Forwarded-For", "X-Original-Host",
})

// hopByHopTargets are the other headers that the servers behind us rely on.
// To name one in Connection makes a proxy remove it on the way (CVE-2024-45410).
var hopByHopTargets = []string{"Authorization", "Forwarded", "X-Forwarded-*", "X-Real-IP"}

// IdentityHeaders knows the request headers that a client must not send. Names
// are compared without regard to case, and with _ and . read as -, as CGI and
// its heirs make one variable of X-User and X_User (CVE-2025-64484).
type IdentityHeaders struct {
	identities headerNames
	hopByHop   headerNames
}

// NewIdentityHeaders knows the usual identity headers and the given ones, such
// as those in which the caller tells the next server who is asking. A * at the
// end of a name stands for any rest.
func NewIdentityHeaders(names ...string) *IdentityHeaders {
	identities := append(append([]string(nil), defaultIdentityHeaders...), names...)
	return &IdentityHeaders{
		identities: newHeaderNames(identities),
		hopByHop:   newHeaderNames(append(identities, hopByHopTargets...)),
	}
}

// Strip removes the identity headers from h, however often and in whatever
// spelling they stand there. So it does with those in which proxies tell where a
// request came from, unless it came by a proxy that is trusted: from anybody else they
// are made up, to have the server behind us write another address into its audit
// events, or into the links of its answers (RFC 7239 §8.1).
func (i *IdentityHeaders) Strip(h http.Header, byTrustedProxy bool) {
	var buffer [64]byte
	for name := range h {
		folded := appendFolded(buffer[:0], name)
		if i.identities.hasFolded(folded) || !byTrustedProxy && addressHeaders.hasFolded(folded) {
			delete(h, name)
		}
	}
}

// Check refuses a request with an [*Error] of status 400 and [ErrHopByHop]
// when its Connection header names an identity header, Authorization, or
// another header the servers behind us rely on: a proxy would remove it after
// we have set it.
func (i *IdentityHeaders) Check(r *http.Request) error {
	for _, value := range r.Header["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			if i.hopByHop.has(strings.Trim(option, " \t")) {
				return badRequest("The Connection header names a header that must arrive.",
					fmt.Errorf("%w: Connection", ErrHopByHop))
			}
		}
	}
	return nil
}
