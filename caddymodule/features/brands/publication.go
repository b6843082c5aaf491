package brands

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
)

// Path is where the Bundle is, below the FHIR base: beside the SMART configuration, which
// links to it.
const Path = "/.well-known/user-access-brands"

// ServeHTTP answers a GET or HEAD with the Bundle.
func (b *Bundle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/fhir+json")
	w.Header().Set("Cache-Control", "public, max-age=600")
	w.Header().Set("ETag", b.tag)
	http.ServeContent(w, r, "", b.timestamp, bytes.NewReader(b.content))
}

// tagOf returns a weak ETag of a text.
func tagOf(text []byte) string {
	sum := sha256.Sum256(text)
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}
