package fhirapp

import (
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// encodeGateway compresses what fhir_expand does not compress itself, as
// docs/caddyfile.md shows.
const encodeGateway = `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	encode {
		match {
			header Content-Type application/fhir+*
		}
	}
	fhir_expand {
		ttl off
	}
}
`

// Caddy's encode changes entity tags. A client that sends such a tag back is answered
// 304 if it still holds.
func TestExpandEncoded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, encodeGateway)
	ask := func(query, encoding, tag string) *http.Response {
		return g.Get("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/"+query, "", "Accept-Encoding", encoding, "If-None-Match", tag)
	}
	for _, query := range []string{"languages", "languages&_format=xml", "spdx-license&excludeNested=true"} {
		if strings.Contains(query, "xml") && !terminologytest.Has("xml") {
			continue
		}
		plain := ask(query, "", "")
		identity := plain.Header.Get("ETag")
		want := gatewaytest.Read(t, plain)
		for encoding, reader := range map[string]func(io.Reader) (io.Reader, error){
			"gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
			"zstd": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
		} {
			t.Run(query+" "+encoding, func(t *testing.T) {
				response := ask(query, encoding, "")
				tag := response.Header.Get("ETag")
				if response.Header.Get("Content-Encoding") != encoding || tag != strings.TrimSuffix(identity, `"`)+"-"+encoding+`"` {
					t.Fatalf("Content-Encoding %q, ETag %s", response.Header.Get("Content-Encoding"), tag)
				}
				if vary := gatewaytest.HeaderList(response.Header, "Vary"); !slices.Contains(vary, "Accept-Encoding") || !slices.Contains(vary, "Accept-Language") {
					t.Errorf("Vary %q", vary)
				}
				body, err := reader(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(body); err != nil || string(got) != want {
					t.Errorf("%v, got %d bytes, want %d", err, len(got), len(want))
				}
				for _, known := range []string{tag, "W/" + tag, `"x", ` + tag, identity} {
					again := ask(query, encoding, known)
					if body := gatewaytest.Read(t, again); again.StatusCode != http.StatusNotModified || body != "" {
						t.Errorf("If-None-Match %s: %d with %d bytes", known, again.StatusCode, len(body))
					}
				}
				if other := ask(query+"&count=50", encoding, tag); other.StatusCode != http.StatusOK {
					t.Errorf("of another answer: %d", other.StatusCode)
				}
			})
		}
	}
}

// Behind Caddy's encode, what is made for one request is compressed there, and what is
// kept passes as it is. Either revalidates.
func TestKeptBehindEncode(t *testing.T) {
	t.Parallel()
	g := newGateway(t, strings.Replace(encodeGateway, "ttl off", "ttl 1h", 1))
	const path = "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/spdx-license"
	ask := func(tag string) *http.Response {
		return g.Get(path, "", "Accept-Encoding", "gzip", "If-None-Match", tag)
	}
	var bodies []string
	var tags []string
	for range 5 {
		response := ask("")
		if got := response.Header["Content-Encoding"]; len(got) != 1 || got[0] != "gzip" {
			t.Errorf("Content-Encoding %q", got)
		}
		bodies, tags = append(bodies, decoded(t, response)), append(tags, response.Header.Get("Etag"))
		for _, tag := range tags {
			if again := ask(tag); again.StatusCode != http.StatusNotModified {
				t.Errorf("If-None-Match %s: %d, %v", tag, again.StatusCode, again.Header)
			}
		}
	}
	for _, body := range bodies {
		if body == "" || body != bodies[0] {
			t.Errorf("%d bytes, and %d before", len(body), len(bodies[0]))
		}
	}
}
