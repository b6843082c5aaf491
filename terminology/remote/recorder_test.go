package remote

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// nextHandler is a simulated next handler.
type nextHandler = func(w http.ResponseWriter) error

// newNextHandler returns a next handler that sends a fixed response.
func newNextHandler(status int, contentType, body string) nextHandler {
	return func(w http.ResponseWriter) error {
		reply(status, contentType, body)(w, nil)
		return nil
	}
}

func TestRecorder(t *testing.T) {
	sized := func(length string) nextHandler {
		return func(w http.ResponseWriter) error {
			w.Header().Set("Content-Length", length)
			return newNextHandler(200, fhirJSON, expansionJSON)(w)
		}
	}
	tests := []struct {
		name string
		next nextHandler
		is   error // expected error; nil if the response is valid
	}{
		{"expansion", newNextHandler(200, fhirJSON, expansionJSON), nil},
		{"with its length", sized(strconv.Itoa(len(expansionJSON))), nil},
		{"negative", newNextHandler(404, fhirJSON, outcomeJSON), nil},
		{"without a status", func(w http.ResponseWriter) error {
			w.Header().Set("Content-Type", fhirJSON)
			_, err := io.WriteString(w, expansionJSON)
			return err
		}, nil},
		{"flushed", func(w http.ResponseWriter) error {
			w.Header().Set("Content-Type", fhirJSON)
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, expansionJSON[:9])
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
			_, err := io.WriteString(w, expansionJSON[9:])
			return err
		}, nil},
		{"no next handler", func(http.ResponseWriter) error { return nil }, errUnreachable},
		{"half a body", sized(strconv.Itoa(len(expansionJSON) + 1)), errTruncated},
		{"invalid length", sized("many"), errTruncated},
		{"502", newNextHandler(502, fhirJSON, outcomeJSON), errServerFailed},
		{"504", newNextHandler(504, "", ""), errServerFailed},
		{"403", newNextHandler(403, fhirJSON, outcomeJSON), ErrRejected},
		{"garbage", newNextHandler(200, fhirJSON, "garbage"), errMalformed},
		{"HTML", newNextHandler(200, "text/html", "<html>"), errMalformed},
		{"compressed", func(w http.ResponseWriter) error {
			w.Header().Set("Content-Encoding", "br")
			return newNextHandler(200, fhirJSON, expansionJSON)(w)
		}, errMalformed},
		{"wrong resource", newNextHandler(200, fhirJSON, parametersJSON), errMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := NewRecorder(1000)
			if err := r.Record(test.next); err != nil {
				t.Fatal(err)
			}
			a, err := r.Response("ValueSet/$expand")
			if r.IsTruncated() {
				t.Error("reported as too large")
			}
			if test.is == nil {
				if err != nil || a.Header.Get("Content-Type") != fhirJSON || string(a.Body) != expansionJSON && !a.IsNegative() {
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

func TestRecorderBound(t *testing.T) {
	r := NewRecorder(100)
	body := strings.Repeat("x", 60)
	err := r.Record(func(w http.ResponseWriter) error {
		w.Header().Set("X-Backend", "1")
		w.WriteHeader(http.StatusAccepted)
		if _, err := io.WriteString(w, body); err != nil || r.IsTruncated() {
			t.Errorf("cut below the bound: %v", err)
		}
		if n, err := io.WriteString(w, body); n != 40 || !errors.Is(err, errTooLarge) {
			t.Errorf("wrote %d bytes past the bound, %v", n, err)
		}
		return nil
	})
	if err != nil || !r.IsTruncated() || r.Status() != 202 || len(r.Body()) != 100 || r.Header().Get("X-Backend") != "1" {
		t.Errorf("got %v, %d, %d bytes, %v", err, r.Status(), len(r.Body()), r.Header())
	}
	a, err := r.Response("ValueSet/$expand")
	wantFailure(t, a, err, errTooLarge, 502)
}

func TestRecorderAbort(t *testing.T) {
	abort := func(w http.ResponseWriter) error {
		_ = newNextHandler(200, fhirJSON, expansionJSON)(w)
		panic(http.ErrAbortHandler)
	}
	wantFailure(t, nil, NewRecorder(1000).Record(abort), errTruncated, 502)
	large := NewRecorder(10)
	_ = large.Record(abort)
	a, err := large.Response("ValueSet/$expand")
	wantFailure(t, a, err, errTooLarge, 502)
	defer func() {
		if recover() == nil {
			t.Error("another panic is swallowed")
		}
	}()
	_ = NewRecorder(10).Record(func(http.ResponseWriter) error { panic("bug") })
}

func TestRecordable(t *testing.T) {
	r := httptest.NewRequest("HEAD", "/ValueSet/$expand", nil)
	for _, name := range []string{"If-None-Match", "Range", "Authorization", "Accept-Language"} {
		r.Header.Set(name, "x")
	}
	r.Header.Set("Accept-Encoding", "br")
	got := WithRecordableHeaders(r)
	if h := got.Header; h.Get("If-None-Match")+h.Get("Range") != "" || h.Get("Accept-Encoding") != "identity" || h.Get("Authorization")+h.Get("Accept-Language") != "xx" || got.Method != "GET" {
		t.Errorf("got %s %v", got.Method, got.Header)
	}
	if r.Method != "HEAD" || r.Header.Get("Range") != "x" {
		t.Error("the request itself was changed")
	}
}
