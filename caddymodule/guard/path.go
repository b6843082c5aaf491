package guard

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// CheckPath refuses a request with an [*Error] of status 400 and [ErrPath] when
// its path could be read as another one by the server behind us: what is decided
// here must be decided about the path that is served there (caddy #4407,
// CVE-2024-1132 and their like). No FHIR path (R4 §3.1.0.1) needs any of it:
//
//   - dot segments and empty ones, which some remove and some do not;
//   - slashes, backslashes, percent signs and control characters, encoded or
//     not, which some decode once more;
//   - semicolons, behind which Java's servers see parameters;
//   - what is not UTF-8;
//   - the base in other letters than its own: to us it would be the base, to a
//     server that minds case another place.
//
// TRACE and CONNECT are refused with 405: the one sends our own headers back,
// the other is for proxies.
func CheckPath(r *http.Request, base string) error {
	if r.Method == http.MethodTrace || r.Method == http.MethodConnect {
		return &Error{Status: http.StatusMethodNotAllowed, Description: "This method is not supported.", Err: fmt.Errorf("%w: %s", ErrPath, r.Method)}
	}
	path := r.URL.Path
	switch {
	case !utf8.ValidString(path), ambiguous(path), encodedSlash(r.URL):
		return badRequest("The path holds a character that servers read differently.", ErrPath)
	case hasEmptyOrDots(path):
		return badRequest("The path holds an empty or a dot segment.", ErrPath)
	case len(path) >= len(base) && path[:len(base)] != base && strings.EqualFold(path[:len(base)], base):
		return badRequest("The path is written in other letters than the FHIR base.", ErrPath)
	}
	return nil
}

// ambiguous says whether a decoded path holds a character of those above. A percent
// sign there was encoded: decoded once more it would begin an escape.
func ambiguous(path string) bool {
	for i := range len(path) {
		if c := path[i]; c < ' ' || c == 0x7f || c == '\\' || c == ';' || c == '%' {
			return true
		}
	}
	return false
}

// encodedSlash says whether a slash was written as %2F: a segment to some, a
// separator to others. A path that was written as it is has no RawPath.
func encodedSlash(u *url.URL) bool {
	return u.RawPath != "" && strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// hasEmptyOrDots says whether a segment is empty, but for the first and the last,
// or of dots.
func hasEmptyOrDots(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return strings.Contains(path, "//")
}
