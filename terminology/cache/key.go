package cache

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// VaryBy specifies which requests may share responses.
type VaryBy uint8

const (
	// VaryByUser is the default. It shares responses only between requests with the same user, client and scope, or the same client
	// and scope if there is no user. Clients of a user may have different permissions.
	VaryByUser VaryBy = iota

	// VaryByClient shares responses among the users of a client.
	VaryByClient

	// VaryByNone shares responses among all requests.
	VaryByNone
)

// Principal is the user and client that an access token authorizes. The zero value is an anonymous principal.
type Principal struct {
	Issuer   string // issuer of the access token; User and Client are unique only per issuer
	User     string // empty if the token is not for a user
	Client   string // client to which the token was issued
	Scope    string // granted scope
	Patient  string // patient in the launch context
	FHIRUser string // the user's FHIR resource
}

// Scheme configures keys. It must not be modified while in use.
type Scheme struct {
	// Namespace separates handlers that share a [Cache]. Handlers with the same namespace must produce the same responses.
	Namespace string

	// Epoch identifies the version of the definitions. Responses stored in other epochs are not found.
	Epoch string

	// VaryBy specifies which requests may share responses. Default: [VaryByUser].
	VaryBy VaryBy

	// Headers lists, in canonical form, request headers on which responses depend, in addition to Accept and Accept-Language.
	// The producer gets no other headers, so responses cannot depend on them.
	Headers []string
}

// Key identifies a response. It is the SHA-256 of everything that the response depends on, so that it reveals nothing about the
// request or the client.
type Key struct {
	sum      [sha256.Size]byte
	personal bool // responses are for one user, one client without a user, or one set of credentials
}

// target identifies the response that a request selects.
type target struct {
	key            Key
	representation representation
}

// target returns the target of a request. It ignores the order of parameters with different names, how they are escaped, and
// whether headers or parameters specify the representation. body is the body of a POST. An invalid query string or _format is
// an error; the response to such a request must not be stored.
func (s *Scheme) target(r *http.Request, principal Principal, body []byte) (t target, err error) {
	list, err := parseParameters(r.URL.RawQuery)
	if err != nil {
		return t, err
	}
	list, t.representation, err = negotiate(list, r.Header)
	if err != nil {
		return t, err
	}
	var buffer [512]byte
	parts := list.append(appendPart(appendPart(buffer[:0], strings.ToLower(r.Host)), r.URL.EscapedPath()))
	if parts = appendPart(parts, methodClass(r.Method)); r.Method == http.MethodPost {
		sum := sha256.Sum256(body)
		parts = appendPart(parts, r.Header.Get("Content-Type"))
		parts = append(parts, sum[:]...)
	}
	parts = appendPart(parts, s.Namespace)
	parts = appendPart(parts, s.Epoch)
	parts = t.representation.append(parts)
	parts = s.appendHeaders(parts, r.Header)
	parts, t.key.personal = s.appendScope(parts, r.Header, principal)
	t.key.sum = sha256.Sum256(parts)
	return t, nil
}

// methodClass returns GET for HEAD and other methods unchanged.
func methodClass(method string) string {
	if method == http.MethodHead {
		return http.MethodGet
	}
	return method
}

func isCacheable(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodPost
}

// appendRaw appends those parts of a GET or HEAD request that determine its key, without parsing them. It is used to find an
// entry by alias. It returns nil for other methods.
func (s *Scheme) appendRaw(dst []byte, r *http.Request, principal Principal) []byte {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil
	}
	dst = appendPart(dst, s.Namespace)
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

func (s *Scheme) appendHeaders(dst []byte, header http.Header) []byte {
	for _, name := range s.Headers {
		dst = appendParts(dst, header[name])
	}
	return dst
}

// Kinds of scope. They are part of the key, so that a user and a client with the same name have different keys.
const (
	scopeAll byte = iota
	scopeAnonymous
	scopeUser
	scopeClient
	scopeCredentials
)

// appendScope appends the principal or credentials that a response is for. personal reports whether they are a single user,
// client or set of credentials. Without a principal, credentials are appended because the producer may forward them.
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

// includesCredentials reports whether the keys of requests with this principal contain the credentials.
func (s *Scheme) includesCredentials(p Principal) bool {
	return s.VaryBy != VaryByNone && p.User == "" && p.Client == ""
}

func (p *Principal) append(dst []byte) []byte {
	for _, part := range []string{p.Issuer, p.User, p.Client, p.Scope, p.Patient, p.FHIRUser} {
		dst = appendPart(dst, part)
	}
	return dst
}

func appendParts(dst []byte, parts []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(parts)))
	for _, part := range parts {
		dst = appendPart(dst, part)
	}
	return dst
}

func (k Key) hash() uint64 { return binary.LittleEndian.Uint64(k.sum[:]) }

type parameter struct{ name, value string }

// parameters are unescaped and sorted by name. The sort is stable because the order of values may be significant.
type parameters []parameter

// errSemicolon is returned for semicolons, because some servers parse them as separators, others as part of a value.
var errSemicolon = errors.New("invalid semicolon separator in query")

func parseParameters(query string) (list parameters, err error) {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		if strings.Contains(pair, ";") {
			return nil, errSemicolon
		}
		var p parameter
		name, value, _ := strings.Cut(pair, "=")
		if p.name, err = url.QueryUnescape(name); err != nil {
			return nil, fmt.Errorf("malformed query string: %w", err)
		}
		if p.value, err = url.QueryUnescape(value); err != nil {
			return nil, fmt.Errorf("malformed query string: %w", err)
		}
		list = append(list, p)
	}
	slices.SortStableFunc(list, func(a, b parameter) int { return cmp.Compare(a.name, b.name) })
	return list, nil
}

// extract removes the parameters with the given name and returns their values.
func (l parameters) extract(name string) (rest parameters, values []string) {
	rest = slices.DeleteFunc(l, func(p parameter) bool {
		if p.name == name {
			values = append(values, p.value)
		}
		return p.name == name
	})
	return rest, values
}

// has reports whether a parameter with this name has a nonempty value.
func (l parameters) has(name string) bool {
	return slices.ContainsFunc(l, func(p parameter) bool { return p.name == name && p.value != "" })
}

func (l parameters) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(l)))
	for _, p := range l {
		dst = appendPart(appendPart(dst, p.name), p.value)
	}
	return dst
}

// appendPart appends a part of a key after its length, so that different lists of parts never have the same key.
func appendPart(dst []byte, part string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(part))), part...)
}

// representation is the requested form of a response, based on the parameters _format and _pretty and the headers Accept and
// Accept-Language.
type representation struct {
	format      negotiation.Format
	pretty      bool
	fhirVersion string // parameter fhirVersion of the media type (R4 §2.21.0.6); may be empty
	language    string // normalized Accept-Language; empty if the request has displayLanguage
}

// Errors for representations that the producer rejects.
var (
	errFormat            = errors.New("_format must be json or xml")
	errRepeatedParameter = errors.New("_format and _pretty must not be repeated")
)

// negotiate removes _format and _pretty from the list and returns the representation. _format takes precedence over Accept (R4
// §3.1.0.1.11).
func negotiate(list parameters, header http.Header) (parameters, representation, error) {
	var r representation
	list, formats := list.extract("_format")
	list, pretty := list.extract("_pretty")
	if len(formats) > 1 || len(pretty) > 1 {
		return list, r, errRepeatedParameter
	}
	r.pretty = len(pretty) > 0 && pretty[0] == "true"
	if !list.has("displayLanguage") {
		r.language = negotiation.NormalizeLanguages(header["Accept-Language"])
	}
	if len(formats) == 0 {
		r.format, r.fhirVersion = negotiation.PreferredFormat(header["Accept"])
		return list, r, nil
	}
	kind, version, _ := strings.Cut(formats[0], ";")
	kind = strings.ReplaceAll(strings.TrimSpace(kind), " ", "+") // a space was an unescaped plus sign
	var known bool
	if r.format, known = negotiation.FormatOf(strings.ToLower(kind)); !known {
		return list, r, errFormat
	}
	if _, parameters, err := mime.ParseMediaType("x/x;" + version); err == nil {
		r.fhirVersion = parameters["fhirversion"]
	}
	return list, r, nil
}

func (r representation) append(dst []byte) []byte {
	dst = append(dst, byte(r.format), 0)
	if r.pretty {
		dst[len(dst)-1] = 1
	}
	return appendPart(appendPart(dst, r.fhirVersion), r.language)
}

// apply sets the headers so that they request exactly this representation.
func (r representation) apply(header http.Header) {
	accept := "application/fhir+json"
	if r.format == negotiation.XML {
		accept = "application/fhir+xml"
	}
	if r.fhirVersion != "" {
		accept = mime.FormatMediaType(accept, map[string]string{"fhirVersion": r.fhirVersion})
	}
	header.Set("Accept", accept)
	if r.language != "" {
		header.Set("Accept-Language", r.language)
	}
}

func (r representation) matches(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	format, known := negotiation.FormatOf(kind)
	return err == nil && known && format == r.format
}
