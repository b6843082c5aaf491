package cache

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// discard is a ResponseWriter that only stores the header, as net/http's does while a handler runs.
type discard struct{ header http.Header }

func (d discard) Header() http.Header {
	if d.header == nil {
		return make(http.Header)
	}
	return d.header
}
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// bodyOf returns a body of about n bytes.
func bodyOf(n int) string {
	entry := `{"system":"http://example.org/cs","code":"c1","display":"Concept one"},`
	return `{"resourceType":"ValueSet","contains":[` + strings.Repeat(entry, n/len(entry)) + `{}]}`
}

// BenchmarkBare measures a handler without a cache that writes the same bytes as BenchmarkHit.
func BenchmarkBare(b *testing.B) {
	body := []byte(bodyOf(2 << 10))
	length := fmt.Sprint(len(body))
	b.ReportAllocs()
	for b.Loop() {
		w := discard{make(http.Header)}
		w.Header().Set("Content-Type", "application/fhir+json")
		w.Header().Set("Content-Length", length)
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body)
	}
}

func BenchmarkHit(b *testing.B) {
	for name, size := range map[string]int{"2KB": 2 << 10, "180KB": 180 << 10} {
		for _, coding := range []string{"identity", "gzip, deflate, br, zstd"} {
			b.Run(name+"/"+coding, func(b *testing.B) {
				benchmarkHit(b, size, get(expandURL+"&filter=asth&count=20", "Accept: application/fhir+json", "Accept-Language: en-US,en;q=0.9",
					"Accept-Encoding: "+coding, "Authorization: Bearer abc"))
			})
		}
	}
}

func BenchmarkNotModified(b *testing.B) {
	call := &Call{Scheme: plain, Produce: newOrigin(bodyOf(2 << 10)).produce}
	w := discard{make(http.Header)}
	if err := New(Options{}).Serve(w, get(expandURL), call); err != nil {
		b.Fatal(err)
	}
	benchmarkHit(b, 2<<10, get(expandURL, "Accept: application/fhir+json", "If-None-Match: "+w.header.Get("Etag")))
}

// benchmarkHit repeats a request with a stored response.
func benchmarkHit(b *testing.B, size int, r *http.Request) {
	c := New(Options{})
	call := Call{Scheme: &Scheme{}, Principal: Principal{Issuer: "https://as.example", User: "alice", Client: "app"}, Produce: newOrigin(bodyOf(size)).produce}
	for range 3 {
		if err := c.Serve(discard{}, r, &call); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		call := call
		if err := c.Serve(discard{make(http.Header)}, r, &call); err != nil {
			b.Fatal(err)
		}
	}
	if c.Stats().Misses != 1 {
		b.Fatalf("%+v", c.Stats())
	}
}

// BenchmarkServer compares a hit and a 304 with a bare handler behind net/http.
func BenchmarkServer(b *testing.B) {
	body := bodyOf(2 << 10)
	c, length := New(Options{}), fmt.Sprint(len(body))
	call := Call{Scheme: plain, Produce: newOrigin(body).produce}
	cached := func(w http.ResponseWriter, r *http.Request) {
		call := call
		if err := c.Serve(w, r, &call); err != nil {
			b.Error(err)
		}
	}
	few := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.Header().Set("Content-Length", length)
		_, _ = io.WriteString(w, body)
	}
	hit := httptest.NewRecorder()
	cached(hit, get(expandURL))
	same := func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), hit.Header())
		_, _ = io.WriteString(w, body)
	}
	b.Run("bare, two headers", func(b *testing.B) { benchmarkServer(b, few, "") })
	b.Run("bare, same headers", func(b *testing.B) { benchmarkServer(b, same, "") })
	b.Run("hit", func(b *testing.B) { benchmarkServer(b, cached, "") })
	b.Run("not modified", func(b *testing.B) { benchmarkServer(b, cached, "If-None-Match: *\r\n") })
}

// benchmarkServer repeats a request over a single connection.
func benchmarkServer(b *testing.B, handler http.HandlerFunc, header string) {
	server := httptest.NewServer(handler)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	request := []byte("GET /fhir/R4/ValueSet/$expand?url=http://example.org/vs HTTP/1.1\r\nHost: fhir.example.org\r\n" + header + "\r\n")
	answers := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		w, err := http.ReadResponse(answers, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, w.Body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKey measures computing the key of a request that has no alias.
func BenchmarkKey(b *testing.B) {
	r := get(expandURL+"&filter=asth&count=20", "Accept: application/fhir+json", "Accept-Language: en-US,en;q=0.9")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plain.target(r, Principal{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMiss(b *testing.B) {
	c := New(Options{})
	call := &Call{Scheme: plain, Produce: newOrigin(bodyOf(2 << 10)).produce}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := get(expandURL)
		r.URL.RawQuery += fmt.Sprint("&filter=", i)
		if err := c.Serve(discard{make(http.Header)}, r, call); err != nil {
			b.Fatal(err)
		}
	}
}
