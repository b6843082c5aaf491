package crossorigin

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// However a handler writes its answer, our CORS headers are the ones sent.
func TestCORSWriter(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(http.ResponseWriter){
		"nothing":           func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"a body":            func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"a copied body":     func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("x")) },
		"after early hints": func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(http.StatusOK) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Access-Control-Allow-Origin", "https://app.example.org")
				w = newCORSWriter(w)
				w.Header().Add("Access-Control-Allow-Origin", "*")
				w.Header().Set("Access-Control-Allow-Methods", "DELETE")
				write(w)
			}))
			defer server.Close()
			r, err := http.Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			if strings.Join(r.Header["Access-Control-Allow-Origin"], " and ") != "https://app.example.org" || r.Header.Get("Access-Control-Allow-Methods") != "" {
				t.Errorf("%v", r.Header)
			}
		})
	}
}
