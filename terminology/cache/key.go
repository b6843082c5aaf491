package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
)

// VaryBy says who may be given an answer that was made for somebody.
type VaryBy uint8

const (
	// VaryByUser keeps answers for the user they were made for, by the same client and with the same scope, lest a
	// client gets what only another one may; those made for a client that acts on its own are kept for that
	// client. The default.
	VaryByUser VaryBy = iota

	// VaryByClient shares answers among the users of one client.
	VaryByClient

	// VaryByNone shares answers among all: what is asked for does not depend on who asks.
	VaryByNone
)

// Principal is whom a request was authorised for. The zero value: nobody whom the caller knows of.
type Principal struct {
	// Issuer is who vouches for the two others; names of different issuers are different names.
	Issuer string

	// User is the subject of the access token, empty where a client acts on its own.
	User string

	// Client is the client the access token was given to.
	Client string

	// Scope is the access token's.
	Scope string

	// Patient is the one in whose context the access token was issued.
	Patient string

	// FHIRUser is the FHIR resource of the user.
	FHIRUser string
}

// Scheme says what the keys of a handler's answers are made of. It is not changed while it is in use.
type Scheme struct {
	// Space tells the handlers apart that use one [Cache]: those with equal spaces must give equal answers.
	Space string

	// Epoch stands for the definitions that answers are made from. Answers of another epoch are not found.
	Epoch string

	// VaryBy says who shares answers.
	VaryBy VaryBy

	// Headers names, in canonical form, the request headers that answers depend on beside Accept and
	// Accept-Language. All others are kept from the producer, so that answers cannot depend on them.
	Headers []string
}

// Key identifies an answer: it is the SHA-256 of all that the answer depends on, so nothing of a question or of
// who asked it can be read from it.
type Key struct {
	sum      [sha256.Size]byte
	personal bool // the answer is for one user, one client that acts on its own, or one set of credentials
}

// question is what a request asks for, normalised, and its key.
type question struct {
	key            Key
	representation Representation
}

// Key returns the key of a request. The order of parameters with different names does not count, nor does how
// they were escaped or how the representation was asked for. body is the body of a POST, in a form that is the
// same for requests that mean the same. It fails on a query string or a _format that cannot be understood; the
// answer to such a request is not to be cached.
func (s *Scheme) Key(r *http.Request, principal Principal, body []byte) (Key, error) {
	q, err := s.question(r, principal, body)
	return q.key, err
}

// question normalises a request.
func (s *Scheme) question(r *http.Request, principal Principal, body []byte) (q question, err error) {
	list, err := parseParameters(r.URL.RawQuery)
	if err != nil {
		return q, err
	}
	list, q.representation, err = negotiate(list, r.Header)
	if err != nil {
		return q, err
	}
	var buffer [512]byte
	parts := list.append(appendPart(appendPart(buffer[:0], strings.ToLower(r.Host)), r.URL.EscapedPath()))
	if parts = appendPart(parts, methodClass(r.Method)); r.Method == http.MethodPost {
		sum := sha256.Sum256(body)
		parts = appendPart(parts, r.Header.Get("Content-Type"))
		parts = append(parts, sum[:]...)
	}
	parts = appendPart(parts, s.Space)
	parts = appendPart(parts, s.Epoch)
	parts = q.representation.append(parts)
	parts = s.appendHeaders(parts, r.Header)
	parts, q.key.personal = s.appendScope(parts, r.Header, principal)
	q.key.sum = sha256.Sum256(parts)
	return q, nil
}

// methodClass is the method that a request counts as: HEAD asks for what GET would give.
func methodClass(method string) string {
	if method == http.MethodHead {
		return http.MethodGet
	}
	return method
}

// isCacheable reports whether requests with a method may be answered from a cache.
func isCacheable(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodPost
}

// appendRaw appends all of a GET that its key is made of, as it was sent: what finds an answer again without
// anything being parsed. For other methods it returns nil.
func (s *Scheme) appendRaw(dst []byte, r *http.Request, principal Principal) []byte {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil
	}
	dst = appendPart(dst, s.Space)
	dst = appendPart(dst, s.Epoch)
	dst = appendPart(dst, r.Host)
	dst = appendPart(dst, r.URL.Path)
	dst = appendPart(dst, r.URL.RawPath)
	dst = appendPart(dst, r.URL.RawQuery)
	dst = appendParts(dst, r.Header["Accept"])
	dst = appendParts(dst, r.Header["Accept-Language"])
	dst = s.appendHeaders(dst, r.Header)
	dst, _ = s.appendScope(dst, r.Header, principal)
	return dst
}

// appendHeaders appends the values of the further headers that answers depend on.
func (s *Scheme) appendHeaders(dst []byte, header http.Header) []byte {
	for _, name := range s.Headers {
		dst = appendParts(dst, header[name])
	}
	return dst
}

// Kinds of scope. They are part of keys, so that a user is never taken for a client of the same name.
const (
	scopeAll byte = iota
	scopeAnonymous
	scopeUser
	scopeClient
	scopeCredentials
)

// appendScope appends whom an answer is for, and reports whether that is one alone, and not all users of a
// client. Credentials that nobody has looked into here stand for themselves: the producer may pass them on to
// one who does.
func (s *Scheme) appendScope(dst []byte, header http.Header, p Principal) (_ []byte, personal bool) {
	authorization, cookie := header["Authorization"], header["Cookie"]
	switch {
	case s.VaryBy == VaryByNone:
		return append(dst, scopeAll), false
	case p.User != "" && (s.VaryBy == VaryByUser || p.Client == ""):
		return p.append(append(dst, scopeUser)), true
	case p.Client != "" && s.VaryBy == VaryByUser:
		return p.append(append(dst, scopeClient)), true
	case p.Client != "":
		return appendPart(appendPart(append(dst, scopeClient), p.Issuer), p.Client), false
	case len(authorization) > 0 || len(cookie) > 0:
		return appendParts(appendParts(append(dst, scopeCredentials), authorization), cookie), true
	}
	return append(dst, scopeAnonymous), false
}

// append appends all of a principal.
func (p *Principal) append(dst []byte) []byte {
	for _, part := range []string{p.Issuer, p.User, p.Client, p.Scope, p.Patient, p.FHIRUser} {
		dst = appendPart(dst, part)
	}
	return dst
}

// appendPart appends a part of a key, preceded by its length: no value of one part can pass for two, or for
// the next one.
func appendPart(dst []byte, part string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(part))), part...)
}

// appendParts appends a list of parts, preceded by their number.
func appendParts(dst []byte, parts []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(parts)))
	for _, part := range parts {
		dst = appendPart(dst, part)
	}
	return dst
}

// String returns the beginning of the key, for logs.
func (k Key) String() string { return fmt.Sprintf("%x", k.sum[:8]) }
