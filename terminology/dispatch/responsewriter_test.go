package dispatch

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What is dropped never reaches the client, nor does a flush begin a response that may be dropped.
func TestResponseWriterDrops(t *testing.T) {
	t.Parallel()
	for status, dropped := range map[int]bool{http.StatusOK: false, http.StatusNotFound: true} {
		client := httptest.NewRecorder()
		w := &responseWriter{ResponseWriter: client, refused: func(status int) bool { return status >= http.StatusBadRequest }}
		control := http.NewResponseController(w)
		if err := control.Flush(); err != nil || client.Flushed {
			t.Errorf("%d: flushed before it began: %v", status, err)
		}
		w.WriteHeader(status)
		w.WriteHeader(http.StatusTeapot) // too late
		_, _ = io.WriteString(w, "a")
		_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("b")}) // by ReadFrom
		err := control.Flush()
		if reached := client.Body.String() == "ab" && client.Code == status && client.Flushed; err != nil || w.status != status || w.dropped != dropped || reached == dropped {
			t.Errorf("%d: %+v, the client got %d %q, %v", status, w, client.Code, client.Body, err)
		}
	}
}

// Informational responses come before the one that counts.
func TestResponseWriterInforms(t *testing.T) {
	t.Parallel()
	var begun []int
	w := &responseWriter{ResponseWriter: httptest.NewRecorder(), begins: func(status int) { begun = append(begun, status) }}
	w.WriteHeader(http.StatusEarlyHints)
	if w.final || w.status != http.StatusEarlyHints {
		t.Errorf("after a hint: %+v", w)
	}
	_, _ = w.Write(nil)
	if !w.final || w.status != http.StatusOK || len(begun) != 1 || begun[0] != http.StatusOK {
		t.Errorf("begun with %v: %+v", begun, w)
	}
}
