package caddymodule

import (
	"bytes"
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// askForUnknown gives the next handler's answer, whatever it is: it alone can
// know. Where there is no next handler nothing is written, and the value set is
// unknown for good.
func askForUnknown(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, here error) error {
	answer := caddyhttp.NewResponseRecorder(w, nil, nil)
	if err := next.ServeHTTP(answer, r); err != nil {
		return err
	}
	if answer.Status() == 0 {
		return failure(here)
	}
	return nil
}

// askForIncomplete gives the next handler's answer if it is an expansion. If it
// is not, what is missing here is the more useful thing to say.
func askForIncomplete(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, here error) error {
	header := w.Header().Clone()
	refused := func(status int, _ http.Header) bool { return status >= http.StatusBadRequest }
	answer := caddyhttp.NewResponseRecorder(w, new(bytes.Buffer), refused)
	err := next.ServeHTTP(answer, r)
	if err == nil && answer.Status() != 0 && !answer.Buffered() {
		return nil
	}
	clear(w.Header()) // of what the refused answer left there
	for name, values := range header {
		w.Header()[name] = values
	}
	return failure(here)
}

// keptBody is a request's body as far as it was read, so that the next handler
// can read it again.
type keptBody struct {
	read bytes.Buffer
	body io.ReadCloser
}

// keepBody keeps a copy of what is read of a body from here on; what reads it
// bounds it.
func keepBody(r *http.Request) *keptBody {
	k := &keptBody{body: r.Body}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = io.NopCloser(io.TeeReader(k.body, &k.read))
	}
	return k
}

// restore makes the body begin anew.
func (k *keptBody) restore(r *http.Request) {
	if k.read.Len() > 0 {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(&k.read, k.body), k.body}
		return
	}
	r.Body = k.body
}
