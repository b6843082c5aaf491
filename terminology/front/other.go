package front

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// serveOther handles a request for anything else. With all operations, what nobody answers is 404: without a next
// handler it would be an empty 200.
func (f *Front) serveOther(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	var answer *responseWriter
	if f.options.AllOperations && strings.HasPrefix(r.URL.Path, f.options.Base+"/") && r.Header.Get("Upgrade") == "" {
		answer = &responseWriter{ResponseWriter: w}
		w = answer
	}
	if err := f.passOther(w, r, next); err != nil || answer == nil || answer.status != 0 {
		return err
	}
	return &Error{Status: http.StatusNotFound, Err: &outcome.Error{
		Status: http.StatusNotFound, Code: "not-found", Text: "There is no such operation or resource here.",
	}}
}

// passOther passes a request on. If the next handler does not answer it, it is answered here if possible.
func (f *Front) passOther(w http.ResponseWriter, r *http.Request, next NextHandler) error {
	local := f.operations.other(r, f.options.Base)
	if write := f.writeOf(r); write != nil {
		return write.pass(w, r, next)
	}
	if local == nil {
		return next.ServeHTTP(w, r)
	}
	if answered, err := f.askFirst(w, r, next); answered || err != nil {
		return err
	}
	res := result{by: Here}
	if err := local(f.host.CrossOrigin(w, r), r); err != nil {
		res = result{err: err}
	}
	return f.reply(w, r, res)
}

// other returns what answers a request if the next handler does not, or nil.
func (o operations) other(r *http.Request, base string) operation {
	path, below := strings.CutPrefix(r.URL.Path, base+"/")
	if !below || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil
	}
	kind, id, of := strings.Cut(path, "/")
	if of && (id == "" || strings.ContainsAny(id, "/$")) {
		return nil
	}
	if of {
		kind += "/"
	}
	return o.others[kind]
}
