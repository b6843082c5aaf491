package cache

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
)

// large is a body that is worth compressing.
var large = `{"resourceType":"ValueSet","x":"` + strings.Repeat("concept ", 1000) + `"}`

// decode removes a content coding.
func decode(t *testing.T, coding string, body []byte) string {
	t.Helper()
	var src io.Reader = bytes.NewReader(body)
	switch coding {
	case "gzip":
		unzipped, err := gzip.NewReader(src)
		if err != nil {
			t.Fatal(err)
		}
		src = unzipped
	case "zstd":
		unzipped, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer unzipped.Close()
		src = unzipped
	}
	text, err := io.ReadAll(src)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCodings(t *testing.T) {
	c := New(Options{})
	call := &Call{Scheme: plain, Produce: newOrigin(large).produce}
	if w := serve(t, c, get(expandURL, "Accept-Encoding: gzip"), call); w.Header().Get("Content-Encoding") != "" {
		t.Error("compressed at the first use")
	}
	tags := map[string]string{}
	before := c.Stats().Bytes
	for _, coding := range []string{"", "gzip", "zstd", "gzip", "zstd", ""} {
		w := serve(t, c, get(expandURL, "Accept-Encoding: "+coding, "Range: bytes=0-3"), call)
		h := w.Header()
		if h.Get("Content-Encoding") != coding || decode(t, coding, w.Body.Bytes()) != large || w.Code != 200 {
			t.Errorf("%q: %d, Content-Encoding %q, or another body", coding, w.Code, h.Get("Content-Encoding"))
		}
		if h.Get("Content-Length") != itoa(w.Body.Len()) || h.Get("Accept-Ranges") != "" {
			t.Errorf("%q: %v", coding, h)
		}
		for other, tag := range tags {
			if (tag == h.Get("Etag")) != (other == coding) {
				t.Errorf("%q has tag %s, %q has %s", coding, h.Get("Etag"), other, tag)
			}
		}
		tags[coding] = h.Get("Etag")

		for have, tag := range tags {
			w := serve(t, c, get(expandURL, "Accept-Encoding: "+coding, "If-None-Match: W/"+tag), call)
			acceptable := have == coding || have == ""
			if (w.Code == http.StatusNotModified) != acceptable {
				t.Errorf("has %q, wants %q: status %d", have, coding, w.Code)
			}
			if w.Code == http.StatusNotModified && (w.Header().Get("Etag") != tag || w.Body.Len() > 0 || w.Header().Get("Content-Encoding") != "") {
				t.Errorf("has %q, wants %q: 304 with %v", have, coding, w.Header())
			}
		}
	}
	if growth := c.Stats().Bytes - before; growth < 200 || c.store.check() != nil {
		t.Errorf("the forms take %d bytes; %v", growth, c.store.check())
	}
}

func itoa(n int) string { return newForm(identityCoding, make([]byte, n), "").length[0] }

// TestSmall checks that a small body is compressed only if identity is not acceptable.
func TestSmall(t *testing.T) {
	c := New(Options{})
	call := &Call{Scheme: plain, Produce: newOrigin("small").produce}
	for range 3 {
		if w := serve(t, c, get(expandURL, "Accept-Encoding: gzip"), call); w.Header().Get("Content-Encoding") != "" {
			t.Error("a small body is compressed")
		}
		for _, refused := range []string{"gzip, identity;q=0", "*;q=0, gzip"} {
			w := serve(t, c, get(expandURL, "Accept-Encoding: "+refused), call)
			if w.Header().Get("Content-Encoding") != "gzip" || decode(t, "gzip", w.Body.Bytes()) != "small" {
				t.Errorf("%s: %v", refused, w.Header())
			}
		}
	}
}

func TestHead(t *testing.T) {
	c := New(Options{})
	call := &Call{Scheme: plain, Produce: newOrigin(large).produce}
	head := serve(t, c, newRequest(http.MethodHead, expandURL), call)
	hit := serve(t, c, get(expandURL), call)
	if head.Body.Len() != 0 || hit.Body.String() != large {
		t.Errorf("HEAD has %d bytes, GET %d", head.Body.Len(), hit.Body.Len())
	}
	for _, name := range []string{"Content-Length", "Etag", "Content-Type", "Vary", "Cache-Control"} {
		if head.Header().Get(name) != hit.Header().Get(name) || hit.Header().Get(name) == "" {
			t.Errorf("%s: HEAD %q, GET %q", name, head.Header().Get(name), hit.Header().Get(name))
		}
	}
}

func TestHeaders(t *testing.T) {
	alice := Principal{User: "alice"}
	for name, test := range map[string]struct {
		scheme    *Scheme
		principal Principal
		header    string
		control   string
		vary      string
	}{
		"for all":             {plain, Principal{}, "A: b", "public, no-cache", varies[0]},
		"for a user":          {&Scheme{}, alice, "A: b", "private, no-cache", variesByUser[0]},
		"for all, by a user":  {plain, alice, "A: b", "private, no-cache", variesByUser[0]},
		"for all, by a token": {plain, Principal{}, "Authorization: Bearer a", "private, no-cache", variesByUser[0]},
		"for a cookie":        {&Scheme{}, Principal{}, "Cookie: a=b", "private, no-cache", variesByUser[0] + ", Cookie"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Options{})
				call := &Call{Scheme: test.scheme, Principal: test.principal, Produce: newOrigin("one", "Content-Location: /x", "Content-Language: de",
					"Server: secret", "Etag: W/\"theirs\"", "Cache-Control: max-age=9999", "Warning: x").produce}
				serve(t, c, get(expandURL, test.header), call)
				time.Sleep(20 * time.Second)
				h := serve(t, c, get(expandURL, test.header), call).Header()
				names := make([]string, 0, len(h))
				for name := range h {
					names = append(names, name)
				}
				slices.Sort(names)
				want := []string{"Age", "Cache-Control", "Cache-Status", "Content-Language", "Content-Length", "Content-Location", "Content-Type", "Etag", "Vary"}
				if !slices.Equal(names, want) {
					t.Errorf("headers are %v", names)
				}
				vary := strings.Join(h["Vary"], ", ")
				if h.Get("Cache-Control") != test.control || vary != test.vary || h.Get("Age") != "20" || h.Get("Content-Location") != "/x" {
					t.Errorf("header = %v", h)
				}
			})
		})
	}
}

// TestSharedHeaders checks that modifying the header of one response does not affect other responses.
func TestSharedHeaders(t *testing.T) {
	c := New(Options{})
	o := &origin{answer: func(*http.Request) (*Response, error) {
		a := jsonAnswer(200, "one")
		a.Header["Content-Language"] = append(make([]string, 0, 2), "de")
		return a, nil
	}}
	call := o.call()
	for i := range 3 {
		w := serve(t, c, get(expandURL), call)
		if vary := w.Header()["Vary"]; len(vary) != 1 || vary[0] != varies[0] {
			t.Errorf("Vary = %q", vary)
		}
		for name := range w.Header() {
			w.Header().Add(name, fmt.Sprint("foreign", i))
		}
		defer func() {
			if got := w.Header()["Content-Language"][1]; got != fmt.Sprint("foreign", i) {
				t.Errorf("answer %d has %s", i, got)
			}
		}()
	}
	o.answer = responds(http.StatusOK, "one")
	w := serve(t, c, get(expandURL), &Call{Scheme: &Scheme{Headers: []string{"X-Limit"}}, Produce: o.produce})
	if vary := w.Header()["Vary"]; len(vary) != 2 || vary[1] != "X-Limit" {
		t.Errorf("with a further header, Vary = %q", vary)
	}
	before := append(make([]string, 0, 2), "Origin")
	w = httptest.NewRecorder()
	w.Header()["Vary"] = before
	if err := c.Serve(w, get(expandURL), call); err != nil || len(w.Header()["Vary"]) != 2 {
		t.Errorf("Vary = %q, %v", w.Header()["Vary"], err)
	}
	if foreign := before[:2][1]; foreign != "" {
		t.Errorf("%q was written into another one's slice", foreign)
	}
}

// TestNegativeNotModified checks that a 304 is never returned instead of a negative response (RFC 9110 §13.2.1).
func TestNegativeNotModified(t *testing.T) {
	c := New(Options{})
	o := &origin{answer: responds(404, "{}")}
	for range 2 {
		w := serve(t, c, get(expandURL, "If-None-Match: *"), o.call())
		if w.Code != 404 || w.Header().Get("Etag") != "" {
			t.Errorf("%d, %v", w.Code, w.Header())
		}
	}
}

func TestAcceptedCodings(t *testing.T) {
	for accept, want := range map[string]string{
		"":                           "",
		"gzip":                       "gzip",
		"GZip":                       "gzip",
		"x-gzip":                     "gzip",
		"zstd":                       "zstd",
		"br":                         "",
		"gzip, deflate, br, zstd":    "zstd",
		"gzip;q=1.0, zstd;q=0.5":     "gzip",
		"gzip;q=0.8, zstd ; q=0.8":   "zstd",
		"gzip;q=0":                   "",
		"gzip;q=0.000":               "",
		"gzip;q=0.001":               "gzip",
		"*":                          "zstd",
		"*;q=0.5, zstd;q=0":          "gzip",
		"*;q=0, gzip":                "gzip",
		"identity, gzip;q=0.5":       "",
		"identity;q=0.5, gzip;q=0.5": "gzip",
		"identity;q=0, gzip;q=0.1":   "gzip",
		"identity;q=0":               "",
		"*;q=0":                      "",
		"gzip;foo=1":                 "gzip",
		",, gzip ,":                  "gzip",
		"gzip;q=0,*":                 "zstd",
		"gzip;q=2":                   "gzip",
		"gzip, gzip;q=0":             "",
		"deflate;q=1, identity;q=0.3, zstd;q=0.2": "",
	} {
		w := acceptedCodings([]string{accept})
		if got := codingNames[w.best(func(coding) bool { return true })]; got != want {
			t.Errorf("Accept-Encoding: %s chooses %q, want %q", accept, got, want)
		}
	}
	w := acceptedCodings([]string{"gzip;q=0.1", "zstd;q=0.2"})
	if got := w.best(func(c coding) bool { return c != zstdCoding }); got != gzipCoding {
		t.Errorf("two lines, without zstd: %v", got)
	}
}

func TestEntityTags(t *testing.T) {
	for header, want := range map[string]string{
		"":               "",
		`"a"`:            "a",
		`W/"a"`:          "a",
		`"a", W/"b","c"`: "a b c",
		`"a,b"`:          "a,b",
		`"a" , , "b"`:    "a b",
		`*`:              "*",
		`a`:              "",
		`"a`:             "",
		`"a", b, "c"`:    "a",
		`w/"a"`:          "",
		`"a""b"`:         "a b",
		`""`:             "",
	} {
		var got []string
		for tag := range entityTags([]string{header}) {
			got = append(got, tag)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("If-None-Match: %s is %q, want %q", header, got, want)
		}
	}
}
