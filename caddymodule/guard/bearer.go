package guard

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxTokenSize is the maximum size of a token in bytes.
const maxTokenSize = 8 << 10

// Bearer returns the bearer token of the Authorization header (RFC 6750 §2.1), the only place where a token is
// accepted. Any error is an [*Error]:
//
//   - 401 and [ErrNoToken] without the header, or with another scheme;
//   - 400 if the header is repeated or holds anything but one token, or if the query has an
//     access_token (§2.3), which would appear in logs, histories and Referer headers.
func Bearer(r *http.Request) (string, error) {
	if queryHasToken(r.URL.RawQuery) {
		return "", badRequest("The access token must not be sent in the query.",
			fmt.Errorf("%w: access_token in the query", errRequest))
	}
	credentials := r.Header["Authorization"]
	if len(credentials) == 0 {
		return "", noToken(ErrNoToken)
	}
	if len(credentials) > 1 {
		// The next reader may take the other one.
		return "", badRequest("The Authorization header must be sent once.",
			fmt.Errorf("%w: %d Authorization headers", errRequest, len(credentials)))
	}
	scheme, token, _ := strings.Cut(credentials[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", noToken(fmt.Errorf("%w: another authentication scheme", ErrNoToken))
	}
	token = strings.Trim(token, " ")
	if len(token) > maxTokenSize || !isB64Token(token) {
		return "", badRequest("The Authorization header must hold one bearer token.",
			fmt.Errorf("%w: not one b64token of at most %d bytes", errRequest, maxTokenSize))
	}
	return token, nil
}

// isB64Token reports whether s is a b64token (RFC 6750 §2.1):
//
//	1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / "+" / "/" ) *"="
func isB64Token(s string) bool {
	s = strings.TrimRight(s, "=")
	var foreign byte // without a branch for each character: tokens are long
	for i := range len(s) {
		foreign |= notB64[s[i]]
	}
	return s != "" && foreign == 0
}

// notB64 is 1 for all characters that a b64token cannot contain before its trailing =.
var notB64 = func() (not [256]byte) {
	for i := range not {
		not[i] = 1
	}
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/" {
		not[c] = 0
	}
	return not
}()

// queryHasToken reports whether a query has the parameter access_token in any spelling that a backend may accept.
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
