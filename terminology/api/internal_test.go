package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

func TestResourceCacheIsBounded(t *testing.T) {
	var c resourceCache
	base, err := terminology.Load(t.Context(), definitions.Options{Core: true})
	if err != nil {
		t.Fatal(err)
	}
	resource := jsontext.Value(`{"resourceType":"CodeSystem","url":"http://x/cs","content":"complete","concept":[{"code":"a"}]}`)
	c.maxBytes = int64(100 * len(resource))
	for i := range maxCacheIDs + 50 {
		if _, err := c.libraryFor(base, [32]byte{byte(i), byte(i >> 8)}, []jsontext.Value{resource}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n, size := c.items.Size(); n != 100 || size != c.maxBytes {
		t.Errorf("%d are remembered, %d bytes of %d", n, size, 100*len(resource))
	}
	if _, ok := c.items.Get([32]byte{byte(maxCacheIDs + 49)}); !ok {
		t.Error("the last one is forgotten")
	}
}

// TestBodyAllocation checks that memory is allocated as data arrives, not in advance for a large Content-Length.
func TestBodyAllocation(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/$expand", nil)
	body := &bufferSizeReader{Reader: strings.NewReader("{}")}
	r.Body, r.ContentLength = io.NopCloser(body), 16<<20
	if _, err := (&Call{handler: new(Handler)}).readBody(httptest.NewRecorder(), r); err != nil || body.room > 2*maxPreallocated {
		t.Errorf("got %v, room for %d bytes", err, body.room)
	}
}

// bufferSizeReader records the size of the buffer passed to Read.
type bufferSizeReader struct {
	io.Reader
	room int
}

func (r *bufferSizeReader) Read(b []byte) (int, error) {
	r.room = max(r.room, len(b))
	return r.Reader.Read(b)
}
