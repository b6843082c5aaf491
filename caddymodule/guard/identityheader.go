package guard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// hopByHopTargets are other headers that backends rely on. A client that names one in Connection makes a proxy remove
// it on the way (CVE-2024-45410).
var hopByHopTargets = []string{"Authorization", "Forwarded", "X-Forwarded-*", "X-Real-IP"}

// forwardFHIR stands for the headers of FHIR's REST API in the forwarded names of [NewIdentityHeaders].
const forwardFHIR = "fhir"

// IdentityHeaders knows the request headers that a client must not send. It ignores case and reads _ and . as -, since
// CGI and its successors make one variable of X-User and X_User (CVE-2025-64484).
type IdentityHeaders struct {
	removed   headerNames
	usual     headerNames
	forwarded headerNames
	hopByHop  headerNames
	known     map[string]headerRule // of names that come often, in canonical form, by the rest
}

type headerRule uint8

const (
	headerPasses headerRule = iota
	headerPassesByProxy
	headerIsRemoved
)

// NewIdentityHeaders knows the usual identity headers, and further ones to remove, such as those in which the caller
// tells the next server who is asking. Only forwarded ones pass, those of FHIR's REST API by default, and those that
// describe the body or connection, or the request's origin; a usual identity header is forwarded only if it is named in
// full. A * at the beginning or end of a name matches any rest.
func NewIdentityHeaders(removed, forwarded []string) *IdentityHeaders {
	if len(forwarded) == 0 {
		forwarded = []string{forwardFHIR}
	}
	if i := slices.Index(forwarded, forwardFHIR); i >= 0 {
		forwarded = slices.Replace(slices.Clone(forwarded), i, i+1, fhirHeaders...)
	}
	h := &IdentityHeaders{
		removed: newHeaderNames(removed), usual: newHeaderNames(defaultIdentityHeaders),
		forwarded: newHeaderNames(forwarded),
		hopByHop:  newHeaderNames(slices.Concat(defaultIdentityHeaders, hopByHopTargets, removed)),
		known:     map[string]headerRule{},
	}
	often := newHeaderNames(slices.Concat(forwarded, fhirHeaders, browserHeaders))
	for _, set := range []headerNames{often, addressHeaders, caddyHeaders, messageHeaders, h.usual} {
		for name := range set.exact {
			h.known[http.CanonicalHeaderKey(name)] = h.rule([]byte(name))
		}
	}
	return h
}

// rule says what happens to a header with this folded name.
func (i *IdentityHeaders) rule(folded []byte) headerRule {
	switch {
	case i.removed.hasFolded(folded):
		return headerIsRemoved
	case caddyHeaders.hasFolded(folded):
		return headerPasses
	case addressHeaders.hasFolded(folded):
		return headerPassesByProxy
	case messageHeaders.hasFolded(folded), i.forwarded.hasExactly(folded):
		return headerPasses
	case i.usual.hasFolded(folded), !i.forwarded.hasFolded(folded):
		return headerIsRemoved
	}
	return headerPasses
}

// Strip removes the identity headers from h, in any number and spelling. It also removes the headers in which proxies
// tell where a request came from, unless a trusted proxy sent it: a client could forge the address in the backend's
// audit events, or the links in its answers (RFC 7239 §8.1).
func (i *IdentityHeaders) Strip(h http.Header, byTrustedProxy bool) {
	var buffer [64]byte
	for name := range h {
		rule, known := i.known[name]
		if !known {
			rule = i.rule(appendFolded(buffer[:0], name))
		}
		if rule == headerIsRemoved || rule == headerPassesByProxy && !byTrustedProxy {
			delete(h, name)
		}
	}
}

// Check refuses a request whose Connection header names an identity header, Authorization, or another header that
// backends rely on: a proxy would remove it after us. The [*Error] has status 400.
func (i *IdentityHeaders) Check(r *http.Request) error {
	for _, value := range r.Header["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			if i.hopByHop.has(strings.Trim(option, " \t")) {
				return badRequest("The Connection header names a header that must arrive.",
					fmt.Errorf("%w: Connection", errHopByHop))
			}
		}
	}
	return nil
}
