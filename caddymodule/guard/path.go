package guard

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// CheckPath refuses a request whose path the server behind us could read as another path, since the decision must be
// about the path that is served (caddy #4407, CVE-2024-1132). The [*Error] has status 400 and [ErrPath]. No FHIR path
// (R4 §3.1.0.1) needs:
//
//   - dot segments and empty ones, which some servers remove;
//   - slashes, backslashes, percent signs and control characters, encoded or not, which some decode twice;
//   - semicolons, after which Java servers see parameters;
//   - anything but UTF-8;
//   - the base in different case, which is the base to us and another path to a case-sensitive server.
//
// TRACE and CONNECT are refused with 405: the former returns our own headers, the latter is for proxies.
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

// ambiguous reports whether a decoded path holds such a character. A percent sign in it was encoded, and would begin
// an escape if it were decoded again.
func ambiguous(path string) bool {
	for i := range len(path) {
		if c := path[i]; c < ' ' || c == 0x7f || c == '\\' || c == ';' || c == '%' {
			return true
		}
	}
	return false
}

// encodedSlash reports whether a slash was written as %2F: part of a segment to some, a separator to others. Without
// escapes there is no RawPath.
func encodedSlash(u *url.URL) bool {
	return u.RawPath != "" && strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// hasEmptyOrDots reports whether a segment is a dot segment, or empty other than the first and the last.
func hasEmptyOrDots(path string) bool {
	if path != "" && path[0] == '/' && !strings.Contains(path, "/.") {
		return strings.Contains(path, "//") // few paths have a segment that begins with a dot
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return strings.Contains(path, "//")
}
