package guard

import (
	"net/http"
	"strings"
)

// StripCookies removes the cookies with a prefix, those of our own sign-in: a backend that reads them could sign in
// with them.
func StripCookies(h http.Header, prefix string) {
	lines := h["Cookie"]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			if pair = strings.TrimSpace(pair); pair != "" && !strings.HasPrefix(pair, prefix) {
				kept = append(kept, pair)
			}
		}
	}
	h.Del("Cookie")
	if len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}
