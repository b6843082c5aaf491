package guard

import (
	"net/http"
	"strings"
)

// StripCookies removes the cookies whose names begin with prefix. They are those
// of our own sign-in: who reads one behind us can sign in with it.
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
