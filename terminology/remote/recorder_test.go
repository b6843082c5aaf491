package remote

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// next answers as a next handler would.
type next = func(w http.ResponseWriter) error

// says returns a next handler that answers always the same.
func says(status int, contentType, body string) next {
	return func(w http.ResponseWriter) error {
		reply(status, contentType, body)(w, nil)
		return nil
	}
}

func TestRecorder(t *testing.T) {
	sized := func(length string) next {
		return func(w http.ResponseWriter) error {
			w.Header().Set("Content-Length", length)
			return says(200, fhirJSON, expansion)(w)
		}
	}
	tests := []struct {
		name string
		next next
		is   error // nil: an answer
	}{
		{"expansion", says(200, fhirJSON, expansion), nil},
		{"with its length", sized(strconv.Itoa(len(expansion))), nil},
		{"negative", says(404, fhirJSON, outcome), nil},
		{"without a status", func(w http.ResponseWriter) error {
			w.Header().Set("Content-Type", fhirJSON)
			_, err := io.WriteString(w, expansion)
			return err
		}, nil},
		{"flushed", func(w http.ResponseWriter) error {
			w.Header().Set("Content-Type", fhirJSON)
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, expansion[:9])
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
			_, err := io.WriteString(w, expansion[9:])
			return err
		}, nil},
		{"no next handler", func(http.ResponseWriter) error { return nil }, ErrUnreachable},
		{"half a body", sized(strconv.Itoa(len(expansion) + 1)), ErrCutShort},
		{"length that is none", sized("many"), ErrCutShort},
		{"502", says(502, fhirJSON, outcome), ErrFailed},
		{"504", says(504, "", ""), ErrFailed},
		{"403", says(403, fhirJSON, outcome), ErrRefused},
		{"garbage", says(200, fhirJSON, "garbage"), ErrMalformed},
		{"HTML", says(200, "text/html", "<html>"), ErrMalformed},
		{"compressed", func(w http.ResponseWriter) error {
			w.Header().Set("Content-Encoding", "br")
			return says(200, fhirJSON, expansion)(w)
		}, ErrMalformed},
		{"wrong resource", says(200, fhirJSON, parameters), ErrMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := NewRecorder(w, 1000)
			if err := r.Record(test.next); err != nil {
				t.Fatal(err)
			}
			a, err := r.Answer("ValueSet/$expand")
			if r.Passed() || w.Body.Len() > 0 || w.Flushed {
				t.Errorf("the client was given %q", w.Body)
			}
			if test.is == nil {
				if err != nil || a.Header.Get("Content-Type") != fhirJSON || string(a.Body) != expansion && !a.Negative() {
					t.Errorf("got %+v, %v", a, err)
				}
				return
			}
			if a != nil || !errors.Is(err, test.is) {
				t.Errorf("got %v, %v", a, err)
			}
		})
	}
}

func TestRecorderHeader(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Server", "gateway")
	w.Header().Set("X-Frame-Options", "DENY")
	r := NewRecorder(w, 1000)
	err := r.Record(func(w http.ResponseWriter) error {
		if w.Header().Get("Server") != "gateway" {
			t.Error("the handler does not see what was set before it")
		}
		w.Header().Del("X-Frame-Options")
		w.Header().Set("X-Backend", "1")
		return says(500, "text/html", "<html>")(w)
	})
	if err != nil || w.Header().Get("X-Backend") != "" || w.Header().Get("X-Frame-Options") != "DENY" {
		t.Fatalf("got %v with %v before anything is given to the client", err, w.Header())
	}
	if err := r.Relay(); err != nil || w.Code != 500 || w.Body.String() != "<html>" {
		t.Errorf("got %v, %d %s", err, w.Code, w.Body)
	}
	if h := w.Header(); h.Get("X-Backend") != "1" || h.Get("X-Frame-Options") != "" || h.Get("Server") != "gateway" {
		t.Errorf("got %v", h)
	}
}

func TestRecorderBound(t *testing.T) {
	w := httptest.NewRecorder()
	r := NewRecorder(w, 100)
	body := strings.Repeat("x", 60)
	err := r.Record(func(to http.ResponseWriter) error {
		to.Header().Set("X-Backend", "1")
		to.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(to, body)
		if w.Body.Len() > 0 {
			t.Error("given to the client below the bound")
		}
		_, _ = io.WriteString(to, body)
		if err := http.NewResponseController(to).Flush(); err != nil || !w.Flushed || w.Body.Len() != 120 {
			t.Errorf("not passed on: %v, %d bytes", err, w.Body.Len())
		}
		_, err := io.WriteString(to, body)
		return err
	})
	if err != nil || w.Code != 202 || w.Body.Len() != 180 || w.Header().Get("X-Backend") != "1" {
		t.Errorf("got %v, %d, %d bytes, %v", err, w.Code, w.Body.Len(), w.Header())
	}
	a, err := r.Answer("ValueSet/$expand")
	wantFailure(t, a, err, ErrTooLarge, 502)
	if err := r.Relay(); err != nil || w.Body.Len() != 180 {
		t.Errorf("relayed again: %v, %d bytes", err, w.Body.Len())
	}
}

func TestRecorderAbort(t *testing.T) {
	abort := func(w http.ResponseWriter) error {
		_ = says(200, fhirJSON, expansion[:20])(w)
		panic(http.ErrAbortHandler)
	}
	w := httptest.NewRecorder()
	wantFailure(t, nil, NewRecorder(w, 1000).Record(abort), ErrCutShort, 502)
	if w.Body.Len() > 0 {
		t.Errorf("the client was given %q", w.Body)
	}
	for name, panics := range map[string]func(){
		"abort after some was passed on": func() { _ = NewRecorder(httptest.NewRecorder(), 10).Record(abort) },
		"another panic":                  func() { _ = NewRecorder(w, 10).Record(func(http.ResponseWriter) error { panic("bug") }) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: swallowed", name)
				}
			}()
			panics()
		}()
	}
}

func TestRecorderHijack(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r := NewRecorder(w, 100)
		_ = r.Record(func(w http.ResponseWriter) error {
			raw(false, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")(w, nil)
			return nil
		})
		if _, err := r.Answer("ValueSet/$expand"); !r.Passed() || err == nil {
			t.Error("a connection that was taken over counts as an answer")
		}
	}))
	defer backend.Close()
	conn, err := net.Dial("tcp", backend.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.ContentLength != 2 {
		t.Errorf("got %v, %v", response, err)
	}
	_ = conn.Close()
}

func TestRecordable(t *testing.T) {
	r := httptest.NewRequest("HEAD", "/ValueSet/$expand", nil)
	for _, name := range []string{"If-None-Match", "Range", "Authorization", "Accept-Language"} {
		r.Header.Set(name, "x")
	}
	r.Header.Set("Accept-Encoding", "br")
	got := Recordable(r)
	if h := got.Header; h.Get("If-None-Match")+h.Get("Range") != "" || h.Get("Accept-Encoding") != "identity" || h.Get("Authorization")+h.Get("Accept-Language") != "xx" || got.Method != "GET" {
		t.Errorf("got %s %v", got.Method, got.Header)
	}
	if r.Method != "HEAD" || r.Header.Get("Range") != "x" {
		t.Error("the request itself was changed")
	}
}
