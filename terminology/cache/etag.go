package cache

import (
	"net/http"
	"strings"
)

// entityTags yields the opaque parts of the tags in If-None-Match, or * (RFC 9110 §13.1.2); weak tags match too. It ends
// at a syntax error.
func entityTags(values []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, rest := range values {
			for {
				rest = strings.TrimLeft(rest, " \t,")
				if rest == "" {
					break
				}
				if rest[0] == '*' {
					yield("*")
					return
				}
				quoted, found := strings.CutPrefix(strings.TrimPrefix(rest, "W/"), `"`)
				if !found {
					return
				}
				end := strings.IndexByte(quoted, '"')
				if end < 0 || !yield(quoted[:end]) {
					return
				}
				rest = quoted[end+1:]
			}
		}
	}
}

// matched returns a form of the entry that the client already has and accepts, or nil.
func (e *entry) matched(header http.Header, accepts *weights) *form {
	values := header["If-None-Match"]
	if len(values) == 0 || e.status != http.StatusOK {
		return nil
	}
	for tag := range entityTags(values) {
		for coding := range codings {
			f := e.forms[coding].Load()
			if f != nil && (tag == "*" || tag == f.tag) && (coding == identity || accepts[coding] > 0) {
				return f
			}
		}
	}
	return nil
}
