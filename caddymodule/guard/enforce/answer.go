package enforce

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// answer is a response that is held until it is judged.
type answer struct {
	status int
	header http.Header
	body   []byte
	said   bool          // the body is not what is there, but what a write came to
	buffer *bytes.Buffer // that holds the body and is given back when the client has it; nil if there is none
}

// typeJSON is the media type of every answer that was judged.
const typeJSON = "application/fhir+json"

// newAnswer is an answer of our own.
func newAnswer(status int, body []byte) *answer {
	return &answer{status: status, header: http.Header{"Content-Type": {typeJSON + "; charset=utf-8"}}, body: body}
}

// with is the answer with another body.
func (a *answer) with(body []byte) *answer {
	return &answer{status: a.status, header: a.header, body: body}
}

// succeeded reports whether the status is 2xx.
func (a *answer) succeeded() bool { return a.status/100 == 2 }

// isJSON reports whether the body says that it is FHIR JSON.
func (a *answer) isJSON() bool {
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == typeJSON || media == "application/json" || strings.HasSuffix(media, "+json")
}

// droppedHeaders describe a body that may have become another, or a connection.
var droppedHeaders = []string{
	"Accept-Ranges", "Connection", "Content-Encoding", "Content-Length", "Content-Md5", "Content-Range", "Digest",
	"Keep-Alive", "Refresh", "Trailer", "Transfer-Encoding",
}

// write sends the answer. A GET that names its ETag in If-None-Match is answered with 304 here, because the server was
// asked without (RFC 9110 §13.1.2): it would have answered so whether the resource may be seen or not.
func (a *answer) write(w http.ResponseWriter, r *http.Request) error {
	for name, values := range a.header {
		if !slices.Contains(droppedHeaders, name) {
			w.Header()[name] = values
		}
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if read && a.status == http.StatusOK && isNotModified(r.Header, a.header.Get("Etag")) {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if len(a.body) == 0 {
		w.Header().Del("Content-Type")
	}
	if a.status != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if r.Method == http.MethodHead || len(a.body) == 0 {
		return nil
	}
	_, err := w.Write(a.body)
	return err
}

// isNotModified reports whether If-None-Match names the ETag. Weak comparison, as RFC 9110 §13.1.2 has it.
func isNotModified(header http.Header, etag string) bool {
	if etag == "" {
		return false
	}
	for _, value := range header["If-None-Match"] {
		for tag := range strings.SplitSeq(value, ",") {
			if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}

// requireJSON withholds an answer that cannot be read.
func (a *answer) requireJSON() error {
	if !a.isJSON() {
		return withheld(fmt.Errorf("the answer is %q, no JSON", a.header.Get("Content-Type")))
	}
	return nil
}
